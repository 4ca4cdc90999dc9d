//! The conformance suite: small cases of the attribution contract, and any engine run on them.
//!
//! A case ([`case`]) is a file of facts, settings and expected rows; [`suite`] holds those of the
//! binary or of a folder. Each is run in every [`order`], because a result that depends on arrival
//! is wrong, by an [`engine`]: adtrail itself, or a command. [`judge`] compares the rows.
//!
//! Start with [`report`]. The format of a case is in `docs/conformance.md`.

mod assertions;
mod builtin_engine;
mod case;
mod engine;
mod order;
mod report;
mod suite;

pub(crate) use engine::{Command, Engine};
pub(crate) use report::run_all;
pub(crate) use suite::Suite;
