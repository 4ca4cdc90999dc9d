//! Tests that start their own brokers: killed, secured, or with other settings.
#![cfg(test)]

mod alerts;
mod brokers;
mod deleted_records;
mod deploy;
mod package;
mod secured;
