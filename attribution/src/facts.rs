//! What arrives, and the keys by which it is found.

pub mod keys;
