//! Opening RocksDB: checks before the open, column families and their options.
//!
//! Start with `preflight`.

pub(crate) mod column_families;
pub(crate) mod layout_version;
pub(crate) mod manifest_check;
pub(crate) mod memory_budget;
pub(crate) mod meta;
pub(crate) mod options;
pub(crate) mod preflight;
