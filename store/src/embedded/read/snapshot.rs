//! Reads an app's rows between two times, in key order, from one snapshot of the engine.

use std::cmp::Ordering;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};

use attribution::facts::event::{EventTime, Pid};
use attribution::facts::keys::FactKey;
use attribution::ledger::Facts;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::record::FactRecord;
use attribution::rules::expiry::ExpiryFloor;
use attribution::rules::policy::AppPolicy;
use rocksdb::{DB, DBRawIterator, ReadOptions, SnapshotWithThreadMode};

use super::index;
use crate::StoreError;
use crate::apps::names::Names;
use crate::apps::spread::{App, Apps};
use crate::embedded::open::meta;
use crate::embedded::tables::Tables;
use crate::embedded::write::pending::Pending;
use crate::embedded::write::regions::SharedRegions;
use crate::expiry::Expiry;
use crate::expiry::retention::Retention;
use crate::layout::key::{self, Key, RowKey};
use crate::layout::region::Regions;

/// The reading side of a store; cheap to clone, for any number of threads.
#[derive(Clone)]
pub struct Reader {
    pub(in crate::embedded) tables: Tables,
    pub(in crate::embedded) partitions: u16,
    pub(in crate::embedded) apps: Apps,
    pub(in crate::embedded) retention: Retention,
    pub(in crate::embedded) expiry: Expiry,
    pub(in crate::embedded) regions: SharedRegions,
}

/// Bytes that RocksDB reads ahead of a scan, of all its parts together.
const READ_AHEAD_BYTES: usize = 2 << 20;
/// Of a part that has less RocksDB reads ahead as it sees fit.
const READ_AHEAD_BYTES_MIN: usize = 64 << 10;
/// Rows that are read before they are counted for their region.
const COUNTED_ROWS: u64 = 4_096;

impl Reader {
    /// All rows as they are now, whatever is written meanwhile.
    pub fn view(&self) -> View<'_> {
        // The snapshot first: an app is spread further before its first row there is written.
        View { snapshot: self.tables.db.snapshot(), reader: self }
    }

    /// As they are now.
    pub fn regions(&self) -> Regions {
        self.regions.lock().clone()
    }

    pub(crate) fn names(&self) -> Result<Names, StoreError> {
        meta::names(&self.tables)
    }

    /// All apps that the store knows.
    pub fn apps(&self) -> BTreeMap<Pid, App> {
        self.apps.all()
    }

    fn app(&self, app: &AppPolicy) -> App {
        let kept = self.apps.of(app.pid);
        kept.unwrap_or_else(|| App::new(key::partition(&app.key, self.partitions)))
    }
}

/// The rows of one moment.
pub struct View<'r> {
    pub(super) reader: &'r Reader,
    pub(super) snapshot: SnapshotWithThreadMode<'r, DB>,
}

impl View<'_> {
    /// As [`crate::reader::View::rows`].
    pub fn rows(
        &self,
        app: &AppPolicy,
        (from, to): (EventTime, EventTime),
        after: Option<RowKey>,
    ) -> Result<Rows<'_>, StoreError> {
        self.rows_in(Order::OldestFirst, app, (from, to), after)
    }

    /// As [`crate::reader::View::rows_newest_first`].
    pub fn rows_newest_first(
        &self,
        app: &AppPolicy,
        range: (EventTime, EventTime),
    ) -> Result<Rows<'_>, StoreError> {
        self.rows_in(Order::NewestFirst, app, range, None)
    }

    fn rows_in(
        &self,
        order: Order,
        app: &AppPolicy,
        (from, to): (EventTime, EventTime),
        after: Option<RowKey>,
    ) -> Result<Rows<'_>, StoreError> {
        let reader = self.reader;
        let from = from.max(reader.retention.oldest(app.pid));
        let mut rows = Rows { parts: BinaryHeap::new(), failure: None, regions: &reader.regions };
        let app_rows = reader.app(app);
        let parts = app_rows.partitions(reader.partitions).count().max(1);
        for partition in app_rows.partitions(reader.partitions) {
            let mut first = key::row_from(partition, app.pid, from);
            if let Some(after) = after {
                let after = RowKey { partition, pid: app.pid, ..after }.encode();
                let Some(next) = key::next(&after) else { continue };
                first = first.max(next);
            }
            let end = key::row_from(partition, app.pid, to);
            rows.parts.extend(self.part(order, (first, end), READ_AHEAD_BYTES / parts)?);
        }
        Ok(rows)
    }

    /// The rows of one partition, unless there are none.
    fn part(
        &self,
        order: Order,
        (first, end): (Key, Key),
        read_ahead_bytes: usize,
    ) -> Result<Option<Part<'_>>, StoreError> {
        if end <= first {
            return Ok(None);
        }
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(first);
        options.set_iterate_upper_bound(end);
        if read_ahead_bytes >= READ_AHEAD_BYTES_MIN {
            options.set_readahead_size(read_ahead_bytes);
        }
        options.set_async_io(false);
        // Blocks of an export are read once: they would only push out what look-ups need.
        options.fill_cache(false);
        let mut rows = self.snapshot.raw_iterator_cf_opt(self.reader.tables.events(), options);
        match order {
            Order::OldestFirst => rows.seek(first),
            Order::NewestFirst => rows.seek_to_last(),
        }
        let mut part = Part { rows, order, key: first, read: 0 };
        Ok(part.settle()?.then_some(part))
    }
}

/// Which way rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    OldestFirst,
    NewestFirst,
}

/// A place among the rows of an app: of the next rows of its parts, that which comes first.
pub struct Rows<'v> {
    /// The one with the next row at the top; each has a row.
    parts: BinaryHeap<Part<'v>>,
    failure: Option<StoreError>,
    regions: &'v SharedRegions,
}

/// The rows of an app in one partition.
struct Part<'v> {
    rows: DBRawIterator<'v>,
    /// That of all parts.
    order: Order,
    /// Of its present row.
    key: Key,
    /// Rows that are not counted yet.
    read: u64,
}

impl Rows<'_> {
    /// The row at this place; `None` after the last.
    #[inline]
    pub fn current(&mut self) -> Result<Option<(RowKey, &[u8])>, StoreError> {
        if let Some(failure) = self.failure.take() {
            // Nothing follows it.
            self.parts.clear();
            return Err(failure);
        }
        let Some(part) = self.parts.peek() else { return Ok(None) };
        let key = RowKey::decode(&part.key).ok_or_else(|| StoreError::corrupt("a row's key"))?;
        Ok(Some((key, part.rows.value().unwrap_or_default())))
    }

    /// To the next row.
    #[inline]
    pub fn advance(&mut self) {
        let Some(mut part) = self.parts.peek_mut() else { return };
        part.read += 1;
        if part.read == COUNTED_ROWS {
            part.count(self.regions);
        }
        match part.order {
            Order::OldestFirst => part.rows.next(),
            Order::NewestFirst => part.rows.prev(),
        }
        match part.settle() {
            Ok(true) => {}
            Ok(false) => PeekMut::pop(part).count(self.regions),
            Err(failure) => self.failure = Some(failure),
        }
    }
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        self.parts.drain().for_each(|mut part| part.count(self.regions));
    }
}

impl Part<'_> {
    /// Takes the key of the row that it stands at; false after the last.
    #[inline]
    fn settle(&mut self) -> Result<bool, StoreError> {
        match self.rows.key() {
            Some(key) => {
                self.key = key.try_into().map_err(|_| StoreError::corrupt("a row's key"))?;
                Ok(true)
            }
            None => {
                self.rows.status()?;
                Ok(false)
            }
        }
    }

    /// Counts what was read, for the region where it was read last.
    fn count(&mut self, regions: &SharedRegions) {
        if self.read > 0 {
            regions.count_reads(&self.key, self.read);
            self.read = 0;
        }
    }
}

impl Ord for Part<'_> {
    /// The next is the greatest, as the heap wants it. By what follows the partition first.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        let (partition, rest) = self.key.split_at(2);
        let (other_partition, other_rest) = other.key.split_at(2);
        let forward = rest.cmp(other_rest).then_with(|| partition.cmp(other_partition));
        match self.order {
            Order::OldestFirst => forward.reverse(),
            Order::NewestFirst => forward,
        }
    }
}

impl PartialOrd for Part<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Part<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Part<'_> {}

impl Facts for Reader {
    type Error = StoreError;

    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        let mut records = vec![None; keys.len()];
        let wanted: Vec<(usize, FactKey)> = keys.iter().copied().enumerate().collect();
        self.tables.records(&wanted, &mut records)?;
        Ok(records)
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        index::scan(&self.tables, &Pending::default(), scans)
    }

    fn consumed_until(&self) -> Option<EventTime> {
        self.expiry.until().get()
    }

    fn held(&self, pid: Pid) -> ExpiryFloor {
        self.expiry.held(pid)
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Reader").field("path", &self.tables.db.path()).finish_non_exhaustive()
    }
}
