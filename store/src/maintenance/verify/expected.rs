//! The expected record and row of a damaged event.

use attribution::facts::event::Family;
use attribution::facts::keys::FactKey;
use attribution::ledger::record::{CurrentRow, FactRecord};
use attribution::rules::build_row;
use attribution::rules::row::Row;
use attribution::worker::recompute;
use rocksdb::WriteBatch;

use super::Checker;
use super::event::{Event, is_consistent};
use super::row_digest::RowDigest;
use super::snapshot_facts::SnapshotFacts;
use super::stored_row::{self, digest};
use super::table_scan::Found;
use crate::apps::record::App;
use crate::embedded::tables::Tables;
use crate::expiry::Expiry;
use crate::layout::codec;
use crate::layout::key::{self, KEY_BYTES, Key, RowKey};
use crate::layout::row_ref::row_meta;

/// The record and the row that an event should have.
pub struct Expected {
    pub fact: FactKey,
    pub record: FactRecord,
    pub row: Row,
    pub replaced: Option<RowKey>,
    pub app: App,
}

impl Checker<'_> {
    /// Derives the expected record and row of an event whose decision is right or final; `None` if that is impossible.
    pub fn expected(&self, event: &Event, found: &Found) -> Option<Expected> {
        let current_row = event.record.current_row().copied()?;
        let mut record = event.record.clone();
        let row = match &mut record {
            FactRecord::Touch(_) => None,
            FactRecord::Activation(stored) => {
                if !is_consistent(&event.record, &current_row) {
                    let intact_row = RowDigest::of(event, found)?;
                    let original = intact_row.original.clone();
                    stored.decision = stored_row::decision(intact_row.into_row(), original);
                }
                let row =
                    stored.decision.as_ref().map(|of| build_row::activation_row(&stored.fact, of));
                row.filter(|_| is_consistent(&record, &current_row))
            }
            FactRecord::Effect(_) => self.effect_row(event, &current_row),
        };
        let mut row = row?;
        row.revision = current_row.revision;
        Some(Expected { fact: event.fact, record, row, replaced: event.row, app: event.app })
    }

    /// Rebuilds the row of an effect from its activations; `None` if the result is not the row that was decided.
    fn effect_row(&self, event: &Event, current_row: &CurrentRow) -> Option<Row> {
        let recomputed = match event.recomputed.clone() {
            Some(recomputed) => Some(recomputed),
            None => {
                // Expired facts that still exist are used too. The digest shows whether any are missing.
                let expiry = Expiry::default();
                let mut all = SnapshotFacts { tables: self.tables.clone(), expiry };
                recompute(&mut all, self.policy, &[event.fact]).ok().and_then(|mut all| all.pop())
            }
        };
        let row = recomputed.map(|recomputed| recomputed.write.row);
        row.filter(|row| digest(row, None) == current_row.digest)
    }

    /// Encodes the expected record and row. A row with unchanged event time and campaign keeps its partition.
    pub fn encode_expected(&self, expected: &Expected) -> EncodedEvent {
        let Expected { fact, record, row, replaced, app } = expected;
        let is_same = replaced
            .is_some_and(|old| (old.event_time, old.spreadid) == (row.event_time, row.spreadid));
        let fanout_bits =
            record.current_row().map_or(0, |current_row| current_row.row_meta.fanout_bits);
        let fanout_bits = if is_same && fanout_bits <= app.fanout_bits_max {
            fanout_bits
        } else {
            app.fanout_bits
        };
        let new = RowKey {
            partition: key::row_partition(app.base, row.seq, fanout_bits, self.settings.partitions),
            pid: row.pid,
            event_time: row.event_time,
            spreadid: row.spreadid,
            seq: row.seq,
        };
        let mut value = Vec::with_capacity(384);
        codec::row::encode(row, &mut value);
        let mut record = record.clone();
        if let Some(current_row) = record.current_row_mut() {
            current_row.row_meta = row_meta(row, fanout_bits, KEY_BYTES + value.len());
        }
        let mut record_value = Vec::with_capacity(512);
        codec::fact_record::encode(&record, &mut record_value);
        let is_retained = row.event_time >= app.oldest;
        EncodedEvent {
            family: fact.family,
            record: (key::record(fact), record_value),
            row: is_retained.then(|| (new.encode(), value)),
            replaced: replaced.filter(|old| *old != new).map(|old| old.encode()),
        }
    }
}

/// The encoded record and row of an event.
pub struct EncodedEvent {
    family: Family,
    record: (Key, Vec<u8>),
    /// `None` if retention has passed the row.
    row: Option<(Key, Vec<u8>)>,
    /// The key of the row to delete.
    replaced: Option<Key>,
}

impl EncodedEvent {
    pub fn put(&self, batch: &mut WriteBatch, tables: &Tables) {
        if let Some(replaced) = &self.replaced {
            batch.delete_cf(tables.events(), replaced);
        }
        if let Some((key, value)) = &self.row {
            batch.put_cf(tables.events(), key, value);
        }
        batch.put_cf(tables.facts(self.family), self.record.0, &self.record.1);
    }
}
