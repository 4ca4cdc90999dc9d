//! Reads an app's rows between two times, in key order, from a snapshot of the engine.

use std::cmp::Ordering;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use attribution::facts::event::{EventTime, Pid};
use attribution::facts::keys::FactKey;
use attribution::ledger::Facts;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::record::FactRecord;
use attribution::rules::expiry::ExpiryFloor;
use attribution::rules::policy::{AppPolicy, Policy};
use rocksdb::{ReadOptions, SnapshotWithThreadMode};

use super::index;
use crate::StoreError;
use crate::apps::names::Names;
use crate::apps::record::{App, Apps};
use crate::embedded::db::{Db, RawIterator};
use crate::embedded::open::meta;
use crate::embedded::outbox::{CommitInFlight, EmbeddedOutbox};
use crate::embedded::tables::Tables;
use crate::embedded::touches::filter::FilterView;
use crate::embedded::write::regions::SharedRegions;
use crate::expiry::Expiry;
use crate::expiry::retention::Retention;
use crate::layout::key::{self, Key, RowKey};
use crate::layout::region::Regions;

/// The reading side of a store; cheap to clone, for any number of threads.
#[derive(Debug, Clone)]
pub struct EmbeddedReader {
    pub(in crate::embedded) tables: Tables,
    pub(in crate::embedded) partitions: u16,
    pub(in crate::embedded) apps: Apps,
    pub(in crate::embedded) retention: Retention,
    pub(in crate::embedded) expiry: Expiry,
    pub(in crate::embedded) regions: SharedRegions,
    pub(in crate::embedded) outbox: CommitInFlight,
}

/// Read-ahead of a scan, divided among its partitions.
const READ_AHEAD_BYTES: usize = 2 << 20;
/// With a smaller share per partition, RocksDB's automatic read-ahead is used.
const READ_AHEAD_BYTES_MIN: usize = 64 << 10;
/// Reads are added to the region's statistics in batches of this size.
const READS_PER_COUNT: u64 = 4_096;

impl EmbeddedReader {
    /// Takes a snapshot of all rows.
    pub fn view(&self) -> EmbeddedView<'_> {
        // The snapshot is taken before the fanouts are read: a fanout is raised before the first row is written with
        // it.
        EmbeddedView { snapshot: self.tables.db.snapshot(), reader: self }
    }

    /// A copy of the present regions.
    pub fn regions(&self) -> Regions {
        self.regions.lock().clone()
    }

    /// The outbox. It can be changed if the reader is one of the writing process.
    pub fn outbox(&self) -> EmbeddedOutbox {
        EmbeddedOutbox::new(self.tables.clone(), self.outbox.clone())
    }

    /// See [`crate::reader::Reader::current_rows`].
    pub fn current_rows(
        &self,
        events: &[(FactKey, FactRecord)],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let key = |(event, record): &(FactKey, FactRecord)| {
            let app = self.apps.of(event.pid)?;
            key::current_row(event, record, app.base, self.partitions)
        };
        let keys: Vec<Option<Key>> = events.iter().map(key).collect();
        let table = self.tables.events();
        let read = |key: Option<Key>| -> Result<Option<Vec<u8>>, StoreError> {
            match key {
                Some(key) => Ok(self.tables.db.get_cf(&table, key)?),
                None => Ok(None),
            }
        };
        keys.into_iter().map(read).collect()
    }

    pub(crate) fn names(&self) -> Result<Names, StoreError> {
        meta::names(&self.tables)
    }

    /// See [`crate::reader::Reader::store_app_keys`].
    pub(crate) fn store_app_keys(&self, policy: &Policy) -> Result<(), StoreError> {
        meta::put_names(&self.tables, policy)
    }

    /// All apps that the store knows.
    pub fn apps(&self) -> BTreeMap<Pid, App> {
        self.apps.all()
    }

    pub(super) fn app(&self, app: &AppPolicy) -> App {
        let stored = self.apps.of(app.pid);
        stored.unwrap_or_else(|| App::new(key::partition(&app.key, self.partitions)))
    }
}

/// A snapshot of the rows.
pub struct EmbeddedView<'r> {
    pub(super) reader: &'r EmbeddedReader,
    pub(super) snapshot: SnapshotWithThreadMode<'r, Db>,
}

impl EmbeddedView<'_> {
    /// See [`crate::reader::View::rows`] and [`crate::reader::View::rows_newest_first`].
    pub fn rows(
        &self,
        order: Order,
        app: &AppPolicy,
        range: Range<EventTime>,
        after: Option<RowKey>,
    ) -> Result<EmbeddedRows<'_>, StoreError> {
        let reader = self.reader;
        let from = range.start.max(reader.retention.oldest(app.pid));
        let mut rows =
            EmbeddedRows { partitions: BinaryHeap::new(), failure: None, regions: &reader.regions };
        let stored = reader.app(app);
        let count = stored.partitions(reader.partitions).count().max(1);
        for partition in stored.partitions(reader.partitions) {
            let mut first = key::row_from(partition, app.pid, from);
            if let Some(after) = after {
                let after = RowKey { partition, pid: app.pid, ..after }.encode();
                let Some(next) = key::next(&after) else { continue };
                first = first.max(next);
            }
            let end = key::row_from(partition, app.pid, range.end);
            let read_ahead_bytes = READ_AHEAD_BYTES / count;
            rows.partitions.extend(self.partition_rows(order, first, end, read_ahead_bytes)?);
        }
        Ok(rows)
    }

    /// The rows of a key range within one partition; `None` if it has none.
    fn partition_rows(
        &self,
        order: Order,
        first: Key,
        end: Key,
        read_ahead_bytes: usize,
    ) -> Result<Option<PartitionRows<'_>>, StoreError> {
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
        // An export reads each block once; caching them would evict the blocks that lookups need.
        options.fill_cache(false);
        let mut rows = self.snapshot.raw_iterator_cf_opt(&self.reader.tables.events(), options);
        match order {
            Order::OldestFirst => rows.seek(first),
            Order::NewestFirst => rows.seek_to_last(),
        }
        let mut partition = PartitionRows { rows, order, key: first, uncounted: 0 };
        Ok(partition.load_key()?.then_some(partition))
    }
}

/// The order of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    OldestFirst,
    NewestFirst,
}

/// An iterator over rows of an app, merged from its partitions.
pub struct EmbeddedRows<'v> {
    /// Ordered by their current rows; partitions without further rows are removed.
    partitions: BinaryHeap<PartitionRows<'v>>,
    failure: Option<StoreError>,
    regions: &'v SharedRegions,
}

/// The rows of an app in one partition.
struct PartitionRows<'v> {
    rows: RawIterator<'v>,
    /// The same for all partitions of a scan.
    order: Order,
    /// The key of the current row.
    key: Key,
    /// Rows that were read and are not in the region's statistics yet.
    uncounted: u64,
}

impl EmbeddedRows<'_> {
    /// The row at the iterator's position; `None` after the last.
    #[inline]
    pub fn current(&mut self) -> Result<Option<(RowKey, &[u8])>, StoreError> {
        if let Some(failure) = self.failure.take() {
            // No row follows an error.
            self.partitions.clear();
            return Err(failure);
        }
        let Some(partition) = self.partitions.peek() else { return Ok(None) };
        let key =
            RowKey::decode(&partition.key).ok_or_else(|| StoreError::corrupt("a row's key"))?;
        Ok(Some((key, partition.rows.value().unwrap_or_default())))
    }

    /// Moves to the next row.
    #[inline]
    pub fn advance(&mut self) {
        let Some(mut partition) = self.partitions.peek_mut() else { return };
        partition.uncounted += 1;
        if partition.uncounted == READS_PER_COUNT {
            partition.count(self.regions);
        }
        match partition.order {
            Order::OldestFirst => partition.rows.next(),
            Order::NewestFirst => partition.rows.prev(),
        }
        match partition.load_key() {
            Ok(true) => {}
            Ok(false) => PeekMut::pop(partition).count(self.regions),
            Err(failure) => self.failure = Some(failure),
        }
    }
}

impl Drop for EmbeddedRows<'_> {
    fn drop(&mut self) {
        self.partitions.drain().for_each(|mut partition| partition.count(self.regions));
    }
}

impl PartitionRows<'_> {
    /// Copies the key of the current row; returns false after the last row.
    #[inline]
    fn load_key(&mut self) -> Result<bool, StoreError> {
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

    /// Adds the rows that were read to the statistics of the region of the last one.
    fn count(&mut self, regions: &SharedRegions) {
        if self.uncounted > 0 {
            regions.count_reads(&self.key, self.uncounted);
            self.uncounted = 0;
        }
    }
}

impl Ord for PartitionRows<'_> {
    /// The heap's maximum is the next row. Compares the key without its partition, then the partition.
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

impl PartialOrd for PartitionRows<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PartitionRows<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PartitionRows<'_> {}

impl Facts for EmbeddedReader {
    type Error = StoreError;

    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        self.tables.records(keys)
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        index::scan(&self.tables, [], &FilterView::default(), scans)
    }

    fn consumed_until(&self) -> Option<EventTime> {
        self.expiry.until().get()
    }

    fn expiry_floor(&self, pid: Pid) -> ExpiryFloor {
        self.expiry.floor(pid)
    }
}
