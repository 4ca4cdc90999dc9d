//! The tables in HBase: how they are created and checked.

pub(crate) mod meta;
pub(crate) mod provision;
pub mod tables;
