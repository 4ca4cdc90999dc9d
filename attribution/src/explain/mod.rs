//! Explains a decision, and lists the facts of a device.
//!
//! Start with `collect`, which builds an `explanation`; `timeline` lists the facts of a device.

pub mod collect;
pub mod explanation;
pub mod timeline;
