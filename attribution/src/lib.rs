//! What ad events mean: which facts are one, which click an activation is credited to, and what
//! an effect inherits.
//!
//! Everything here is a function of facts and settings. There is no clock, no randomness, no IO
//! and no async; time comes in the facts. The [`worker`] reaches a store through the
//! [`ledger::Ledger`] port, which the store crate implements.
//!
//! Start with [`event`] (the facts), [`attribute`] (where the winner is chosen) and [`worker`]
//! (how a batch of facts becomes decisions).

pub mod explain;
pub mod facts;
pub mod ledger;
pub mod rules;
pub mod worker;
