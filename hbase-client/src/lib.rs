//! A client of Apache HBase, 2.5 and later: asynchronous, over HBase's own protocol, without
//! ZooKeeper, Thrift or REST.
//!
//! Begin with [`Client::connect`]; a [`Table`] reads and writes rows, [`Admin`] makes tables.
//!
//! - Any master or region server that is named in [`Config`] leads to the whole cluster. Reading and
//!   writing go on while it has no master.
//! - Batches are cut by server and region. Each row has an outcome of its own, and only what failed is
//!   tried again: after a look where its region is by now, or after a while, as the servers' errors
//!   ask for.
//! - A scan crosses regions, reads ahead, and goes on after its last complete row whatever happens to
//!   a server: no row comes twice, and none is missing.
//! - Every operation has a deadline. Bytes in flight are bounded for each server.
//!
//! It is not: a way to run code on servers (coprocessors, filters), to append or increment (which
//! would have to be protected from being done twice), to read backwards, or to log on with Kerberos:
//! the client tells a name, and HBase believes it unless it is told not to. Where a log-on would go is
//! shown in `wire/frame.rs`.
//!
//! [`wire`] and [`proto`] are what the tests' server speaks; they may change with any version.

mod action;
mod admin;
mod backoff;
mod batch;
mod client;
mod cluster;
mod config;
mod connection;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod location;
mod multi;
mod names;
pub mod proto;
mod remote_exception;
mod rows;
mod scan;
pub mod transport;
pub mod wire;

pub use action::{CheckAndMutate, Delete, Get, Mutation, Put, Selection};
pub use admin::{Admin, Family, Load, RegionStatus, TableSpec};
pub use client::{Client, Table};
pub use config::{Config, Identity, Tls};
pub use error::{Error, RetryAdvice};
pub use names::{InvalidName, Server, TableName};
pub use remote_exception::{RemoteException, RetryAction};
pub use rows::Row;
pub use scan::{Rows, Scan};
pub use wire::cell::{Cell, Kind};

/// The example in `README.md` compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
