//! How far one partition is read and committed.

use std::collections::VecDeque;

use crate::kafka::watermarks::Watermarks;

/// Places that wait to be committed, of a partition; more are taken together.
const WAITING_MAX: usize = 8;

#[derive(Debug, Clone, Default)]
pub(super) struct Partition {
    pub extent: Option<Watermarks>,
    pub committed: Option<i64>,
    /// The broker time up to which it is read, or the last moment when nothing was left; 0: not
    /// known yet.
    pub until_ms: u64,
    /// All that the broker received before this is committed; 0: not known yet.
    pub complete_ms: u64,
    /// Next offsets, ascending, with what `complete_ms` is once they are committed.
    waiting: VecDeque<(i64, u64)>,
}

impl Partition {
    pub fn await_commit(&mut self, next_offset: i64, until_ms: u64) {
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_back();
        }
        // Offsets ascend, but for what was asked of the broker before it was read.
        let place = self.waiting.partition_point(|(before, _)| *before <= next_offset);
        self.waiting.insert(place, (next_offset, until_ms));
        self.complete();
    }

    pub fn complete(&mut self) {
        let low = self.extent.map_or(0, |extent| extent.low);
        let next = self.committed.unwrap_or(low).max(low);
        let reached = self.waiting.partition_point(|(offset, _)| *offset <= next);
        let until_ms = self.waiting.drain(..reached).map(|(_, until_ms)| until_ms).max();
        self.complete_ms = self.complete_ms.max(until_ms.unwrap_or(0));
    }

    pub fn lag_messages(&self) -> u64 {
        let Some(Watermarks { low, high }) = self.extent else { return 0 };
        let next = self.committed.unwrap_or(low).max(low);
        u64::try_from(high - next).unwrap_or(0)
    }

    /// While it may not be read, nobody knows that nothing is left.
    pub fn lag_ms(&mut self, now_ms: u64, is_denied: bool) -> u64 {
        if self.until_ms == 0 || (self.lag_messages() == 0 && !is_denied) {
            self.until_ms = now_ms;
        }
        now_ms.saturating_sub(self.until_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(extent: Option<(i64, i64)>, committed: Option<i64>, expected: u64) {
        let extent = extent.map(|(low, high)| Watermarks { low, high });
        let partition = Partition { extent, committed, ..Partition::default() };
        assert_eq!(partition.lag_messages(), expected);
    }

    #[test]
    fn lag_is_what_is_left_to_commit() {
        check(None, None, 0);
        check(None, Some(5), 0);
        check(Some((2, 10)), None, 8);
        check(Some((2, 10)), Some(4), 6);
        check(Some((2, 10)), Some(10), 0);
        check(Some((2, 10)), Some(12), 0);
        check(Some((8, 10)), Some(4), 2);
    }
}
