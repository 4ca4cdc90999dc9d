//! The worker's decisions over every ledger: in memory, on disk and in HBase.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod activation_pages;
mod contract;
mod convergence;
mod effect_pages;
mod expiry;
mod expiry_floor;
#[macro_use]
mod ledger;
mod on_hbase;
mod outbox_crashes;
mod races;
mod read_limits;
mod reference;
mod simulation;
mod threads;
