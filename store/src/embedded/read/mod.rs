//! Reading a snapshot: rows, aggregates and the index.

pub(crate) mod aggregates;
pub(crate) mod index;
pub(crate) mod snapshot;
