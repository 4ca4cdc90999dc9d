//! How much memory the facts of a decision may take while they are read, and the decisions until they are committed.

/// Limits of single reads. A decision is the same with any limits; tests use small ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// Size of the facts that one read loads; at least one fact is loaded. What a decision still needs of them is kept
    /// beside those of the next read. Facts that may be needed again stay loaded until all have this size. Also the
    /// size of the decisions on stored effects from which on they are committed before the next ones are made.
    pub bytes: usize,
    /// Number of index entries that one read of pages returns; at least one per search.
    pub entries: usize,
    /// Number of touches read for a decision, or of activations classified or effects decided for a batch, from which
    /// a history counts as large.
    pub large_history: usize,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self { bytes: 4 << 20, entries: 1 << 20, large_history: 100_000 }
    }
}
