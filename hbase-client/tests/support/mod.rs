//! The test bed: a real HBase, started by the tests themselves and gone with them, and a scripted
//! server that says whatever a test wants. Nothing here is skipped because a program is missing: Java
//! (17 or later) and Maven are needed.
#![allow(dead_code, unused_imports, reason = "every test binary uses a part of it")]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "what clippy.toml lets tests do, this does too"
)]

mod bed;
#[path = "../../../testbed/src/child_guard.rs"]
mod child_guard;
#[path = "../../../testbed/src/class_data.rs"]
mod class_data;
pub mod fake;
pub mod hbase;
#[path = "../../../testbed/src/maven.rs"]
pub mod maven;
pub mod processes;
pub mod rows;
#[path = "../../../testbed/src/shared.rs"]
mod shared;
pub mod site;

pub use bed::*;
