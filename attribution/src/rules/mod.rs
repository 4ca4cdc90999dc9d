//! The attribution contract as pure functions.
//!
//! Start with `winner`, which chooses the touch that an activation is credited to. `classify` separates installs,
//! reinstalls and duplicates, `candidate` applies windows and fraud rules, `inherit` gives effects their credit,
//! `policy` holds the settings, `expiry` computes how long facts are needed, and `build_row` builds the row of a
//! decision.

pub mod build_row;
pub mod candidate;
pub mod classify;
pub mod expiry;
pub mod inherit;
pub mod policy;
pub mod row;
pub mod winner;
