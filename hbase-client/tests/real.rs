//! On a real HBase, all servers of which are in one JVM.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "what clippy.toml lets tests do, what they call does too"
)]

mod support;

mod real {
    mod admin;
    mod bad_input;
    mod batches;
    mod checks;
    mod moves;
    mod scans;
}
