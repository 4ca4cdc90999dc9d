//! The outbox of an embedded store: the write batch of a commit has the entries of its decisions, and delivery changes
//! them by write batches of its own.
//!
//! Nothing is stored about a new event, so its entries are written without a read. A commit that changes an earlier
//! decision reads the record of the event; until it is written, delivery does not change that record.

use std::sync::Arc;
use std::time::Duration;

use attribution::facts::event::EventTime;
use attribution::facts::keys::{FactKey, FactKeySet};
use attribution::ledger::DecisionWrite;
use attribution::outbox::port::Outbox;
use attribution::outbox::record::{Counts, EndpointId, OutboxRecord, Tally};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rocksdb::{Direction, IteratorMode, ReadOptions, WriteBatch};

use super::tables::Tables;
use super::write::batch_writer::write_options;
use crate::StoreError;
use crate::layout::codec;
use crate::layout::key::{self, Key};
use crate::layout::outbox::{self as keys, DueKey, OutboxTableKey};
use crate::outbox::due_start::DueStarts;
use crate::outbox::stored::{StoredRecord, unreadable_records};

/// How long delivery waits for a commit that changes the same record. A full disk takes longer.
const COMMIT_WAIT: Duration = Duration::from_secs(10);

/// The events whose outbox records the commit in flight changes, shared by the writer and all outboxes of a store. A
/// record is read and written under its lock.
#[derive(Debug, Clone, Default)]
pub struct CommitInFlight(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    events: Mutex<FactKeySet>,
    ended: Condvar,
}

impl CommitInFlight {
    /// Reads the record of an event that the commit will change.
    fn begin(&self, tables: &Tables, event: &FactKey) -> Result<Option<OutboxRecord>, StoreError> {
        let mut events = self.0.events.lock();
        events.insert(*event);
        read(tables, &key::record(event))
    }

    /// Lets delivery change the records again.
    pub fn end(&self) {
        let mut events = self.0.events.lock();
        if !events.is_empty() {
            events.clear();
            self.0.ended.notify_all();
        }
    }

    /// Waits until the commit in flight changes none of the events, and keeps it so.
    fn wait(&self, events: &[FactKey]) -> Result<MutexGuard<'_, FactKeySet>, StoreError> {
        let mut in_flight = self.0.events.lock();
        let is_busy =
            |in_flight: &mut FactKeySet| events.iter().any(|event| in_flight.contains(event));
        if self.0.ended.wait_while_for(&mut in_flight, is_busy, COMMIT_WAIT).timed_out() {
            let reason = "is still writing a decision whose callbacks are to be changed".into();
            return Err(StoreError::Writer { reason });
        }
        Ok(in_flight)
    }
}

/// Adds the entries of decisions to the write batch of a commit.
#[derive(Default)]
pub struct OutboxWriter {
    pub in_flight: CommitInFlight,
    /// What the batch adds to the tallies.
    added: Counts,
}

impl OutboxWriter {
    pub fn put(
        &mut self,
        batch: &mut WriteBatch,
        tables: &Tables,
        write: &DecisionWrite,
        now: EventTime,
    ) -> Result<(), StoreError> {
        if write.callbacks.is_empty() {
            return Ok(());
        }
        let before = match write.replaced {
            None => None,
            Some(_) => self.in_flight.begin(tables, &write.key)?,
        };
        let mut after = before.clone().unwrap_or_else(|| OutboxRecord::new(write.key));
        write.callbacks.iter().for_each(|planned| after.plan(planned, now));
        put_change(batch, tables, before.as_ref(), &after, &mut self.added);
        Ok(())
    }

    /// Adds the tallies to the batch. Must be called after the last decision was put.
    pub fn finish(&mut self, batch: &mut WriteBatch, tables: &Tables) {
        put_counts(batch, tables, std::mem::take(&mut self.added));
    }
}

/// Access to the outbox of an embedded store, for any thread.
#[derive(Debug, Clone)]
pub struct EmbeddedOutbox {
    tables: Tables,
    in_flight: CommitInFlight,
    starts: DueStarts,
}

impl EmbeddedOutbox {
    pub(super) fn new(tables: Tables, in_flight: CommitInFlight) -> Self {
        Self { tables, in_flight, starts: DueStarts::default() }
    }

    /// Calls `visit` with the entries of the outbox from a key on, until it returns false.
    fn each_from(
        &self,
        from: &[u8],
        mut visit: impl FnMut(OutboxTableKey, &[u8]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let mut options = ReadOptions::default();
        options.set_total_order_seek(true);
        let mode = IteratorMode::From(from, Direction::Forward);
        for entry in self.tables.db.iterator_cf_opt(&self.tables.outbox(), options, mode) {
            let (key, value) = entry?;
            let key = keys::decode(&key).ok_or_else(|| StoreError::corrupt("an outbox key"))?;
            if !visit(key, &value)? {
                break;
            }
        }
        Ok(())
    }

    fn read_all(&self, events: &[Key]) -> Result<Vec<Option<StoredRecord>>, StoreError> {
        let keys: Vec<Vec<u8>> = events.iter().map(keys::record_of).collect();
        let values = self.tables.db.batched_multi_get_cf(&self.tables.outbox(), &keys, false);
        let mut records = Vec::with_capacity(events.len());
        for (event, value) in events.iter().zip(values) {
            records.push(value?.map(|value| codec::outbox::decode(event, &value)));
        }
        Ok(records)
    }
}

impl Outbox for EmbeddedOutbox {
    type Error = StoreError;

    fn due(
        &mut self,
        endpoint: &EndpointId,
        now: EventTime,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        let time = self.starts.of(endpoint).begin(now);
        let start = DueKey { endpoint: endpoint.digest(), time, event: Key::default() };
        let (mut dues, mut first) = (Vec::new(), None);
        self.each_from(&keys::due(&start), |key, _| {
            let OutboxTableKey::Due(due) = key else { return Ok(false) };
            if due.endpoint != start.endpoint || due.time > now || dues.len() >= limit {
                return Ok(false);
            }
            first.get_or_insert(due.time);
            dues.push(due);
            Ok(true)
        })?;
        self.starts.of(endpoint).found(first, now);
        let events: Vec<Key> = dues.iter().map(|due| due.event).collect();
        let (mut records, mut unreadable) = (Vec::with_capacity(dues.len()), WriteBatch::default());
        for (due, record) in dues.iter().zip(self.read_all(&events)?) {
            match record {
                Some(Ok(record)) => records.push(record),
                Some(Err(_)) => unreadable.delete_cf(&self.tables.outbox(), keys::due(due)),
                None => {}
            }
        }
        if unreadable.is_empty() {
            return Ok(records);
        }
        let count = unreadable.len();
        self.tables.write(unreadable, &write_options())?;
        Err(unreadable_records(count))
    }

    fn records_of(&mut self, events: &[FactKey]) -> Result<Vec<Option<OutboxRecord>>, StoreError> {
        let events: Vec<Key> = events.iter().map(key::record).collect();
        self.read_all(&events)?.into_iter().map(Option::transpose).collect()
    }

    fn next_records(
        &mut self,
        after: Option<&FactKey>,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, StoreError> {
        let mut from = after.map_or(keys::RECORD_PREFIX.to_vec(), keys::record);
        // The next key after that of an event.
        from.extend(after.map(|_| 0_u8));
        let mut records = Vec::new();
        self.each_from(&from, |key, value| {
            let OutboxTableKey::Record(event) = key else { return Ok(false) };
            if records.len() >= limit {
                return Ok(false);
            }
            records.extend(codec::outbox::decode(&event, value).ok());
            Ok(true)
        })?;
        Ok(records)
    }

    fn change(
        &mut self,
        events: &[FactKey],
        change: &mut dyn FnMut(&mut OutboxRecord),
    ) -> Result<(), StoreError> {
        if events.is_empty() {
            return Ok(());
        }
        let (mut batch, mut added) = (WriteBatch::default(), Counts::new());
        let in_flight = self.in_flight.wait(events)?;
        let mut keys: Vec<Key> = events.iter().map(key::record).collect();
        keys.sort_unstable();
        keys.dedup();
        for before in self.read_all(&keys)?.into_iter().flatten() {
            let before = before?;
            let mut after = before.clone();
            change(&mut after);
            put_change(&mut batch, &self.tables, Some(&before), &after, &mut added);
        }
        put_counts(&mut batch, &self.tables, added);
        if !batch.is_empty() {
            self.tables.write(batch, &write_options())?;
        }
        drop(in_flight);
        Ok(())
    }

    fn counts(&mut self) -> Result<Counts, StoreError> {
        let mut counts = Counts::new();
        self.each_from(&keys::COUNT_PREFIX, |key, value| {
            let OutboxTableKey::Count(endpoint) = key else { return Ok(false) };
            let tally = codec::outbox::decode_tally(value)
                .ok_or_else(|| StoreError::corrupt("the tally of an endpoint"))?;
            counts.insert(endpoint, tally);
            Ok(true)
        })?;
        Ok(counts)
    }
}

fn read(tables: &Tables, event: &Key) -> Result<Option<OutboxRecord>, StoreError> {
    let value = tables.db.get_pinned_cf(&tables.outbox(), keys::record_of(event))?;
    value.map(|value| codec::outbox::decode(event, &value)).transpose()
}

/// Puts a record with its entries in the due index, and adds what it counts.
fn put_change(
    batch: &mut WriteBatch,
    tables: &Tables,
    before: Option<&OutboxRecord>,
    after: &OutboxRecord,
    added: &mut Counts,
) {
    if before == Some(after) {
        return;
    }
    let (table, event) = (tables.outbox(), &after.event);
    let mut value = Vec::with_capacity(128);
    codec::outbox::encode(after, &mut value);
    batch.put_cf(&table, keys::record(event), value);
    let old_dues: Vec<DueKey> = before.into_iter().flat_map(keys::due_keys).collect();
    let dues: Vec<DueKey> = keys::due_keys(after).collect();
    for old in old_dues.iter().filter(|old| !dues.contains(old)) {
        batch.delete_cf(&table, keys::due(old));
    }
    for due in dues.iter().filter(|due| !old_dues.contains(due)) {
        batch.put_cf(&table, keys::due(due), b"");
    }
    for entry in &after.entries {
        let before = before.and_then(|record| record.entry(&entry.endpoint, entry.kind));
        let tally = entry.tally.since(&before.map(|before| before.tally).unwrap_or_default());
        match added.get_mut(&entry.endpoint) {
            _ if tally == Tally::default() => {}
            Some(sum) => sum.add(&tally),
            None => {
                added.insert(entry.endpoint.clone(), tally);
            }
        }
    }
}

fn put_counts(batch: &mut WriteBatch, tables: &Tables, added: Counts) {
    for (endpoint, tally) in added {
        batch.merge_cf(
            &tables.outbox(),
            keys::count(&endpoint),
            codec::outbox::encode_tally(&tally),
        );
    }
}

/// Adds a record that is copied, with its entries in the due index and its tallies.
pub fn put_copied(
    batch: &mut WriteBatch,
    tables: &Tables,
    event: &Key,
    value: &[u8],
) -> Result<(), StoreError> {
    let record = codec::outbox::decode(event, value)?;
    let mut added = Counts::new();
    put_change(batch, tables, None, &record, &mut added);
    put_counts(batch, tables, added);
    Ok(())
}

#[cfg(test)]
mod tests {
    use attribution::facts::event::{Family, Pid, SpreadId};
    use attribution::facts::keys::MatchKey;
    use attribution::outbox::interest::PlannedCallback;
    use attribution::outbox::record::{CallbackKind, CreditMark};
    use attribution::rules::row::Status;

    use super::*;
    use crate::embedded::open::column_families::Limits;

    fn event(id: u64) -> FactKey {
        FactKey { family: Family::Activation, id: MatchKey(id), pid: Pid(1), tag: 1 }
    }

    /// Writes the records of events, each with a callback that is due.
    fn put(tables: &Tables, endpoint: &EndpointId, events: &[FactKey]) {
        let planned = PlannedCallback {
            endpoint: endpoint.clone(),
            kind: CallbackKind::Activation,
            credit: CreditMark {
                fingerprint: 1,
                status: Status::Attributed,
                spreadid: SpreadId(1),
            },
            revision: 1,
            event_time: EventTime::default(),
            settle_ms: 0,
            max_age_ms: u64::MAX >> 20,
        };
        let (mut batch, mut added) = (WriteBatch::default(), Counts::new());
        for event in events {
            let mut record = OutboxRecord::new(*event);
            record.plan(&planned, EventTime::default());
            put_change(&mut batch, tables, None, &record, &mut added);
        }
        tables.write(batch, &write_options()).unwrap();
    }

    #[test]
    fn a_record_that_cannot_be_read_delays_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(&dir.path().join("store"), 64 << 20, &Limits::none()).unwrap();
        let endpoint = EndpointId::new("a");
        put(&tables, &endpoint, &[event(1), event(2)]);
        tables.db.put_cf(&tables.outbox(), keys::record(&event(1)), b"x").unwrap();
        let mut outbox = EmbeddedOutbox::new(tables, CommitInFlight::default());
        let now = EventTime::default().plus(1_000);
        let error = outbox.due(&endpoint, now, 10).unwrap_err().to_string();
        assert!(error.ends_with("repaired: 1"), "{error}");
        let due = outbox.due(&endpoint, now, 10).unwrap();
        let listed = outbox.next_records(None, 10).unwrap();
        for records in [due, listed] {
            assert_eq!(records.iter().map(|record| record.event).collect::<Vec<_>>(), [event(2)]);
        }
    }
}
