//! What was read and not emitted yet.
//!
//! Start with `record_router`, which decodes a record and adds it to the batch.

pub(crate) mod batch;
pub(crate) mod low_watermark;
pub(crate) mod partition_affinity;
pub(crate) mod paused_partitions;
pub(crate) mod record_router;
pub(crate) mod trusted_clock;
