//! The write path: pending facts, rows, aggregates, regions, expiry, the thread that writes, and its wait for free disk
//! space.
//!
//! Start with `rows`.

pub(crate) mod aggregates;
pub(crate) mod batch_writer;
pub(crate) mod compaction_filter;
pub(crate) mod disk_full;
pub(crate) mod expiry_floor;
pub(crate) mod pending;
pub(crate) mod rebuild_aggregates;
pub(crate) mod received_md5;
pub(crate) mod reclaim_space;
pub(crate) mod regions;
pub(crate) mod rows;
pub(crate) mod unfinished;
