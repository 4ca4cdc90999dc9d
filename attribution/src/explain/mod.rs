//! Why a decision is as it is, and what is known of a device.
//!
//! Start with `collect`, which gathers the answer; `explanation` is the answer, `timeline` lists the facts of a device.

pub mod collect;
pub mod explanation;
pub mod timeline;
