//! Progress of one partition: read, committed, complete.

use std::collections::VecDeque;

use crate::kafka::partitions::Watermarks;

/// Maximum number of offsets of a partition that wait to be committed. Beyond it, the newest one is replaced.
const WAITING_MAX: usize = 8;

#[derive(Debug, Clone, Default)]
pub(super) struct Partition {
    pub watermarks: Option<Watermarks>,
    pub committed: Option<i64>,
    /// Broker time up to which the partition is read, or when everything was last committed; 0 while unknown.
    pub until_ms: u64,
    /// Time before which everything that the broker received is committed; 0 while unknown.
    pub complete_ms: u64,
    /// Next offsets, ascending, each with the value of `complete_ms` once it is committed.
    waiting: VecDeque<(i64, u64)>,
}

impl Partition {
    pub fn track_commit(&mut self, next_offset: i64, until_ms: u64) {
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_back();
        }
        // Offsets arrive in ascending order, except that end offsets are added before they are read.
        let index = self.waiting.partition_point(|(before, _)| *before <= next_offset);
        self.waiting.insert(index, (next_offset, until_ms));
        self.update_complete();
    }

    pub fn update_complete(&mut self) {
        let low = self.watermarks.map_or(0, |watermarks| watermarks.low);
        let next = self.committed.unwrap_or(low).max(low);
        let reached = self.waiting.partition_point(|(offset, _)| *offset <= next);
        let until_ms = self.waiting.drain(..reached).map(|(_, until_ms)| until_ms).max();
        self.complete_ms = self.complete_ms.max(until_ms.unwrap_or(0));
    }

    pub fn lag_messages(&self) -> u64 {
        let Some(Watermarks { low, high }) = self.watermarks else { return 0 };
        let next = self.committed.unwrap_or(low).max(low);
        u64::try_from(high - next).unwrap_or(0)
    }

    /// Returns the lag in time. It is never 0 while the topic is denied, because new records are then unknown.
    pub fn lag_ms(&mut self, now_ms: u64, is_denied: bool) -> u64 {
        if self.until_ms == 0 || (self.lag_messages() == 0 && !is_denied) {
            self.until_ms = now_ms;
        }
        now_ms.saturating_sub(self.until_ms)
    }
}
