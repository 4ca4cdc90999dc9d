//! Attribution: which messages are one fact, which click an activation is credited to, and what credit an effect
//! inherits.
//!
//! Everything here is a pure function of facts and settings: no clock, no randomness, no IO, no async. Time comes
//! with the facts. The [`worker`] reaches a store through the [`ledger::Ledger`] port, which the `store` crate
//! implements.
//!
//! Start with [`facts::event`] (the facts), [`rules::winner`] (how the credited touch is chosen) and [`worker`] (how
//! a batch of facts becomes decisions). [`explain`] answers why a decision is as it is.

pub mod explain;
pub mod facts;
pub mod ledger;
mod named;
pub mod rules;
pub mod worker;
