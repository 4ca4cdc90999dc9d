//! What is to stand of an event, where something else does.

use attribution::facts::event::Family;
use attribution::facts::keys::FactKey;
use attribution::ledger::record::{CurrentRow, FactRecord};
use attribution::rules::build_row;
use attribution::rules::row::Row;
use attribution::worker::recompute;
use rocksdb::WriteBatch;

use super::Checker;
use super::event::{Event, is_of_itself};
use super::row_digest::RowDigest;
use super::snapshot_facts::CurrentRow as PresentFacts;
use super::stored_row::{self, digest};
use super::table_scan::Found;
use crate::apps::spread::App;
use crate::embedded::tables::Tables;
use crate::expiry::Expiry;
use crate::layout::codec;
use crate::layout::key::{self, KEY_BYTES, Key, RowKey};
use crate::layout::row_ref::row_place;

/// What is to stand of an event.
pub struct Expected {
    pub fact: FactKey,
    pub record: FactRecord,
    pub row: Row,
    pub replaced: Option<RowKey>,
    pub app: App,
}

impl Checker<'_> {
    /// What is to stand of an event whose decision is right or final; `None` if nothing tells.
    pub fn right(&self, event: &Event, found: &Found) -> Option<Expected> {
        let current_row = event.record.current_row().copied()?;
        let mut record = event.record.clone();
        let row = match &mut record {
            FactRecord::Touch(_) => None,
            FactRecord::Activation(kept) => {
                if !is_of_itself(&event.record, &current_row) {
                    let witness = RowDigest::of(event, found)?;
                    let original = witness.original.clone();
                    kept.decision = stored_row::decision(witness.into_row(), original);
                }
                let row =
                    kept.decision.as_ref().map(|of| build_row::activation_row(&kept.fact, of));
                row.filter(|_| is_of_itself(&record, &current_row))
            }
            FactRecord::Effect(_) => self.effect_row(event, &current_row),
        };
        let mut row = row?;
        row.revision = current_row.revision;
        Some(Expected { fact: event.fact, record, row, replaced: event.row, app: event.app })
    }

    /// The row of an effect whose activations are kept still, if it is the one that was decided.
    fn effect_row(&self, event: &Event, current_row: &CurrentRow) -> Option<Row> {
        let recomputed = match event.recomputed.clone() {
            Some(recomputed) => Some(recomputed),
            None => {
                // Also from what has expired and is still there; the digest tells whether it is all.
                let expiry = Expiry::default();
                let mut all = PresentFacts { tables: self.tables.clone(), expiry };
                recompute(&mut all, self.policy, &[event.fact]).ok().and_then(|mut all| all.pop())
            }
        };
        let row = recomputed.map(|recomputed| recomputed.write.row);
        row.filter(|row| digest(row, None) == current_row.digest)
    }

    /// As bytes. A row that is the same again stays where it was.
    pub fn written(&self, right: &Expected) -> Written {
        let Expected { fact, record, row, replaced, app } = right;
        let is_same = replaced
            .is_some_and(|old| (old.event_time, old.spreadid) == (row.event_time, row.spreadid));
        let fanout_bits =
            record.current_row().map_or(0, |current_row| current_row.place.fanout_bits);
        let fanout_bits =
            if is_same && fanout_bits <= app.fan_bits_max { fanout_bits } else { app.fanout_bits };
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
            current_row.place = row_place(row, fanout_bits, KEY_BYTES + value.len());
        }
        let mut home_value = Vec::with_capacity(512);
        codec::fact_record::encode(&record, &mut home_value);
        let is_shown = row.event_time >= app.oldest;
        Written {
            family: fact.family,
            record: (key::record(fact), home_value),
            row: is_shown.then(|| (new.encode(), value)),
            gone: replaced.filter(|old| *old != new).map(|old| old.encode()),
        }
    }
}

/// A home and its row.
pub struct Written {
    family: Family,
    record: (Key, Vec<u8>),
    row: Option<(Key, Vec<u8>)>,
    gone: Option<Key>,
}

impl Written {
    pub fn put(&self, batch: &mut WriteBatch, tables: &Tables) {
        if let Some(gone) = &self.gone {
            batch.delete_cf(tables.events(), gone);
        }
        if let Some((key, value)) = &self.row {
            batch.put_cf(tables.events(), key, value);
        }
        batch.put_cf(tables.facts(self.family), self.record.0, &self.record.1);
    }
}
