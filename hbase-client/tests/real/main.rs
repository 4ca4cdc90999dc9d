//! On a real HBase: all servers in one JVM, or six processes that are killed, or with TLS.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "what clippy.toml lets tests do, what they call does too"
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
