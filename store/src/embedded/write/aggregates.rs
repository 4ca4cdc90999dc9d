//! Updates of the summary counts and the campaign index by write batches.

use std::collections::HashMap;

use attribution::facts::event::{EventTime, Pid};
use attribution::ledger::record::CurrentRow;
use attribution::rules::row::Row;
use foldhash::fast::FixedState;
use rocksdb::{Direction, IteratorMode, WriteBatch};

use crate::StoreError;
use crate::embedded::tables::Tables;
use crate::layout::campaign_index::{CAMPAIGN_KEY_BYTES, CreditedActivation};
use crate::layout::codec::row::{RowView, TextCell};
use crate::layout::key::RowKey;
use crate::layout::row_meta::fact_hash;
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
    /// Adds a row.
    pub fn add(
        &mut self,
        batch: &mut WriteBatch,
        tables: &Tables,
        key: &RowKey,
        dimensions: Dimensions<'_>,
        revenue: &str,
    ) {
        if CreditedActivation::has(dimensions.event_type, dimensions.status) {
            let entry = CreditedActivation::of(key).encode();
            batch.put_cf(&tables.campaign_index(), entry, key.partition.to_be_bytes());
        }
        self.count(&SummaryKey::new(key, dimensions), &Totals::row(revenue));
    }

    /// Removes the current row `old` of an event, which the new `row` replaces.
    pub fn remove(
        &mut self,
        batch: &mut WriteBatch,
        tables: &Tables,
        key: &RowKey,
        old: &CurrentRow,
        row: &Row,
    ) -> Result<(), StoreError> {
        if CreditedActivation::has(row.event_type, old.status) {
            batch.delete_cf(&tables.campaign_index(), CreditedActivation::of(key).encode());
        }
        let dimensions = Dimensions::of(row);
        if old.row_meta.fact_hash == fact_hash(row) {
            let (status, install_type) = (old.status, old.row_meta.install_type);
            let dimensions = Dimensions { status, install_type, ..dimensions };
            self.count(&SummaryKey::new(key, dimensions), &Totals::row(&row.revenue).negated());
            return Ok(());
        }
        // The event's fact was replaced, too: read from the old row what was counted.
        if let Some(value) = tables.db.get_pinned_cf(&tables.events(), key.encode())? {
            let view = RowView::decode(&value)?;
            let count = Totals::row(view.text(TextCell::Revenue)).negated();
            self.count(&SummaryKey::new(key, Dimensions::of_view(&view)), &count);
        }
        Ok(())
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
        let table = tables.counts();
        for (key, count) in counts {
            batch.merge_cf(&table, key, count.encode());
        }
    }
}

/// Deletes all entries of both tables.
pub fn clear(batch: &mut WriteBatch, tables: &Tables) {
    // Greater than every key: no count has the greatest quarter of an hour that a key can encode.
    let end = [0xff; CAMPAIGN_KEY_BYTES + 1];
    for table in [tables.counts(), tables.campaign_index()] {
        batch.delete_range_cf(&table, &[][..], &end[..]);
    }
}

/// Deletes the entries of an app's rows before a time.
pub fn clear_before(tables: &Tables, pid: Pid, time: EventTime) -> Result<(), StoreError> {
    let mut batch = WriteBatch::default();
    let counts = [EventTime::default(), time].map(|time| summary_counts::prefix(pid, time));
    batch.delete_range_cf(&tables.counts(), counts[0], counts[1]);
    let first = pid.0.to_be_bytes();
    let from = IteratorMode::From(&first, Direction::Forward);
    for entry in tables.db.iterator_cf(&tables.campaign_index(), from) {
        let (key, _) = entry?;
        if !key.starts_with(&first) {
            break;
        }
        if CreditedActivation::decode(&key).is_some_and(|activation| activation.event_time < time) {
            batch.delete_cf(&tables.campaign_index(), key);
        }
        if batch.size_in_bytes() > BATCH_BYTES {
            tables.db.write(std::mem::take(&mut batch))?;
        }
    }
    Ok(tables.db.write(batch)?)
}
