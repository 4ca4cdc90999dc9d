//! What the broker has of a partition.

/// What the broker has of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// The oldest record kept.
    pub low: i64,
    /// One after the last record that can be read.
    pub high: i64,
}
