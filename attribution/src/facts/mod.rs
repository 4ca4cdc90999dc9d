//! Facts: their identity, their device ids, the keys under which they are stored and found, and how they match.

pub mod addresses;
pub mod canonical;
pub mod device_ids;
pub mod event;
pub mod identity;
pub mod ignored_values;
pub mod keys;
pub mod match_keys;
pub mod matches;
pub mod placeholders;
pub mod printable;
