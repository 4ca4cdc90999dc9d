//! Reads: rows and aggregates from a snapshot, and index entries. Start with `snapshot`.

pub(crate) mod aggregates;
pub(crate) mod index;
pub(crate) mod snapshot;
