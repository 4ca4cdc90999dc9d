//! librdkafka: clients, topics, partitions with their watermarks, offsets.
//!
//! Start with `clients`.

pub(crate) mod assignment;
pub(crate) mod clients;
pub(crate) mod committed;
pub(crate) mod error;
pub mod event_producer;
pub mod group_offsets;
pub mod headers;
pub(crate) mod offsets;
pub(crate) mod partitions;
pub(crate) mod retry;
pub mod settings;
pub(crate) mod topic_admin;
pub(crate) mod topic_scan;
pub(crate) mod topics;
