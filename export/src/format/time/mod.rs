//! Time zones, and times as exports write them. Start with `writer`.

pub(crate) mod writer;
pub(crate) mod zone;
