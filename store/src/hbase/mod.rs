//! The store beyond one machine: the same keys and values in Apache HBase, for any number of workers and readers.
//!
//! Start with [`Shared`]. [`ledger`] decides what is written in which order; [`ledger::cells`] is all it knows of HBase.

pub mod cluster;
pub(crate) mod copy;
pub mod ledger;
pub mod read;
pub mod schema;
mod store;

pub use schema::meta::Complete;
pub use schema::provision::{Difference, TableStatus, check, init};
pub use store::{ClusterRegion, RegionLoad, Shared};
