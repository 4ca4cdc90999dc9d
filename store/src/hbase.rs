//! The store past one machine: the same tables and keys in Apache HBase, for any number of workers and readers.
//!
//! [`ledger`] decides what is written in which order, over [`cells`], which is all that it knows of HBase.

pub mod cells;
pub mod cluster;
pub mod home;
pub mod ledger;
pub mod rows;
pub mod settle;
pub mod tables;
