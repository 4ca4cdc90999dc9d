//! Explains a decision, and lists what is known of a device.
//!
//! Start with `collect`, which gathers an `explanation`; `timeline` lists the facts of a device.

pub mod collect;
pub mod explanation;
pub mod timeline;
