//! The conformance suite: small cases of the attribution contract, run on any engine.
//!
//! A [`case`] is a file of events, settings and expected rows; a [`suite`] has the built-in cases or those of a folder.
//! An [`engine`], adtrail itself or a command, runs each case in every [`order`], because the result must not depend on
//! arrival; [`assertions`] compares the rows.
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
