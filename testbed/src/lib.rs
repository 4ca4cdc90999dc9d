//! The test bed: starts the real programs that integration tests and benches run against. Each test starts what it
//! needs, and stops it at its end. No test is skipped if a program is missing: `scripts/install --tests` installs
//! them all.
//!
//! It uses adtrail only as a program, and none of its crates. Start at [`site::Site`], an installation of adtrail
//! on a [`kafka::Kafka`].
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "test support fails loudly, as clippy.toml allows in tests"
)]

pub mod adtrail;
pub mod avro;
pub mod disk;
mod environment;
pub mod exports;
pub mod faults;
pub mod http;
pub mod http2;
mod process;
pub mod rows;
mod services;
pub mod site;
pub mod traffic;
mod waiting;

pub use environment::{cache_dir, free_port, from_env, length, machine};
pub use process::{Captured, await_exit, check_exit, check_refused, kill, run, run_ok, shell_line};
pub use services::{hbase, kafka, maven, prometheus, registry, shared};
pub use waiting::{DEADLINE, SetOnDrop, eventually};
