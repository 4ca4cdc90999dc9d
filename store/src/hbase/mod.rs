//! The store past one machine: the same tables and keys in Apache HBase, for any number of workers and readers.
//!
//! [`Shared`] is the way in. [`ledger`] decides what is written in which order, over [`cells`], which is all that it knows of HBase.

pub mod cluster;
pub(crate) mod copy;
pub mod ledger;
pub mod read;
pub mod schema;
mod store;

pub use schema::meta::Complete;
pub use schema::provision::{Difference, Made, check, init};
pub use store::{ClusterRegion, RegionLoad, Shared};
