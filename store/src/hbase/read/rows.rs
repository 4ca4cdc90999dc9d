//! An app's rows in the order of an export, merged from all its partitions.
//!
//! An HBase scanner sees one moment of one region. When another scanner continues, after a fault or in the next region,
//! a corrected row may meanwhile have moved to a key that was already passed, within its millisecond. Such a
//! millisecond is read again until a single scanner returns all of it, or two consecutive reads are equal.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use attribution::facts::event::{EventTime, Pid};
use hbase_client::{Scan, Selection};

use super::latest_revision::keep_latest;
use crate::StoreError;
use crate::hbase::cluster::{Cluster, FAMILY};
use crate::hbase::ledger::cells::{Table, VALUE};
use crate::hbase::schema::tables;
use crate::layout::key::{self, RowKey};
use crate::layout::stored_row::StoredRow;

/// Limit for reads of a millisecond that keeps changing.
const ATTEMPTS_MAX: u32 = 20;

/// An iterator over rows of an app.
#[derive(Default)]
pub struct SharedRows {
    partitions: Vec<PartitionRows>,
    /// The time of each partition's next row, with the index of the partition.
    next: BinaryHeap<Reverse<(EventTime, usize)>>,
    /// The remaining rows of the current millisecond.
    moment: VecDeque<StoredRow>,
    failure: Option<StoreError>,
}

/// The rows of an app in one partition.
struct PartitionRows {
    cluster: Cluster,
    partition: u16,
    pid: Pid,
    rows: hbase_client::Rows,
    /// Rows that were fetched and not returned yet.
    fetched: VecDeque<StoredRow>,
    /// The number of the scanner that returned the last batch.
    scanner: u64,
}

impl SharedRows {
    /// Iterates over the rows in a range of event times, after the row `after`, whose partition is ignored.
    pub fn open(
        cluster: &Cluster,
        pid: Pid,
        partitions: impl Iterator<Item = u16>,
        range: Range<EventTime>,
        after: Option<RowKey>,
    ) -> Result<Self, StoreError> {
        let mut rows = Self::default();
        // The millisecond of that row is read completely: its rows include replaced ones that must be left out.
        let from = after.map_or(range.start, |after| range.start.max(after.event_time));
        for partition in partitions {
            let mut partition = PartitionRows::open(cluster, partition, pid, from..range.end)?;
            if let Some(time) = partition.next_time()? {
                rows.next.push(Reverse((time, rows.partitions.len())));
            }
            rows.partitions.push(partition);
        }
        rows.fill()?;
        if let Some(after) = after {
            let order = |key: &RowKey| (key.event_time, key.spreadid, key.seq);
            while rows.current()?.is_some_and(|(key, _)| order(&key) <= order(&after)) {
                rows.advance();
            }
        }
        Ok(rows)
    }

    /// The row at the iterator's position; `None` after the last.
    ///
    /// # Errors
    /// If HBase does not answer in time, or a row is damaged. No row follows an error.
    pub fn current(&mut self) -> Result<Option<(RowKey, &[u8])>, StoreError> {
        if let Some(failure) = self.failure.take() {
            self.moment.clear();
            self.next.clear();
            return Err(failure);
        }
        Ok(self.moment.front().map(|(key, value)| (*key, value.as_slice())))
    }

    /// Moves to the next row.
    pub fn advance(&mut self) {
        self.moment.pop_front();
        if self.moment.is_empty() {
            self.failure = self.fill().err();
        }
    }

    /// Reads the next millisecond that has rows.
    fn fill(&mut self) -> Result<(), StoreError> {
        let Some(Reverse((time, _))) = self.next.peek().copied() else { return Ok(()) };
        let mut moment = Vec::new();
        while let Some(Reverse((next, index))) = self.next.peek().copied()
            && next == time
        {
            self.next.pop();
            let Some(partition) = self.partitions.get_mut(index) else { continue };
            moment.extend(partition.moment(time)?);
            if let Some(time) = partition.next_time()? {
                self.next.push(Reverse((time, index)));
            }
        }
        keep_latest(&mut moment)?;
        moment.sort_unstable_by_key(|(key, _)| (key.spreadid, key.seq));
        self.moment = moment.into();
        // The rows of this millisecond may all have been replaced meanwhile.
        if self.moment.is_empty() { self.fill() } else { Ok(()) }
    }
}

impl PartitionRows {
    fn open(
        cluster: &Cluster,
        partition: u16,
        pid: Pid,
        range: Range<EventTime>,
    ) -> Result<Self, StoreError> {
        let rows = scan(cluster, partition, pid, range)?;
        let cluster = cluster.clone();
        Ok(Self { cluster, partition, pid, rows, fetched: VecDeque::new(), scanner: 0 })
    }

    /// The time of the next row; `None` after the last.
    fn next_time(&mut self) -> Result<Option<EventTime>, StoreError> {
        if self.fetched.is_empty() {
            self.fetch()?;
        }
        Ok(self.fetched.front().map(|(key, _)| key.event_time))
    }

    /// Fetches the next batch, if any.
    fn fetch(&mut self) -> Result<(), StoreError> {
        if let Some(rows) = self.cluster.wait(self.rows.next_batch()) {
            self.fetched.extend(decode(rows?)?);
            self.scanner = self.rows.scanner();
        }
        Ok(())
    }

    /// Takes all rows of a millisecond, which must be that of the next row.
    fn moment(&mut self, time: EventTime) -> Result<Vec<StoredRow>, StoreError> {
        let (mut rows, mut is_whole) = (Vec::new(), true);
        loop {
            while self.fetched.front().is_some_and(|(key, _)| key.event_time == time) {
                rows.extend(self.fetched.pop_front());
            }
            if !self.fetched.is_empty() {
                break;
            }
            let scanner = self.scanner;
            self.fetch()?;
            is_whole &= self.scanner == scanner;
            if self.fetched.is_empty() {
                break;
            }
        }
        if is_whole { Ok(rows) } else { self.read_again(time) }
    }

    /// Reads a millisecond until a single scanner returns all of it, or two consecutive reads are equal. A row that
    /// moves gets another revision, so equal reads are consistent.
    fn read_again(&self, time: EventTime) -> Result<Vec<StoredRow>, StoreError> {
        let mut before = None;
        for _ in 0..ATTEMPTS_MAX {
            let mut scan = scan(&self.cluster, self.partition, self.pid, time..time.plus(1))?;
            let mut rows = Vec::new();
            while let Some(batch) = self.cluster.wait(scan.next_batch()) {
                rows.extend(decode(batch?)?);
            }
            if scan.scanner() <= 1 || before.as_ref() == Some(&rows) {
                return Ok(rows);
            }
            before = Some(rows);
        }
        Err(StoreError::Torn { pid: self.pid.0, millis: time.millis() })
    }
}

fn scan(
    cluster: &Cluster,
    partition: u16,
    pid: Pid,
    range: Range<EventTime>,
) -> Result<hbase_client::Rows, StoreError> {
    let first = key::row_from(partition, pid, range.start).to_vec();
    let end = key::row_from(partition, pid, range.end).to_vec();
    let scan = Scan::range(first, end).select(Selection::all().column(FAMILY, VALUE));
    let table = cluster.client().table(&tables::name(cluster.prefix(), Table::Events))?;
    // Scans must be started in the runtime.
    Ok(cluster.wait(async { table.scan(scan) }))
}

fn decode(rows: Vec<hbase_client::Row>) -> Result<Vec<StoredRow>, StoreError> {
    let row = |row: hbase_client::Row| {
        let key = RowKey::decode(row.key()).ok_or_else(|| StoreError::corrupt("a row's key"))?;
        let value = row.value(FAMILY, VALUE).ok_or_else(|| StoreError::corrupt("a row"))?;
        Ok((key, value.to_vec()))
    };
    rows.into_iter().map(row).collect()
}
