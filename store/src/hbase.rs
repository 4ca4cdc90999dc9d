//! The store past one machine: the same tables and keys in Apache HBase, for any number of workers and readers.
//!
//! [`Shared`] is the way in. [`ledger`] decides what is written in which order, over [`cells`], which is all that it knows of HBase.

pub mod backwards;
pub mod cells;
pub mod cluster;
pub mod home;
pub mod ledger;
mod made;
mod meta;
pub(crate) mod moved;
pub mod reader;
pub mod rows;
pub mod settle;
mod shared;
pub mod tables;

pub use made::{Difference, Made, check, init};
pub use meta::Complete;
pub use shared::{ClusterRegion, RegionLoad, Shared};
