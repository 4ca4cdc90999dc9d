//! The servers that tests run against: Kafka, HBase, a schema registry and Prometheus. `shared` lets all tests of a run
//! use the same ones, `child_guard` ends them with the run, `maven` and `class_data` are for JVMs.

mod child_guard;
mod class_data;
pub mod hbase;
pub mod kafka;
pub mod maven;
pub mod prometheus;
pub mod registry;
pub mod shared;

// For `maven`, which the tests of `hbase-client` include as well.
use crate::{cache_dir, run_ok};
