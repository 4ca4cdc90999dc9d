//! The attribution core determines which messages are the same fact, which touch an activation is credited to, and
//! which credit an effect inherits.
//!
//! Everything here is a pure function of facts and settings: no clock, no randomness, no IO, no async. Threads only
//! share the work on the items of a batch ([`parallelism`]). Every fact carries its time. The [`worker`] accesses a
//! store through the [`ledger::Ledger`] port, which the `store` crate implements.
//!
//! Start with [`facts::event`] (the facts), [`rules::winner`] (how the credited touch is chosen) and [`worker`] (how
//! a batch of facts becomes decisions). [`explain`] explains a stored decision.

pub mod encoding;
pub mod explain;
pub mod facts;
pub mod ledger;
mod named;
pub mod outbox;
pub mod parallelism;
pub mod rules;
pub mod worker;
