//! The outbox in HBase: a row per event, which is changed by compare-and-set, and a row per record in the table of due
//! times.
//!
//! The row of a due time is put before the record that it leads to, and deleted after the record is due at another
//! time. So each pending record has its row; a surplus one leads to a record that is due at another time, and is ignored.
//! `docs/decisions/outbox.md` explains why that suffices.

use std::collections::BTreeMap;

use attribution::facts::event::EventTime;
use attribution::facts::keys::FactKey;
use attribution::outbox::interest::PlannedCallback;
use attribution::outbox::port::Outbox;
use attribution::outbox::record::{Counts, OutboxRecord};
use attribution::rules::policy::HOUR_MS;

use super::ledger::cells::{CellDelete, Cells, NOW, Put, PutWhere, Table, VALUE};
use crate::StoreError;
use crate::layout::codec;
use crate::layout::key::{self, Key};
use crate::layout::outbox::decode_due;
use crate::outbox::due_start::DueStart;

/// Number of parts of the table of due times, by the first bits of the event's key.
const SHARDS: u8 = 16;
/// Number of records that are read together.
const RECORDS_PER_READ: usize = 1_000;
/// The age of a surplus row from which on it is deleted. A younger one may be of a record that is being put.
const SURPLUS_MS: u64 = HOUR_MS;

/// The outbox of a store in HBase, for one of many workers.
pub struct SharedOutbox<C> {
    cells: C,
    start: DueStart,
}

impl<C> SharedOutbox<C> {
    pub fn new(cells: C) -> Self {
        Self { cells, start: DueStart::default() }
    }
}

/// Makes the entries of the callbacks of decisions.
pub(super) fn plan<C: Cells>(
    cells: &mut C,
    planned: &[(FactKey, Vec<PlannedCallback>)],
    now: EventTime,
) -> Result<(), StoreError> {
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
    old_due: Option<EventTime>,
    due: Option<EventTime>,
}

/// Tries to change each record once. Returns the events of those that another worker has changed meanwhile.
fn change_once<C: Cells>(
    cells: &mut C,
    events: &[Key],
    create: impl Fn(&Key) -> Option<OutboxRecord>,
    change: &mut dyn FnMut(&mut OutboxRecord),
) -> Result<Vec<Key>, StoreError> {
    let (mut changes, mut puts, mut dues) = (Vec::new(), Vec::new(), Vec::new());
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
        let (old_due, due) = (before.as_ref().and_then(OutboxRecord::due), record.due());
        let mut value = Vec::with_capacity(128);
        codec::outbox::encode(&record, &mut value);
        puts.push(PutWhere { row: *event, expected, value, ttl_ms: None });
        dues.extend(due.map(|due| put_due(due, event)));
        changes.push(Changed { event: *event, old_due, due });
    }
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    if !dues.is_empty() {
        cells.put(Table::OutboxDue, dues)?;
    }
    let outcomes = cells.put_where(Table::Outbox, puts)?;
    let (mut failed, mut stale) = (Vec::new(), Vec::new());
    for (Changed { event, old_due, due }, is_put) in changes.into_iter().zip(outcomes) {
        if !is_put {
            failed.push(event);
        } else if old_due != due {
            stale.extend(old_due.map(|due| due_row(due, &event)));
        }
    }
    delete_dues(cells, stale)?;
    Ok(failed)
}

fn put_due(due: EventTime, event: &Key) -> Put {
    let (row, column) = (due_row(due, event), VALUE.to_vec());
    Put { row, column, value: vec![1], time: None, ttl_ms: None }
}

/// The row of the due time of a record that is copied; `None` if no entry is pending.
pub(super) fn put_copied_due(event: &Key, value: &[u8]) -> Result<Option<Put>, StoreError> {
    Ok(codec::outbox::decode(event, value)?.due().map(|due| put_due(due, event)))
}

fn delete_dues<C: Cells>(cells: &mut C, rows: Vec<Vec<u8>>) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    let delete = |row| CellDelete { row, column: VALUE.to_vec(), until: NOW };
    cells.delete(Table::OutboxDue, rows.into_iter().map(delete).collect())
}

/// The row of a due time: shard u8 · due u64 · key of the event.
fn due_row(due: EventTime, event: &Key) -> Vec<u8> {
    let shard = event.first().map_or(0, |first| first & 0xf0);
    [&[shard][..], &due.millis().to_be_bytes(), event].concat()
}

impl<C: Cells> SharedOutbox<C> {
    /// Returns the records of one part that are due, at most `limit`, with their times, and deletes surplus rows.
    fn due_in(
        &mut self,
        shard: u8,
        times: (EventTime, EventTime),
        limit: usize,
    ) -> Result<Vec<(EventTime, OutboxRecord)>, StoreError> {
        let (from, now) = times;
        let bound = |millis: u64| [&[shard][..], &millis.to_be_bytes()].concat();
        let (mut from, end) = (bound(from.millis()), bound(now.millis().saturating_add(1)));
        let (mut found, mut surplus) = (Vec::new(), Vec::new());
        while found.len() < limit {
            let rows = self.cells.row_keys(
                Table::OutboxDue,
                from.clone()..end.clone(),
                RECORDS_PER_READ,
            )?;
            let due = |row: &Vec<u8>| {
                let row = row.get(1..).and_then(decode_due);
                row.ok_or_else(|| StoreError::corrupt("the row of a due time"))
            };
            let dues = rows.iter().map(due).collect::<Result<Vec<(EventTime, Key)>, _>>()?;
            let events: Vec<Key> = dues.iter().map(|(_, event)| *event).collect();
            let records = self.read(&events)?;
            for ((row, (time, _)), record) in rows.iter().zip(dues).zip(records) {
                match record.filter(|record| record.due() == Some(time)) {
                    Some(record) => found.push((time, record)),
                    None if now.since(time).is_some_and(|ms| ms >= SURPLUS_MS) => {
                        surplus.push(row.clone());
                    }
                    None => {}
                }
            }
            match rows.last() {
                Some(last) if rows.len() == RECORDS_PER_READ => from = [&last[..], &[0]].concat(),
                _ => break,
            }
        }
        delete_dues(&mut self.cells, surplus)?;
        Ok(found)
    }

    fn read(&mut self, events: &[Key]) -> Result<Vec<Option<OutboxRecord>>, StoreError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let values = self.cells.get(Table::Outbox, events)?;
        let record = |(event, value): (&Key, Option<Vec<u8>>)| {
            value.map(|value| codec::outbox::decode(event, &value)).transpose()
        };
        events.iter().zip(values).map(record).collect()
    }
}

impl<C: Cells> Outbox for SharedOutbox<C> {
    type Error = StoreError;

    fn due(&mut self, now: EventTime, limit: usize) -> Result<Vec<OutboxRecord>, StoreError> {
        let from = self.start.begin(now);
        let mut found = Vec::new();
        for shard in 0..SHARDS {
            found.extend(self.due_in(shard << 4, (from, now), limit)?);
        }
        found.sort_by_key(|(due, record)| (*due, record.event));
        self.start.found(found.first().map(|(due, _)| *due), now);
        Ok(found.into_iter().take(limit).map(|(_, record)| record).collect())
    }

    fn records_of(&mut self, events: &[FactKey]) -> Result<Vec<Option<OutboxRecord>>, StoreError> {
        let events: Vec<Key> = events.iter().map(key::record).collect();
        self.read(&events)
    }

    fn next_records(
        &mut self,
        after: Option<&FactKey>,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        // The next key after that of an event.
        let from = after.map(|after| [&key::record(after)[..], &[0]].concat()).unwrap_or_default();
        let rows = self.cells.row_keys(Table::Outbox, from..Vec::new(), limit)?;
        let event = |row: Vec<u8>| {
            Key::try_from(row).map_err(|_| StoreError::corrupt("the key of an outbox record"))
        };
        let events = rows.into_iter().map(event).collect::<Result<Vec<Key>, _>>()?;
        // A record may have expired since.
        Ok(self.read(&events)?.into_iter().flatten().collect())
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
        let mut counts = Counts::new();
        let mut after = None;
        loop {
            let records = self.next_records(after.as_ref(), RECORDS_PER_READ)?;
            for (endpoint, tally) in records.iter().flat_map(OutboxRecord::counts) {
                counts.entry(endpoint).or_default().add(&tally);
            }
            match records.last() {
                Some(last) => after = Some(last.event),
                None => return Ok(counts),
            }
        }
    }
}
