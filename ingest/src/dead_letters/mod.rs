//! Dead letters, the records that could not be decoded or read: their content, topics, producer, and replay.
//!
//! Start with `producer`.

pub(crate) mod letter;
pub(crate) mod producer;
pub mod replay;
pub(crate) mod topics;
