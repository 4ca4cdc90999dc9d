//! Regions: contiguous ranges of row keys with statistics of their own.
//!
//! The key space is divided into a few fixed ranges of partitions. Within each, a region is split when it exceeds a
//! limit that grows with the number of regions, and empty ones are merged. Regions are statistics only: no row is
//! moved, and no read depends on them. The caller chooses the split point from [`super::hourly_counts`]; this module
//! does no IO.

use attribution::facts::event::EventTime;

use super::key::{KEY_BYTES, Key};

/// A region ends where the next one begins.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Region {
    pub start: Key,
    /// True if the region begins a fixed range of partitions; such a region is never merged into the one before it.
    is_first_of_range: bool,
    pub size: RegionSize,
    pub writes: Flow,
    pub reads: Flow,
    /// The size at which no split point was found.
    unsplittable_bytes: u64,
}

/// The present size of a region.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegionSize {
    pub rows: u64,
    /// Size of keys and values, before compression.
    pub bytes: u64,
}

/// Rows that were written or read: their total, and their recent rate.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Flow {
    pub total: u64,
    per_second: f64,
    as_of: EventTime,
}

/// Time constant of the exponentially weighted rates.
const RATE_MS: f64 = 60_000.0;

/// Ranges of partitions that are never merged.
const RANGES: u32 = 8;
/// The first region of a range is split at this fraction (1/64) of the maximum size.
const FIRST_LIMIT_DIVISOR: u64 = 64;

/// The ratio of the greatest figure to the mean; 1 if all are 0.
pub fn skew(figures: impl Iterator<Item = f64> + Clone) -> f64 {
    let largest = figures.clone().fold(0.0, f64::max);
    let sum: f64 = figures.clone().sum();
    if sum > 0.0 { largest * figures.count() as f64 / sum } else { 1.0 }
}

/// All regions of a table, in the order of their keys.
#[derive(Debug, Clone)]
pub struct Regions {
    regions: Vec<Region>,
    bytes_max: u64,
}

impl RegionSize {
    pub fn add(&mut self, rows: i64, bytes: i64) {
        self.rows = self.rows.saturating_add_signed(rows);
        self.bytes = self.bytes.saturating_add_signed(bytes);
    }

    fn plus(self, other: Self) -> Self {
        Self {
            rows: self.rows.saturating_add(other.rows),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            rows: self.rows.saturating_sub(other.rows),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

impl Flow {
    pub fn new(total: u64, per_second: f64, as_of: EventTime) -> Self {
        Self { total, per_second, as_of }
    }

    pub fn add(&mut self, rows: u64, now: EventTime) {
        self.per_second = self.per_second(now) + rows as f64 / (RATE_MS / 1e3);
        self.total = self.total.saturating_add(rows);
        // Also if the clock was set back: otherwise the old rate would not decay until that time is reached again.
        self.as_of = now;
    }

    /// Rows per second at a time. The rate decays while no rows are added.
    pub fn per_second(&self, now: EventTime) -> f64 {
        let passed_ms = now.millis().saturating_sub(self.as_of.millis());
        self.per_second * (-(passed_ms as f64) / RATE_MS).exp()
    }

    pub fn as_of(&self) -> EventTime {
        self.as_of
    }

    /// The share of a split region, in proportion to its size.
    fn scaled(&self, fraction: f64) -> Self {
        let total = (self.total as f64 * fraction).round() as u64;
        Self { total, per_second: self.per_second * fraction, as_of: self.as_of }
    }

    fn plus(self, other: Self) -> Self {
        let as_of = self.as_of.max(other.as_of);
        let per_second = self.per_second(as_of) + other.per_second(as_of);
        Self { total: self.total.saturating_add(other.total), per_second, as_of }
    }
}

impl Region {
    pub fn new(start: Key) -> Self {
        Self { start, ..Self::default() }
    }
}

impl Regions {
    /// The regions of an empty store.
    pub fn new(partitions: u16, bytes_max: u64) -> Self {
        let first = |start| Region { is_first_of_range: true, ..Region::new(start) };
        Self { regions: range_starts(partitions).map(first).collect(), bytes_max }
    }

    /// The stored regions of a store; `None` if they do not cover its key space.
    pub fn of(partitions: u16, bytes_max: u64, mut stored: Vec<Region>) -> Option<Self> {
        stored.sort_by_key(|region| region.start);
        let starts: Vec<Key> = range_starts(partitions).collect();
        for region in &mut stored {
            region.is_first_of_range = starts.binary_search(&region.start).is_ok();
        }
        let found = stored.iter().filter(|region| region.is_first_of_range).count();
        let is_complete =
            found == starts.len() && stored.first().is_some_and(|r| r.start == starts[0]);
        is_complete.then_some(Self { regions: stored, bytes_max })
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Region> {
        self.regions.iter()
    }

    /// The index of the region that contains a key.
    pub fn index_of(&self, key: &Key) -> usize {
        self.regions.partition_point(|region| region.start <= *key).saturating_sub(1)
    }

    pub fn at(&self, index: usize) -> Option<&Region> {
        self.regions.get(index)
    }

    pub fn at_mut(&mut self, index: usize) -> Option<&mut Region> {
        self.regions.get_mut(index)
    }

    /// The exclusive end of a region; `None` for the last one.
    pub fn end(&self, index: usize) -> Option<Key> {
        self.regions.get(index + 1).map(|next| next.start)
    }

    /// True if a region exceeds its limit. After no split point was found, it is false until the size has changed by a
    /// quarter.
    pub fn is_too_large(&self, index: usize) -> bool {
        self.regions.get(index).is_some_and(|region| {
            let bytes = region.size.bytes;
            bytes > self.limit(index)
                && bytes.abs_diff(region.unsplittable_bytes) > region.unsplittable_bytes / 4
        })
    }

    /// Records that a region has no split point at its present size.
    pub fn mark_unsplittable(&mut self, index: usize) {
        if let Some(region) = self.regions.get_mut(index) {
            region.unsplittable_bytes = region.size.bytes;
        }
    }

    /// Splits a region at a key within it; `left` is the size of the part before the key.
    pub fn split(&mut self, index: usize, at: Key, left: RegionSize) {
        let Some(region) = self.regions.get_mut(index) else { return };
        let mut right = Region::new(at);
        right.size = region.size.minus(left);
        let fraction = right.size.bytes as f64 / region.size.bytes.max(1) as f64;
        right.writes = region.writes.scaled(fraction);
        right.reads = region.reads.scaled(fraction);
        region.writes = region.writes.scaled(1.0 - fraction);
        region.reads = region.reads.scaled(1.0 - fraction);
        region.size = left;
        self.regions.insert(index + 1, right);
    }

    /// The index of a region to merge into the one before it, because one of the two is empty; `None` if there is none.
    pub fn to_merge(&self) -> Option<usize> {
        (1..self.regions.len()).find(|index| {
            let (before, region) = (&self.regions[index - 1], &self.regions[*index]);
            let is_empty = before.size.rows == 0 || region.size.rows == 0;
            !region.is_first_of_range && is_empty
        })
    }

    /// Merges a region into the one before it and returns the start key that is removed.
    pub fn merge(&mut self, index: usize) -> Option<Key> {
        if index == 0 || index >= self.regions.len() {
            return None;
        }
        let removed = self.regions.remove(index);
        let region = &mut self.regions[index - 1];
        region.size = region.size.plus(removed.size);
        region.writes = region.writes.plus(removed.writes);
        region.reads = region.reads.plus(removed.reads);
        region.unsplittable_bytes = 0;
        Some(removed.start)
    }

    /// [`skew`] of a figure over all regions.
    pub fn skew(&self, figure: impl Fn(&Region) -> f64 + Clone) -> f64 {
        skew(self.regions.iter().map(figure))
    }

    /// The size at which a region is split, as in HBase: it grows with the cube of the number of regions of the range,
    /// up to the maximum. So a small table has few regions, and a growing one is divided early.
    fn limit(&self, index: usize) -> u64 {
        let is_of_range = |region: &&Region| !region.is_first_of_range;
        let (before, after) = self.regions.split_at((index + 1).min(self.regions.len()));
        let siblings = 1
            + before.iter().rev().take_while(is_of_range).count()
            + after.iter().take_while(is_of_range).count();
        let first = self.bytes_max / FIRST_LIMIT_DIVISOR;
        first.saturating_mul(u64::saturating_pow(siblings as u64, 3)).min(self.bytes_max)
    }
}

/// The start keys of the fixed ranges of partitions.
fn range_starts(partitions: u16) -> impl Iterator<Item = Key> {
    let partitions = u32::from(partitions.max(1));
    let ranges = RANGES.min(partitions);
    (0..ranges).map(move |range| {
        let mut start = [0; KEY_BYTES];
        let partition = (range * partitions / ranges) as u16;
        start[..2].copy_from_slice(&partition.to_be_bytes());
        start
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_stays_correct_when_the_clock_is_set_back() {
        let at = |seconds: u64| EventTime::default().plus(1_800_000_000_000 + seconds * 1_000);
        let mut flow = Flow::default();
        let write = |flow: &mut Flow, from: u64| {
            (from..from + 600).for_each(|second| flow.add(20, at(second)));
            flow.per_second(at(from + 600))
        };
        assert!((write(&mut flow, 10_000) - 20.0).abs() < 1.0);
        assert!(
            (write(&mut flow, 6_400) - 20.0).abs() < 1.0,
            "after the clock was set back by an hour: {flow:?}"
        );
        assert!(
            (write(&mut flow, 10_000) - 20.0).abs() < 1.0,
            "after the clock was corrected: {flow:?}"
        );
    }
}
