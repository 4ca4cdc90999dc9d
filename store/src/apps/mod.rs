//! The store's records of apps: the partitions and the retention of their rows, and the key of each pid.

pub(crate) mod names;
pub mod record;
