//! The messages of HBase's protocol, with only the fields that this crate uses. Other fields are not sent, and are
//! skipped when received. `rpc` has the headers of every call; `data` reads and writes rows.
//!
//! Written by hand, so that no protobuf compiler is needed. Byte fields are [`Bytes`], which share the buffer in which
//! they were received.
//!
//! [`Bytes`]: bytes::Bytes

pub mod admin;
pub mod common;
pub mod data;
pub mod rpc;
pub mod scan;
pub(crate) mod write;
