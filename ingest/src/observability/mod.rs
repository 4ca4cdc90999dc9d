//! Health and metrics of ingest.

pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod partition_progress;
pub(crate) mod value_counts;
