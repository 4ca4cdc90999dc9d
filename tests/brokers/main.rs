//! Tests that start their own brokers: killed, secured, or with other settings.
#![cfg(test)]

mod alerts;
mod brokers;
mod deleted_records;
mod deploy;
#[expect(dead_code, reason = "only a part of it is used here")]
#[path = "../support/network.rs"]
mod network;
mod package;
mod secured;
