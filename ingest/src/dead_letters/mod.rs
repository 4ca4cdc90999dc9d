//! Records that could not be decoded: their topics, and how they are replayed.
//!
//! Start with `producer`.

pub(crate) mod producer;
pub mod replay;
pub(crate) mod topics;
