//! Apps as the store knows them: over how many partitions each is spread, and under which key it was written.

pub(crate) mod names;
pub mod spread;
