//! The watermarks of a partition.

/// The range of offsets that the broker has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// Offset of the oldest record.
    pub low: i64,
    /// Offset after the last record.
    pub high: i64,
}
