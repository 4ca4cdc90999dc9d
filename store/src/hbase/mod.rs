//! The store of many machines: the same keys and values in Apache HBase, for any number of workers and readers.
//!
//! Start with [`Shared`]. [`ledger`] determines the order of writes; [`ledger::cells`] is its only interface to HBase.

pub mod cluster;
pub(crate) mod copy;
pub mod counts;
pub mod ledger;
pub mod outbox;
pub mod read;
pub mod schema;
mod store;

pub use schema::meta::PartitionComplete;
pub use schema::provision::{Difference, TableStatus, check, init};
pub use store::{ClusterRegion, RegionLoad, Shared};
