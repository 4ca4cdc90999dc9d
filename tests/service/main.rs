//! `adtrail run` on a real Kafka: ingest, exports, refused settings, and recovery from failures.
#![cfg(test)]

mod callbacks;
mod catalogue;
mod collector;
mod conformance_kafka;
#[path = "../support/conformance_runner.rs"]
mod conformance_runner;
mod downloads;
mod kafka;
#[path = "../support/network.rs"]
mod network;
mod operations;
mod recovery;
mod reload;
mod spool;
mod talkingdata;
