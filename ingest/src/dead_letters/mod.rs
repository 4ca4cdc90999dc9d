//! Dead letters, the records that could not be decoded: their topics, their producer, and their replay.
//!
//! Start with `producer`.

pub(crate) mod producer;
pub mod replay;
pub(crate) mod topics;
