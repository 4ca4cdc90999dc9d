//! An asynchronous client of Apache HBase 2.5 and later, over HBase's native protocol, without ZooKeeper, Thrift or
//! REST.
//!
//! Start with [`Client::connect`]. A [`Table`] reads and writes rows; [`Admin`] manages tables.
//!
//! - The client finds the whole cluster through any master or region server in [`Config`]. Reads and writes continue
//!   while the cluster has no master.
//! - Batches are split by server and region. Each row has its own outcome, and only failed rows are retried: after
//!   their region is located again or after a backoff, depending on the error.
//! - A scan crosses regions, prefetches, and resumes after its last complete row if a server fails: no row is
//!   returned twice, and none is missing.
//! - Every operation has a deadline. Bytes in flight are limited per server.
//!
//! Not supported: code on servers (coprocessors, filters), append and increment (a retry could count twice), reverse
//! scans, and Kerberos: the client sends a user name, which HBase trusts unless it is configured otherwise.
//! `wire/frame.rs` shows where authentication would go.
//!
//! [`wire`] and [`proto`] are public only for the in-memory servers of the tests, and may change in any version.

mod admin;
mod batch;
mod client;
mod cluster;
mod config;
mod connection;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod names;
pub mod proto;
mod rows;
mod scan;
pub mod wire;

pub use admin::{Admin, Family, Load, RegionStatus, TableSpec};
pub use client::{Client, Table};
pub use config::{Config, Identity, Tls};
pub use connection::transport;
pub use error::{Error, RemoteException, RetryAction, RetryAdvice};
pub use names::{InvalidName, Server, TableName};
pub use rows::{CheckAndMutate, Delete, Get, Mutation, Put, Row, Selection};
pub use scan::{Rows, Scan};
pub use wire::cell::{Cell, Kind};

/// Compiles the example of `README.md`.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
