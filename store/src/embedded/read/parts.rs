//! Divides a range of event times into parts of similar size, which several threads can read at the same time.
//!
//! The hourly counts have the sizes. A large hour is divided as if its rows were spread evenly. Wrong or damaged counts
//! make the parts differ in size; together they always have every row once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use attribution::facts::event::EventTime;
use attribution::rules::policy::{AppPolicy, DAY_MS, HOUR_MS};
use rocksdb::ReadOptions;

use super::snapshot::EmbeddedView;
use crate::embedded::db::RawIterator;
use crate::layout::hourly_counts::{self, Cell, CellKey};

/// Rows that expire within this time are in the first part. A snapshot does not keep expired rows, and a part is opened
/// when its turn comes: a slow reader would find such rows in one part, and miss later ones in the next.
const EXPIRING_MS: u64 = DAY_MS;

/// An iterator over consecutive ranges of event times.
pub struct Parts<Hours> {
    /// What is not in a part yet.
    rest: Range<EventTime>,
    /// The first part ends at this time or later.
    first_end: EventTime,
    bytes_max: u64,
    /// The rest of an hour whose beginning is in a part.
    begun: Option<Hour>,
    hours: Hours,
}

/// An hour of event time, or the rest of one, and the size of its rows.
struct Hour {
    range: Range<EventTime>,
    bytes: u64,
}

/// The start of each hour in which an app has rows, and their size, added up over its partitions.
pub struct HourlyBytes<'v> {
    partitions: Vec<RawIterator<'v>>,
    /// The next hour of each partition, with the index of the partition.
    next: BinaryHeap<Reverse<(EventTime, usize)>>,
}

impl EmbeddedView<'_> {
    /// See [`crate::reader::View::parts`].
    pub fn parts(
        &self,
        app: &AppPolicy,
        range: Range<EventTime>,
        bytes_max: u64,
    ) -> Parts<HourlyBytes<'_>> {
        let first_end = self.oldest(app.pid).plus(EXPIRING_MS);
        let mut hours = HourlyBytes { partitions: Vec::new(), next: BinaryHeap::new() };
        let stored = self.reader.app(app);
        for (index, partition) in stored.partitions(self.reader.partitions).enumerate() {
            let cell = |time| hourly_counts::cell_from(partition, app.pid, time);
            let mut options = ReadOptions::default();
            options.set_iterate_upper_bound(cell(range.end.plus(HOUR_MS)));
            let table = self.reader.tables.cells();
            let mut cells = self.snapshot.raw_iterator_cf_opt(&table, options);
            cells.seek(cell(range.start));
            hours.partitions.push(cells);
            hours.load(index);
        }
        Parts::new(range, first_end, bytes_max, hours)
    }
}

impl<Hours: Iterator<Item = (EventTime, u64)>> Parts<Hours> {
    fn new(range: Range<EventTime>, first_end: EventTime, bytes_max: u64, hours: Hours) -> Self {
        Self { first_end: first_end.min(range.end), rest: range, bytes_max, begun: None, hours }
    }

    /// The range that no part has covered so far.
    pub fn rest(&self) -> Range<EventTime> {
        self.rest.clone()
    }

    /// Returns the end of a part that begins with the rest.
    fn end(&mut self) -> EventTime {
        let mut bytes = 0;
        while let Some(hour) = self.next_hour() {
            let free = self.bytes_max - bytes;
            if hour.bytes <= free {
                bytes += hour.bytes;
                continue;
            }
            let taken_ms = share(hour.width_ms(), free, hour.bytes);
            // A part has at least a millisecond.
            let taken_ms = if bytes == 0 { taken_ms.max(1) } else { taken_ms };
            let begun = hour.after(taken_ms);
            let end = begun.range.start;
            self.begun = Some(begun);
            return end;
        }
        self.rest.end
    }

    fn next_hour(&mut self) -> Option<Hour> {
        if let Some(begun) = self.begun.take() {
            return Some(begun);
        }
        let (start, bytes) = self.hours.next()?;
        let hour = Hour { range: start..start.plus(HOUR_MS), bytes };
        // The range may begin within its first hour.
        let before_ms = self.rest.start.since(start).unwrap_or(0);
        Some(hour.after(before_ms))
    }
}

impl<Hours: Iterator<Item = (EventTime, u64)>> Iterator for Parts<Hours> {
    type Item = Range<EventTime>;

    fn next(&mut self) -> Option<Range<EventTime>> {
        let start = self.rest.start;
        if start >= self.rest.end {
            return None;
        }
        loop {
            self.rest.start = self.end().min(self.rest.end);
            if self.rest.start >= self.first_end {
                return Some(start..self.rest.start);
            }
        }
    }
}

impl Hour {
    fn width_ms(&self) -> u64 {
        self.range.end.since(self.range.start).unwrap_or(0)
    }

    /// Returns what is left of it after some milliseconds.
    fn after(&self, ms: u64) -> Self {
        let ms = ms.min(self.width_ms());
        let before = share(self.bytes, ms, self.width_ms());
        let Range { start, end } = self.range;
        Self { range: start.plus(ms)..end, bytes: self.bytes.saturating_sub(before) }
    }
}

/// Returns `part / whole` of a number.
fn share(number: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(number) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

impl HourlyBytes<'_> {
    /// Notes the next hour of a partition, if it has one.
    fn load(&mut self, index: usize) {
        let cell = self.partitions[index].key().and_then(|key| CellKey::try_from(key).ok());
        if let Some(start) = cell.as_ref().and_then(hourly_counts::start) {
            self.next.push(Reverse((start, index)));
        }
    }
}

impl Iterator for HourlyBytes<'_> {
    type Item = (EventTime, u64);

    fn next(&mut self) -> Option<(EventTime, u64)> {
        let Reverse((start, _)) = *self.next.peek()?;
        let mut bytes = 0_u64;
        while let Some(Reverse((hour, index))) = self.next.peek().copied() {
            if hour > start {
                break;
            }
            self.next.pop();
            let cells = &mut self.partitions[index];
            let cell = cells.value().and_then(Cell::decode);
            bytes = bytes.saturating_add(cell.map_or(0, |cell| cell.bytes.max(0).unsigned_abs()));
            cells.next();
            self.load(index);
        }
        Some((start, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> EventTime {
        EventTime::default().plus(ms)
    }

    /// Divides a range, in minutes, by hours with these bytes, into parts of 100 bytes.
    fn parts(range: Range<u64>, first_end: u64, hours: &[(u64, u64)]) -> Vec<u64> {
        let minutes = |minutes| at(minutes * HOUR_MS / 60);
        let hours = hours.iter().map(|(hour, bytes)| (at(hour * HOUR_MS), *bytes));
        let range = minutes(range.start)..minutes(range.end);
        let parts: Vec<_> = Parts::new(range.clone(), minutes(first_end), 100, hours).collect();
        assert_eq!(parts.first().map(|part| part.start), Some(range.start));
        assert_eq!(parts.last().map(|part| part.end), Some(range.end));
        assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "{parts:?}");
        assert!(parts.iter().all(|part| part.start < part.end), "{parts:?}");
        parts.iter().map(|part| part.end.millis() * 60 / HOUR_MS).collect()
    }

    #[test]
    fn parts_are_consecutive_and_of_similar_size() {
        // Without rows, and with few.
        assert_eq!(parts(0..600, 0, &[]), [600]);
        assert_eq!(parts(0..600, 0, &[(1, 50), (8, 50)]), [600]);
        // Whole hours.
        assert_eq!(parts(0..600, 0, &[(1, 50), (2, 50), (3, 50), (4, 51)]), [180, 298, 600]);
        // An hour with the rows of four parts, and a range that begins and ends within one.
        assert_eq!(parts(0..600, 0, &[(1, 400)]), [75, 90, 105, 600]);
        assert_eq!(parts(90..100, 0, &[(1, 400)]), [100]);
        assert_eq!(parts(75..110, 0, &[(1, 400)]), [90, 105, 110]);
        // The rest of an hour and the beginning of the next.
        assert_eq!(parts(0..600, 0, &[(1, 150), (2, 200)]), [100, 135, 165, 600]);
    }

    #[test]
    fn a_part_has_at_least_a_millisecond() {
        let hours = [(at(0), u64::MAX)];
        let found: Vec<_> = Parts::new(at(5)..at(8), at(0), 100, hours.into_iter()).collect();
        assert_eq!(found, [at(5)..at(6), at(6)..at(7), at(7)..at(8)]);
    }

    #[test]
    fn rows_that_expire_soon_are_in_the_first_part() {
        assert_eq!(parts(0..600, 95, &[(1, 400)]), [105, 600]);
        assert_eq!(parts(0..600, 1_000, &[(1, 400)]), [600]);
    }
}
