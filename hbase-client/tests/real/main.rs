//! Tests on a real HBase: in one JVM, in six processes of which some are killed, and with TLS.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test support fails loudly, as clippy.toml allows in tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod admin;
mod bad_input;
mod batches;
mod checks;
mod moves;
mod processes;
mod scans;
mod secured;
