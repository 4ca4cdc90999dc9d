//! Regions: contiguous ranges of row keys with statistics of their own.
//!
//! The keys are cut into a few ranges of partitions when a store is created, for good. Within
//! each, a region is split where it has grown past a bound that grows with the number of regions,
//! and empty ones are merged. Nothing is moved by that: a region is a figure to look at, and what
//! is read never depends on it. Where to split is for the caller to say, who knows the cells
//! ([`super::hourly_counts`]); nothing here reads or writes.

use attribution::facts::event::EventTime;

use super::key::{KEY_BYTES, Key};

/// One region. It ends where the next one begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Region {
    pub start: Key,
    /// Whether its start is one of the store's first cuts.
    is_first_of_range: bool,
    pub figures: Figures,
    pub writes: Flow,
    pub reads: Flow,
    /// The bytes at which it was found to have no place to be split.
    whole_at: u64,
}

/// What there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    pub rows: u64,
    /// Of keys and values, before compression.
    pub bytes: u64,
}

/// Rows that came by: how many ever, and how many a second of late.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Flow {
    pub total: u64,
    per_second: f64,
    as_of: EventTime,
}

/// Over so long rates are means.
const RATE_MS: f64 = 60_000.0;

/// Ranges of partitions that are never merged.
const RANGES: u32 = 8;
/// A range's first region is split at this part of the greatest bound.
const FIRST_PART: u64 = 64;

/// The greatest of all figures against their mean; 1 where all are nothing.
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

impl Figures {
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
        // Where the clock was set back, as of then: what came before does not stay for ever.
        self.as_of = now;
    }

    /// Rows a second, as of a time; it fades while nothing comes.
    pub fn per_second(&self, now: EventTime) -> f64 {
        let passed_ms = now.millis().saturating_sub(self.as_of.millis());
        self.per_second * (-(passed_ms as f64) / RATE_MS).exp()
    }

    pub fn as_of(&self) -> EventTime {
        self.as_of
    }

    /// One of the halves of a split: where the rows are, the others are expected.
    fn part(&self, part: f64) -> Self {
        let total = (self.total as f64 * part).round() as u64;
        Self { total, per_second: self.per_second * part, as_of: self.as_of }
    }

    fn plus(self, other: Self) -> Self {
        let as_of = self.as_of.max(other.as_of);
        let per_second = self.per_second(as_of) + other.per_second(as_of);
        Self { total: self.total.saturating_add(other.total), per_second, as_of }
    }
}

impl Region {
    pub fn new(start: Key) -> Self {
        Self {
            start,
            is_first_of_range: false,
            figures: Figures::default(),
            writes: Flow::default(),
            reads: Flow::default(),
            whole_at: 0,
        }
    }
}

impl Regions {
    /// Of an empty store.
    pub fn new(partitions: u16, bytes_max: u64) -> Self {
        let first = |start| Region { is_first_of_range: true, ..Region::new(start) };
        Self { regions: first_cuts(partitions).map(first).collect(), bytes_max }
    }

    /// As they were kept; `None` if these are not the regions of such a store.
    pub fn of(partitions: u16, bytes_max: u64, mut kept: Vec<Region>) -> Option<Self> {
        kept.sort_by_key(|region| region.start);
        let cuts: Vec<Key> = first_cuts(partitions).collect();
        for region in &mut kept {
            region.is_first_of_range = cuts.binary_search(&region.start).is_ok();
        }
        let found = kept.iter().filter(|region| region.is_first_of_range).count();
        let is_whole = found == cuts.len() && kept.first().is_some_and(|r| r.start == cuts[0]);
        is_whole.then_some(Self { regions: kept, bytes_max })
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Region> {
        self.regions.iter()
    }

    /// The region of a key.
    pub fn place(&self, key: &Key) -> usize {
        self.regions.partition_point(|region| region.start <= *key).saturating_sub(1)
    }

    pub fn at(&self, place: usize) -> Option<&Region> {
        self.regions.get(place)
    }

    pub fn at_mut(&mut self, place: usize) -> Option<&mut Region> {
        self.regions.get_mut(place)
    }

    /// Where a region ends, exclusive; `None` after the last.
    pub fn end(&self, place: usize) -> Option<Key> {
        self.regions.get(place + 1).map(|next| next.start)
    }

    /// Whether it has grown past its bound. One that could not be split is looked at again when
    /// it is another by a quarter.
    pub fn is_too_large(&self, place: usize) -> bool {
        self.regions.get(place).is_some_and(|region| {
            let bytes = region.figures.bytes;
            bytes > self.bound(place) && bytes.abs_diff(region.whole_at) > region.whole_at / 4
        })
    }

    /// It has no place to be split for now.
    pub fn leave_whole(&mut self, place: usize) {
        if let Some(region) = self.regions.get_mut(place) {
            region.whole_at = region.figures.bytes;
        }
    }

    /// Splits a region at a key within it; `left` is what stands before the key.
    pub fn split(&mut self, place: usize, at: Key, left: Figures) {
        let Some(region) = self.regions.get_mut(place) else { return };
        let mut right = Region::new(at);
        right.figures = region.figures.minus(left);
        let part = right.figures.bytes as f64 / region.figures.bytes.max(1) as f64;
        (right.writes, right.reads) = (region.writes.part(part), region.reads.part(part));
        region.writes = region.writes.part(1.0 - part);
        region.reads = region.reads.part(1.0 - part);
        region.figures = left;
        self.regions.insert(place + 1, right);
    }

    /// A region that is to become one with the region before it, if there is one: where one of
    /// them is empty.
    pub fn to_merge(&self) -> Option<usize> {
        (1..self.regions.len()).find(|place| {
            let (before, region) = (&self.regions[place - 1], &self.regions[*place]);
            let is_empty = before.figures.rows == 0 || region.figures.rows == 0;
            !region.is_first_of_range && is_empty
        })
    }

    /// Makes a region one with the one before it, and gives the start that is no more.
    pub fn merge(&mut self, place: usize) -> Option<Key> {
        if place == 0 || place >= self.regions.len() {
            return None;
        }
        let gone = self.regions.remove(place);
        let region = &mut self.regions[place - 1];
        region.figures = region.figures.plus(gone.figures);
        region.writes = region.writes.plus(gone.writes);
        region.reads = region.reads.plus(gone.reads);
        region.whole_at = 0;
        Some(gone.start)
    }

    /// The greatest figure of any region against the mean of all; 1 where all are nothing.
    pub fn skew(&self, figure: impl Fn(&Region) -> f64 + Clone) -> f64 {
        skew(self.regions.iter().map(figure))
    }

    /// As HBase does: the bound grows with the cube of the number of regions beside it, up to the
    /// greatest. So a small table has few regions, and a growing one is soon in several.
    fn bound(&self, place: usize) -> u64 {
        let mut siblings = 1;
        for region in self.regions.get(place + 1..).unwrap_or_default() {
            if region.is_first_of_range {
                break;
            }
            siblings += 1;
        }
        for region in self.regions.get(..=place).unwrap_or_default().iter().rev() {
            if region.is_first_of_range {
                break;
            }
            siblings += 1;
        }
        let first = self.bytes_max / FIRST_PART;
        first.saturating_mul(u64::saturating_pow(siblings, 3)).min(self.bytes_max)
    }
}

/// Where the ranges of partitions begin.
fn first_cuts(partitions: u16) -> impl Iterator<Item = Key> {
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
    fn a_rate_survives_a_clock_that_steps_back() {
        let at = |seconds: u64| EventTime::default().plus(1_800_000_000_000 + seconds * 1_000);
        let mut flow = Flow::default();
        let write = |flow: &mut Flow, from: u64| {
            (from..from + 600).for_each(|second| flow.add(20, at(second)));
            flow.per_second(at(from + 600))
        };
        assert!((write(&mut flow, 10_000) - 20.0).abs() < 1.0);
        assert!((write(&mut flow, 6_400) - 20.0).abs() < 1.0, "an hour back: {flow:?}");
        assert!((write(&mut flow, 10_000) - 20.0).abs() < 1.0, "and on again: {flow:?}");
    }
}
