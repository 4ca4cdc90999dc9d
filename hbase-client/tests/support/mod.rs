//! Test support: a real HBase, which tests start and stop, and an in-memory server with scripted responses. No test is
//! skipped if a program is missing: Java 17 or later and Maven are required.
#![allow(dead_code, unused_imports, reason = "each test binary uses only parts of it")]

#[path = "../../../testbed/src/services/child_guard.rs"]
mod child_guard;
#[path = "../../../testbed/src/services/class_data.rs"]
mod class_data;
#[path = "../../../testbed/src/environment.rs"]
mod environment;
pub mod fake;
pub mod hbase;
mod helpers;
#[path = "../../../testbed/src/services/maven.rs"]
pub mod maven;
pub mod processes;
pub mod rows;
#[path = "../../../testbed/src/services/shared.rs"]
mod shared;
pub mod site;

pub use environment::*;
pub use helpers::*;
