//! The outbox in HBase: a row per event, which is changed by compare-and-set, and a row per endpoint of a record in the
//! table of due times.
//!
//! The row of a due time is put before the record that it leads to, and deleted after the record is due at another
//! time. So each pending record has its row; a surplus one leads to a record that is due at another time, and is
//! ignored. `docs/decisions/outbox.md` explains why that suffices.

use std::collections::BTreeMap;

use attribution::facts::event::EventTime;
use attribution::facts::keys::FactKey;
use attribution::outbox::interest::PlannedCallback;
use attribution::outbox::port::Outbox;
use attribution::outbox::record::{Counts, EndpointId, OutboxRecord};
use attribution::rules::policy::HOUR_MS;

use super::ledger::cells::{CellDelete, Cells, NOW, Put, PutWhere, Table, VALUE};
use crate::StoreError;
use crate::layout::codec;
use crate::layout::key::{self, Key};
use crate::layout::outbox::{DueKey, due_keys};
use crate::outbox::due_start::DueStarts;
use crate::outbox::stored::{StoredRecord, unreadable_records};

/// Number of parts of the table of due times, by the first bits of the event's key.
const SHARDS: u8 = 16;
/// Number of records that are read together.
const RECORDS_PER_READ: usize = 1_000;
/// The least number of rows of due times that are read together.
const DUES_PER_READ_MIN: usize = 16;
/// The age of a surplus row from which on it is deleted. A younger one may be of a record that is being put.
const SURPLUS_MS: u64 = HOUR_MS;

/// The outbox of a store in HBase, for one of many workers.
pub struct SharedOutbox<C> {
    pub(super) cells: C,
    starts: DueStarts,
}

impl<C> SharedOutbox<C> {
    pub fn new(cells: C) -> Self {
        Self { cells, starts: DueStarts::default() }
    }
}

/// Makes the entries of the callbacks of decisions.
pub(super) fn plan<C: Cells>(
    cells: &mut C,
    planned: &[(FactKey, Vec<PlannedCallback>)],
) -> Result<(), StoreError> {
    let now = cells.now();
    let planned: BTreeMap<Key, (FactKey, &[PlannedCallback])> =
        planned.iter().map(|(event, all)| (key::record(event), (*event, &all[..]))).collect();
    let create = |event: &Key| planned.get(event).map(|(event, _)| OutboxRecord::new(*event));
    change(cells, planned.keys().copied().collect(), create, &mut |record| {
        let callbacks = planned.get(&key::record(&record.event)).map(|(_, callbacks)| *callbacks);
        callbacks.into_iter().flatten().for_each(|callback| record.plan(callback, now));
    })
}

/// Changes records, each by compare-and-set, until no other worker has changed one meanwhile. `create` returns a new
/// one for an event without a record.
fn change<C: Cells>(
    cells: &mut C,
    events: Vec<Key>,
    create: impl Fn(&Key) -> Option<OutboxRecord>,
    change: &mut dyn FnMut(&mut OutboxRecord),
) -> Result<(), StoreError> {
    let mut open = events;
    open.sort_unstable();
    open.dedup();
    while !open.is_empty() {
        let mut failed = Vec::new();
        for part in open.chunks(RECORDS_PER_READ) {
            failed.extend(change_once(cells, part, &create, change)?);
        }
        open = failed;
    }
    Ok(())
}

/// A record to put.
struct Changed {
    event: Key,
    dues: Vec<DueKey>,
    /// Due times that it no longer has.
    stale: Vec<DueKey>,
}

/// Tries to change each record once. Returns the events of those that another worker has changed meanwhile.
fn change_once<C: Cells>(
    cells: &mut C,
    events: &[Key],
    create: impl Fn(&Key) -> Option<OutboxRecord>,
    change: &mut dyn FnMut(&mut OutboxRecord),
) -> Result<Vec<Key>, StoreError> {
    let (mut changes, mut puts) = (Vec::new(), Vec::new());
    for (event, expected) in events.iter().zip(cells.get(Table::Outbox, events)?) {
        let before = match &expected {
            Some(value) => Some(codec::outbox::decode(event, value)?),
            None => None,
        };
        let Some(mut record) = before.clone().or_else(|| create(event)) else { continue };
        change(&mut record);
        if before.as_ref() == Some(&record) {
            continue;
        }
        let dues: Vec<DueKey> = due_keys(&record).collect();
        let stale = before.iter().flat_map(due_keys).filter(|old| !dues.contains(old)).collect();
        let mut value = Vec::with_capacity(128);
        codec::outbox::encode(&record, &mut value);
        puts.push(PutWhere { row: *event, expected, value, ttl_ms: None });
        changes.push(Changed { event: *event, dues, stale });
    }
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let begun = cells.now();
    put_dues(cells, &changes)?;
    let outcomes = cells.put_where(Table::Outbox, puts)?;
    // This process may have been suspended while another one has deleted the rows as surplus ones. An outcome that is
    // not known counts as a failure, so that all are put again.
    if cells.now().since(begun).is_none_or(|ms| ms >= SURPLUS_MS / 2) {
        put_dues(cells, &changes)?;
    }
    let (mut failed, mut all_stale) = (Vec::new(), Vec::new());
    for (Changed { event, stale, .. }, is_put) in changes.into_iter().zip(outcomes) {
        if is_put {
            all_stale.extend(stale.iter().map(due_row));
        } else {
            failed.push(event);
        }
    }
    delete_dues(cells, all_stale)?;
    Ok(failed)
}

fn put_dues<C: Cells>(cells: &mut C, changes: &[Changed]) -> Result<(), StoreError> {
    let puts: Vec<Put> = changes.iter().flat_map(|change| &change.dues).map(put_due).collect();
    if puts.is_empty() { Ok(()) } else { cells.put(Table::OutboxDue, puts) }
}

fn put_due(due: &DueKey) -> Put {
    let (row, column) = (due_row(due), VALUE.to_vec());
    Put { row, column, value: vec![1], time: None, ttl_ms: None }
}

/// The rows of the due times of a record that is copied.
pub(super) fn put_copied_dues(event: &Key, value: &[u8]) -> Result<Vec<Put>, StoreError> {
    let record = codec::outbox::decode(event, value)?;
    Ok(due_keys(&record).map(|due| put_due(&due)).collect())
}

fn delete_dues<C: Cells>(cells: &mut C, rows: Vec<Vec<u8>>) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    let delete = |row| CellDelete { row, column: VALUE.to_vec(), until: NOW };
    cells.delete(Table::OutboxDue, rows.into_iter().map(delete).collect())
}

/// The row of a due time: shard u8 · endpoint u64 · due u64 · key of the event.
fn due_row(due: &DueKey) -> Vec<u8> {
    let shard = due.event.first().map_or(0, |first| first & 0xf0);
    [&[shard][..], &due.encode()].concat()
}

impl<C: Cells> SharedOutbox<C> {
    /// Counts all entries that are kept. Calls `may_continue` after each page; returns `None` if it returns false.
    pub(super) fn count(
        &mut self,
        mut may_continue: impl FnMut() -> Result<bool, StoreError>,
    ) -> Result<Option<Counts>, StoreError> {
        let mut counts = Counts::new();
        let mut after = None;
        loop {
            let records = self.next_records(after.as_ref(), RECORDS_PER_READ)?;
            for (endpoint, tally) in records.iter().flat_map(OutboxRecord::counts) {
                counts.entry(endpoint).or_default().add(&tally);
            }
            match records.last() {
                None => return Ok(Some(counts)),
                Some(last) if may_continue()? => after = Some(last.event),
                Some(_) => return Ok(None),
            }
        }
    }

    /// Returns the records of one part with entries of an endpoint that are due, at most `limit`, with their times, and
    /// deletes surplus rows.
    fn due_in(
        &mut self,
        shard: u8,
        endpoint: &EndpointId,
        times: (EventTime, EventTime),
        limit: usize,
    ) -> Result<Vec<(EventTime, OutboxRecord)>, StoreError> {
        let (from, now) = times;
        let hash = endpoint.digest().to_be_bytes();
        let bound = |millis: u64| [&[shard][..], &hash, &millis.to_be_bytes()].concat();
        let (mut from, end) = (bound(from.millis()), bound(now.millis().saturating_add(1)));
        let (mut found, mut surplus, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
        // Few rows are surplus ones.
        let rows_max = limit.clamp(DUES_PER_READ_MIN, RECORDS_PER_READ);
        while found.len() < limit {
            let range = from.clone()..end.clone();
            let rows = self.cells.scan(Table::OutboxDue, range, rows_max)?;
            let rows: Vec<Vec<u8>> = rows.into_iter().map(|(row, _)| row).collect();
            let due = |row: &Vec<u8>| {
                let row = row.get(1..).and_then(DueKey::decode);
                row.ok_or_else(|| StoreError::corrupt("the row of a due time"))
            };
            let dues = rows.iter().map(due).collect::<Result<Vec<DueKey>, _>>()?;
            let events: Vec<Key> = dues.iter().map(|due| due.event).collect();
            let records = self.read(&events)?;
            for ((row, DueKey { time, .. }), record) in rows.iter().zip(dues).zip(records) {
                match record {
                    Some(Err(_)) => unreadable.push(row.clone()),
                    Some(Ok(record)) if record.due_of(endpoint) == Some(time) => {
                        found.push((time, record));
                    }
                    _ if now.since(time).is_some_and(|ms| ms >= SURPLUS_MS) => {
                        surplus.push(row.clone());
                    }
                    _ => {}
                }
            }
            match rows.last() {
                Some(last) if rows.len() == rows_max => from = [&last[..], &[0]].concat(),
                _ => break,
            }
        }
        delete_dues(&mut self.cells, surplus)?;
        if unreadable.is_empty() {
            return Ok(found);
        }
        let count = unreadable.len();
        delete_dues(&mut self.cells, unreadable)?;
        Err(unreadable_records(count))
    }

    fn read(&mut self, events: &[Key]) -> Result<Vec<Option<StoredRecord>>, StoreError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let values = self.cells.get(Table::Outbox, events)?;
        let record = |(event, value): (&Key, Option<Vec<u8>>)| {
            value.map(|value| codec::outbox::decode(event, &value))
        };
        Ok(events.iter().zip(values).map(record).collect())
    }
}

impl<C: Cells> Outbox for SharedOutbox<C> {
    type Error = StoreError;

    fn due(
        &mut self,
        endpoint: &EndpointId,
        now: EventTime,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        let from = self.starts.of(endpoint).begin(now);
        let mut found = Vec::new();
        for shard in 0..SHARDS {
            found.extend(self.due_in(shard << 4, endpoint, (from, now), limit)?);
        }
        found.sort_by_key(|(due, record)| (*due, record.event));
        let first = found.first().map(|(due, _)| *due);
        self.starts.of(endpoint).found(first, now);
        Ok(found.into_iter().take(limit).map(|(_, record)| record).collect())
    }

    fn records_of(&mut self, events: &[FactKey]) -> Result<Vec<Option<OutboxRecord>>, StoreError> {
        let events: Vec<Key> = events.iter().map(key::record).collect();
        self.read(&events)?.into_iter().map(Option::transpose).collect()
    }

    fn next_records(
        &mut self,
        after: Option<&FactKey>,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        // The next key after that of an event.
        let mut from =
            after.map(|after| [&key::record(after)[..], &[0]].concat()).unwrap_or_default();
        loop {
            let rows = self.cells.scan(Table::Outbox, from..Vec::new(), limit)?;
            let Some((last, _)) = rows.last() else { return Ok(Vec::new()) };
            from = [&last[..], &[0]].concat();
            let mut records = Vec::with_capacity(rows.len());
            for (row, value) in rows {
                let event = Key::try_from(row)
                    .map_err(|_| StoreError::corrupt("the key of an outbox record"))?;
                records.extend(codec::outbox::decode(&event, &value).ok());
            }
            // All of them may be damaged.
            if !records.is_empty() {
                return Ok(records);
            }
        }
    }

    fn change(
        &mut self,
        events: &[FactKey],
        change_record: &mut dyn FnMut(&mut OutboxRecord),
    ) -> Result<(), StoreError> {
        let events = events.iter().map(key::record).collect();
        change(&mut self.cells, events, |_| None, change_record)
    }

    fn counts(&mut self) -> Result<Counts, StoreError> {
        Ok(self.count(|| Ok(true))?.unwrap_or_default())
    }
}
