//! Reads: rows and aggregates from a snapshot, and index entries. Start with `snapshot`; `parts` divides a scan.

pub(crate) mod aggregates;
pub(crate) mod index;
pub(crate) mod parts;
pub(crate) mod snapshot;
mod touches;
