//! The regions of an open store, which the writer and readers share, and their storage in `meta`.

use std::sync::Arc;

use attribution::facts::event::EventTime;
use parking_lot::{Mutex, MutexGuard};
use rocksdb::{Direction, IteratorMode, WriteBatch, WriteOptions};

use crate::StoreError;
use crate::clock::now;
use crate::embedded::open::meta::REGION;
use crate::embedded::tables::Tables;
use crate::layout::codec::{Input, event_time};
use crate::layout::hourly_counts::{self, Cell, CellKey, Changes};
use crate::layout::key::Key;
use crate::layout::region::{Flow, Region, RegionSize, Regions};

/// Clones share the same regions.
#[derive(Debug, Clone)]
pub struct SharedRegions(Arc<Mutex<Regions>>);

impl SharedRegions {
    pub fn new(regions: Regions) -> Self {
        Self(Arc::new(Mutex::new(regions)))
    }

    pub fn lock(&self) -> MutexGuard<'_, Regions> {
        self.0.lock()
    }

    pub fn count_reads(&self, key: &Key, rows: u64) {
        let mut regions = self.lock();
        let index = regions.index_of(key);
        if let Some(region) = regions.at_mut(index) {
            region.reads.add(rows, now());
        }
    }

    /// Applies the changes of a batch and puts the changed regions into it. Returns their start keys.
    pub fn apply(&self, changes: &Changes, batch: &mut WriteBatch, tables: &Tables) -> Vec<Key> {
        let mut regions = self.lock();
        let mut changed: Vec<usize> = Vec::new();
        let now = now();
        for (key, change) in changes {
            let index = regions.index_of(&hourly_counts::first_row(key));
            if let Some(region) = regions.at_mut(index) {
                region.size.add(change.cell.rows(), change.cell.bytes);
                region.writes.add(change.written, now);
                changed.push(index);
            }
        }
        // The changes are in key order, so indexes of one region are adjacent.
        changed.dedup();
        let changed: Vec<&Region> = changed.iter().filter_map(|index| regions.at(*index)).collect();
        changed.iter().for_each(|region| put(region, batch, tables));
        changed.iter().map(|region| region.start).collect()
    }

    /// Puts the regions that were read since a time into the batch.
    pub fn put_read(&self, since: EventTime, batch: &mut WriteBatch, tables: &Tables) {
        let regions = self.lock();
        let read = regions.iter().filter(|region| region.reads.as_of() >= since);
        read.for_each(|region| put(region, batch, tables));
    }

    /// Splits those of the changed regions that have grown too large, and merges empty ones.
    pub fn adjust(&self, changed: &[Key], tables: &Tables) -> Result<(), StoreError> {
        for start in changed {
            self.split_while_large(start, tables)?;
        }
        loop {
            let mut batch = WriteBatch::default();
            let mut regions = self.lock();
            let Some(index) = regions.to_merge() else { return Ok(()) };
            if let Some(removed) = regions.merge(index) {
                batch.delete_cf(&tables.meta(), meta_key(&removed));
            }
            regions.at(index - 1).into_iter().for_each(|region| put(region, &mut batch, tables));
            // Unlocked before the write, so that readers do not wait for it.
            drop(regions);
            tables.write(batch, &WriteOptions::default())?;
        }
    }

    fn split_while_large(&self, start: &Key, tables: &Tables) -> Result<(), StoreError> {
        loop {
            let (index, end) = {
                let regions = self.lock();
                let index = regions.index_of(start);
                if !regions.is_too_large(index) {
                    return Ok(());
                }
                (index, regions.end(index))
            };
            // The hourly counts are read without the lock: only this thread changes the boundaries of regions.
            let (first, end) =
                (hourly_counts::cell_at(start), end.as_ref().map(hourly_counts::cell_at));
            let split = split_point(&cells(tables, &first, end.as_ref())?);
            let mut regions = self.lock();
            let Some((at, left)) = split else {
                regions.mark_unsplittable(index);
                return Ok(());
            };
            regions.split(index, at, left);
            let mut batch = WriteBatch::default();
            for half in [index, index + 1] {
                regions.at(half).into_iter().for_each(|region| put(region, &mut batch, tables));
            }
            drop(regions);
            tables.write(batch, &WriteOptions::default())?;
        }
    }
}

/// The hourly counts between two keys.
pub fn cells(
    tables: &Tables,
    first: &CellKey,
    end: Option<&CellKey>,
) -> Result<Vec<(CellKey, Cell)>, StoreError> {
    let mut found = Vec::new();
    let from = IteratorMode::From(first, Direction::Forward);
    for entry in tables.db.iterator_cf(&tables.cells(), from) {
        let (key, value) = entry?;
        let key =
            (*key).try_into().map_err(|_| StoreError::corrupt("the key of an hourly count"))?;
        if end.is_some_and(|end| key >= *end) {
            break;
        }
        let cell = Cell::decode(&value).ok_or_else(|| StoreError::corrupt("an hourly count"))?;
        found.push((key, cell));
    }
    Ok(found)
}

/// The key at which a split divides the bytes best, and the size of the part before it; `None` if all rows are of
/// one hour of an app.
fn split_point(cells: &[(CellKey, Cell)]) -> Option<(Key, RegionSize)> {
    let total = cells.iter().fold(0_i64, |sum, (_, cell)| sum.saturating_add(cell.bytes));
    let mut before = Cell::default();
    let mut best: Option<(i128, Key, RegionSize)> = None;
    for (key, cell) in cells {
        let off = (i128::from(total) - 2 * i128::from(before.bytes)).abs();
        if before.rows() > 0 && best.as_ref().is_none_or(|(best, ..)| off < *best) {
            let mut size = RegionSize::default();
            size.add(before.rows(), before.bytes);
            best = Some((off, hourly_counts::first_row(key), size));
        }
        before.add(cell);
    }
    best.map(|(_, key, size)| (key, size))
}

/// The stored regions; empty in a new store.
pub fn load(tables: &Tables) -> Result<Vec<Region>, StoreError> {
    let mut regions = Vec::new();
    for (name, value) in tables.meta_entries(REGION)? {
        let damage = || StoreError::corrupt("a region");
        let start = name.as_slice().try_into().map_err(|_| damage())?;
        regions.push(decode(start, &value).ok_or_else(damage)?);
    }
    Ok(regions)
}

/// Replaces all stored regions.
pub fn replace(
    regions: &Regions,
    batch: &mut WriteBatch,
    tables: &Tables,
) -> Result<(), StoreError> {
    for (name, _) in tables.meta_entries(REGION)? {
        batch.delete_cf(&tables.meta(), [REGION, &name].concat());
    }
    regions.iter().for_each(|region| put(region, batch, tables));
    Ok(())
}

fn put(region: &Region, batch: &mut WriteBatch, tables: &Tables) {
    let mut value = Vec::with_capacity(64);
    let RegionSize { rows, bytes } = region.size;
    value.extend([rows, bytes].iter().flat_map(|number| number.to_be_bytes()));
    for flow in [&region.writes, &region.reads] {
        let rate = flow.per_second(flow.as_of()).to_bits();
        let numbers = [flow.total, rate, flow.as_of().millis()];
        value.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    }
    batch.put_cf(&tables.meta(), meta_key(&region.start), value);
}

pub fn decode(start: Key, value: &[u8]) -> Option<Region> {
    let mut input = Input::new(value);
    let mut number = || input.u64().ok();
    let mut region = Region::new(start);
    region.size = RegionSize { rows: number()?, bytes: number()? };
    for flow in [&mut region.writes, &mut region.reads] {
        let (total, rate) = (number()?, f64::from_bits(number()?));
        let as_of = event_time(number()?)?;
        *flow = Flow::new(total, rate, as_of);
    }
    input.end().ok()?;
    Some(region)
}

fn meta_key(start: &Key) -> Vec<u8> {
    [REGION, start].concat()
}
