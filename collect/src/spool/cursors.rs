//! The order in which segments are drained.

use super::writer::Segment;

/// After this many of the newest segments in a row, an earlier one is tried again.
const NEWEST_IN_A_ROW: u32 = 8;

/// Two positions among the segments. One goes on to newer ones, so that events that Kafka takes do not wait for others.
/// The sweep goes through all that have remained, oldest first, up to an end that newer segments do not move.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    newest: u64,
    newest_in_a_row: u32,
    sweep: u64,
    sweep_end: u64,
}

impl Cursors {
    /// Returns the segment to drain next; `after` returns the first one after a number.
    pub fn next(&mut self, mut after: impl FnMut(u64) -> Option<Segment>) -> Option<Segment> {
        if self.newest_in_a_row < NEWEST_IN_A_ROW
            && let Some(segment) = after(self.newest)
        {
            self.newest_in_a_row += 1;
            self.newest = segment.name.number;
            return Some(segment);
        }
        self.newest_in_a_row = 0;
        let next = (self.sweep < self.sweep_end).then(|| after(self.sweep)).flatten();
        let segment = match next.filter(|next| next.name.number <= self.sweep_end) {
            Some(next) => next,
            None => {
                self.sweep_end = self.newest;
                after(0)?
            }
        };
        self.sweep = segment.name.number;
        self.newest = self.newest.max(self.sweep);
        Some(segment)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::folder::Name;
    use super::*;

    /// Returns the number of the segment that is drained next.
    fn next(cursors: &mut Cursors, segments: &BTreeSet<u64>) -> Option<u64> {
        let after = |number: u64| {
            let number = *segments.range(number + 1..).next()?;
            let name = Name { number, marker: 0 };
            Some(Segment { name, bytes: 0, events: 1, is_damaged: false })
        };
        cursors.next(after).map(|segment| segment.name.number)
    }

    #[test]
    fn segments_are_drained_in_order() {
        let (mut cursors, mut segments) = (Cursors::default(), BTreeSet::from_iter(1..=40));
        for number in 1..=40 {
            assert_eq!(next(&mut cursors, &segments), Some(number));
            segments.remove(&number);
        }
        assert_eq!(next(&mut cursors, &segments), None);
        segments.insert(41);
        assert_eq!(next(&mut cursors, &segments), Some(41));
    }

    #[test]
    fn segments_that_remain_are_tried_in_turn() {
        let (mut cursors, mut segments) = (Cursors::default(), BTreeSet::from([1, 2, 3]));
        let found = [(); 6].map(|()| next(&mut cursors, &segments).unwrap());
        assert_eq!(found, [1, 2, 3, 1, 2, 3]);
        segments.insert(4);
        let found = [(); 3].map(|()| next(&mut cursors, &segments).unwrap());
        assert_eq!(found, [4, 1, 2]);
    }

    /// Each time, there is a segment that is new.
    #[test]
    fn newer_segments_do_not_hold_up_those_that_remain() {
        let (mut cursors, mut segments) = (Cursors::default(), BTreeSet::new());
        let mut tries = Vec::new();
        for number in 1..=200 {
            segments.insert(number);
            tries.push(next(&mut cursors, &segments).unwrap());
        }
        for number in 1..=8 {
            let count = tries.iter().filter(|tried| **tried == number).count();
            assert!(count >= 3, "{number}: {tries:?}");
        }
        assert!(tries.iter().any(|tried| *tried > 150), "{tries:?}");
    }
}
