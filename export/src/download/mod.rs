//! Streaming exports: from a checked request to the last byte.
//!
//! Start with `handler`; `stream` runs the scan, `registry` keeps the state of each export,
//! `audit` and `trace` say what became of it.

pub(crate) mod audit;
pub(crate) mod checksum;
pub(crate) mod cpu_slots;
pub(crate) mod handler;
pub(crate) mod registry;
pub(crate) mod state;
pub(crate) mod stream;
mod trace;
