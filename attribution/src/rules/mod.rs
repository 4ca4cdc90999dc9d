//! The attribution contract as pure functions.
//!
//! Start with `winner`, which chooses the touch that an activation is credited to. `classify` tells installs from reinstalls and duplicates, `candidate` applies windows and fraud rules, `inherit` gives effects their credit, `policy` holds the settings, and `build_row` makes the row of a decision.

pub mod build_row;
pub mod candidate;
pub mod classify;
pub mod expiry;
pub mod inherit;
pub mod policy;
pub mod row;
pub mod winner;
