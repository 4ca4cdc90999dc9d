//! `adtrail run` on a real Kafka: ingest, exports, refused settings, and recovery from failures.
#![cfg(test)]

extern crate store as adtrail_store;

mod backup;
mod bad_input;
mod broken_off;
mod clients;
mod clocks;
mod complete;
mod conformance_kafka;
mod convergence;
#[cfg(feature = "crash-points")]
mod crash_points;
mod disk_full;
mod download;
mod group;
mod io_errors;
mod kept;
mod lost_log;
mod operate;
mod peek;
mod placement;
mod redelivery;
mod refusals;
mod regions;
mod replay_dlq;
mod stops;
mod talkingdata;
mod tokens;
mod topics;
mod verify;
