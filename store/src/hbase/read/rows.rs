//! An app's rows in the order of an export, from all partitions that it is spread over.
//!
//! A scanner of HBase shows one moment of one region. Where another one goes on, after a fault or in the
//! region that follows, a row may have moved to a place that was passed already, within its millisecond; so
//! that millisecond is read once more, until one scanner shows all of it, or it is the same twice in a row.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use attribution::facts::event::{EventTime, Pid};
use hbase_client::{Scan, Selection};

use super::latest_revision::settle;
use crate::StoreError;
use crate::hbase::cluster::{Cluster, FAMILY};
use crate::hbase::ledger::cells::{Table, VALUE};
use crate::hbase::schema::tables;
use crate::layout::key::{self, RowKey};
use crate::layout::stored_row::StoredRow;

/// How often a millisecond is read until it stands still.
const TRIES_MAX: u32 = 20;

/// A place among the rows of an app.
#[derive(Default)]
pub struct Rows {
    parts: Vec<Part>,
    /// The times of the parts' next rows.
    next: BinaryHeap<Reverse<(EventTime, usize)>>,
    /// The rest of the present millisecond.
    moment: VecDeque<StoredRow>,
    failure: Option<StoreError>,
}

/// The rows of one partition.
struct Part {
    cluster: Cluster,
    partition: u16,
    pid: Pid,
    rows: hbase_client::Rows,
    read: VecDeque<StoredRow>,
    scanner: u64,
}

impl Rows {
    /// Those of the times, `from <= event_time < to`, after the row where one is given, whatever its partition.
    pub fn open(
        cluster: &Cluster,
        pid: Pid,
        partitions: impl Iterator<Item = u16>,
        (from, to): (EventTime, EventTime),
        after: Option<RowKey>,
    ) -> Result<Self, StoreError> {
        let mut rows = Self::default();
        // The millisecond of that row is read whole: one of its events may have had another row before.
        let from = after.map_or(from, |after| from.max(after.event_time));
        for partition in partitions {
            let mut part = Part::open(cluster, (partition, pid), (from, to))?;
            if let Some(time) = part.time()? {
                rows.next.push(Reverse((time, rows.parts.len())));
            }
            rows.parts.push(part);
        }
        rows.fill()?;
        if let Some(after) = after {
            let place = |key: &RowKey| (key.event_time, key.spreadid, key.seq);
            while rows.current()?.is_some_and(|(key, _)| place(&key) <= place(&after)) {
                rows.advance();
            }
        }
        Ok(rows)
    }

    /// The row at this place; `None` after the last.
    ///
    /// # Errors
    /// Where HBase does not answer in its time, or a row can not be read: nothing follows then.
    pub fn current(&mut self) -> Result<Option<(RowKey, &[u8])>, StoreError> {
        if let Some(failure) = self.failure.take() {
            self.moment.clear();
            self.next.clear();
            return Err(failure);
        }
        Ok(self.moment.front().map(|(key, value)| (*key, value.as_slice())))
    }

    /// To the next row.
    pub fn advance(&mut self) {
        self.moment.pop_front();
        if self.moment.is_empty() {
            self.failure = self.fill().err();
        }
    }

    /// Reads the next millisecond.
    fn fill(&mut self) -> Result<(), StoreError> {
        let Some(Reverse((time, _))) = self.next.peek().copied() else { return Ok(()) };
        let mut moment = Vec::new();
        while let Some(Reverse((next, place))) = self.next.peek().copied()
            && next == time
        {
            self.next.pop();
            let Some(part) = self.parts.get_mut(place) else { continue };
            moment.extend(part.moment(time)?);
            if let Some(time) = part.time()? {
                self.next.push(Reverse((time, place)));
            }
        }
        settle(&mut moment)?;
        moment.sort_unstable_by_key(|(key, _)| (key.spreadid, key.seq));
        self.moment = moment.into();
        // All of them can have been replaced meanwhile.
        if self.moment.is_empty() { self.fill() } else { Ok(()) }
    }
}

impl Part {
    fn open(
        cluster: &Cluster,
        (partition, pid): (u16, Pid),
        times: (EventTime, EventTime),
    ) -> Result<Self, StoreError> {
        let rows = scan(cluster, (partition, pid), times)?;
        let cluster = cluster.clone();
        Ok(Self { cluster, partition, pid, rows, read: VecDeque::new(), scanner: 0 })
    }

    /// Of its next row.
    fn time(&mut self) -> Result<Option<EventTime>, StoreError> {
        if self.read.is_empty() {
            self.read_on()?;
        }
        Ok(self.read.front().map(|(key, _)| key.event_time))
    }

    /// Nothing is read at the end.
    fn read_on(&mut self) -> Result<(), StoreError> {
        if let Some(rows) = self.cluster.wait(self.rows.next_batch()) {
            self.read.extend(decode(rows?)?);
            self.scanner = self.rows.scanner();
        }
        Ok(())
    }

    /// All of its rows of a millisecond, the next that it has.
    fn moment(&mut self, time: EventTime) -> Result<Vec<StoredRow>, StoreError> {
        let (mut rows, mut is_whole) = (Vec::new(), true);
        loop {
            while self.read.front().is_some_and(|(key, _)| key.event_time == time) {
                rows.extend(self.read.pop_front());
            }
            if !self.read.is_empty() {
                break;
            }
            let scanner = self.scanner;
            self.read_on()?;
            is_whole &= self.scanner == scanner;
            if self.read.is_empty() {
                break;
            }
        }
        if is_whole { Ok(rows) } else { self.once_more(time) }
    }

    /// The same by one scanner, or twice in a row the same: a row that moves has another revision then.
    fn once_more(&self, time: EventTime) -> Result<Vec<StoredRow>, StoreError> {
        let mut before = None;
        for _ in 0..TRIES_MAX {
            let mut scan = scan(&self.cluster, (self.partition, self.pid), (time, time.plus(1)))?;
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
    (partition, pid): (u16, Pid),
    (from, to): (EventTime, EventTime),
) -> Result<hbase_client::Rows, StoreError> {
    let first = key::row_from(partition, pid, from).to_vec();
    let end = key::row_from(partition, pid, to).to_vec();
    let scan = Scan::range(first, end).select(Selection::all().column(FAMILY, VALUE));
    let table = cluster.client().table(&tables::name(cluster.prefix(), Table::Events))?;
    // A scan begins on the client's threads.
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
