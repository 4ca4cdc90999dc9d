//! What arrives, and the keys by which it is found.

pub mod canonical;
pub mod device_ids;
pub mod event;
pub mod identity;
pub mod keys;
pub mod match_keys;
pub mod printable;
