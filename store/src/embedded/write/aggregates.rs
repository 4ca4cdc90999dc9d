//! Updates of the tables `counts` (summary counts) and `brought` (credited activations) by write batches.

use std::collections::HashMap;

use attribution::facts::event::{EventTime, Pid};
use attribution::ledger::record::CurrentRow;
use attribution::rules::row::Row;
use foldhash::fast::FixedState;
use rocksdb::WriteBatch;

use crate::StoreError;
use crate::embedded::tables::Tables;
use crate::layout::campaign_index::{CAMPAIGN_KEY_BYTES, CreditedActivation};
use crate::layout::codec::row::{RowView, TextCell};
use crate::layout::key::RowKey;
use crate::layout::row_ref::fact_hash;
use crate::layout::summary_counts::{self, Dimensions, SummaryKey, Totals};

/// Size of a batch when aggregates are rebuilt or cleared.
pub const BATCH_BYTES: usize = 4 << 20;

/// The aggregate updates of a write batch. Credited activations are put into the batch directly.
#[derive(Default)]
pub struct AggregateChanges {
    /// Summary counts to add, by key.
    counts: HashMap<Vec<u8>, Totals, FixedState>,
}

impl AggregateChanges {
    /// Adds a new row.
    pub fn add(&mut self, batch: &mut WriteBatch, tables: &Tables, key: &RowKey, row: &Row) {
        self.count(&SummaryKey::new(key, Dimensions::of(row)), &Totals::row(&row.revenue));
        if CreditedActivation::has(row.event_type, row.status) {
            put_credited(batch, tables, key);
        }
    }

    /// Removes the current row `old` of an event, which the new `row` replaces.
    pub fn remove(
        &mut self,
        batch: &mut WriteBatch,
        tables: &Tables,
        (key, old): (&RowKey, &CurrentRow),
        row: &Row,
    ) -> Result<(), StoreError> {
        if CreditedActivation::has(row.event_type, old.status) {
            batch.delete_cf(tables.brought(), CreditedActivation::of(key).encode());
        }
        let dimensions = Dimensions::of(row);
        if old.row_meta.fact_hash == fact_hash(row) {
            let (status, install_type) = (old.status, old.row_meta.install_type);
            let dimensions = Dimensions { status, install_type, ..dimensions };
            self.count(&SummaryKey::new(key, dimensions), &Totals::row(&row.revenue).negated());
            return Ok(());
        }
        // The event's fact was replaced, too: read from the old row what was counted.
        if let Some(value) = tables.db.get_pinned_cf(tables.events(), key.encode())? {
            let view = RowView::decode(&value)?;
            let count = Totals::row(view.text(TextCell::Revenue)).negated();
            self.count(&SummaryKey::new(key, Dimensions::of_view(&view)), &count);
        }
        Ok(())
    }

    /// Adds a row that is already stored.
    pub fn add_stored(
        &mut self,
        batch: &mut WriteBatch,
        tables: &Tables,
        (key, view): (&RowKey, &RowView<'_>),
    ) {
        let count = Totals::row(view.text(TextCell::Revenue));
        self.count(&SummaryKey::new(key, Dimensions::of_view(view)), &count);
        if CreditedActivation::has(view.event_type, view.status) {
            put_credited(batch, tables, key);
        }
    }

    fn count(&mut self, key: &SummaryKey<'_>, totals: &Totals) {
        self.counts.entry(key.encode()).or_default().add(totals);
    }

    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Moves the counts into the batch.
    pub fn finish(&mut self, batch: &mut WriteBatch, tables: &Tables) {
        let mut counts: Vec<_> =
            self.counts.drain().filter(|(_, count)| !count.is_zero()).collect();
        counts.sort_unstable_by(|(key, _), (other, _)| key.cmp(other));
        for (key, count) in counts {
            batch.merge_cf(tables.counts(), key, count.encode());
        }
    }
}

pub fn put_credited(batch: &mut WriteBatch, tables: &Tables, row: &RowKey) {
    batch.put_cf(
        tables.brought(),
        CreditedActivation::of(row).encode(),
        row.partition.to_be_bytes(),
    );
}

/// Deletes all entries of both tables.
pub fn clear(batch: &mut WriteBatch, tables: &Tables) {
    // Greater than every key: no count has the greatest quarter of an hour that a key can encode.
    let end = [0xff; CAMPAIGN_KEY_BYTES + 1];
    for table in [tables.counts(), tables.brought()] {
        batch.delete_range_cf(table, &[][..], &end[..]);
    }
}

/// Deletes the entries of an app's rows before a time.
pub fn clear_before(tables: &Tables, pid: Pid, time: EventTime) -> Result<(), StoreError> {
    let mut batch = WriteBatch::default();
    let counts = [EventTime::default(), time].map(|time| summary_counts::prefix(pid, time));
    batch.delete_range_cf(tables.counts(), counts[0], counts[1]);
    let mut entries = tables.db.raw_iterator_cf(tables.brought());
    entries.seek(pid.0.to_be_bytes());
    while let Some(key) = entries.key().filter(|key| key.starts_with(&pid.0.to_be_bytes())) {
        if CreditedActivation::decode(key).is_some_and(|activation| activation.event_time < time) {
            batch.delete_cf(tables.brought(), key);
        }
        if batch.size_in_bytes() > BATCH_BYTES {
            tables.db.write(std::mem::take(&mut batch))?;
        }
        entries.next();
    }
    entries.status()?;
    tables.db.write(batch)?;
    Ok(())
}
