//! The messages of HBase's protocol, with the fields that are used and no others: what is not
//! written here is not sent, and is passed over when it comes.
//!
//! Written by hand, so that no compiler of protocol buffers is needed. Bytes are [`Bytes`], which
//! share the buffer that they were received in.
//!
//! [`Bytes`]: bytes::Bytes

pub mod admin;
pub mod common;
pub mod data;
pub mod rpc;
pub mod scan;
pub(crate) mod write;
