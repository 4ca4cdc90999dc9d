//! Events in files: NDJSON, plain or compressed.

pub mod compression;
pub mod ndjson;
