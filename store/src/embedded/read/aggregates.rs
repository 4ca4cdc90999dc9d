//! Reads of aggregates: summary counts, and the activations credited to a campaign.

use std::ops::{ControlFlow, Range};

use attribution::facts::event::{EventTime, Pid, SpreadId};
use rocksdb::ReadOptions;

use super::snapshot::EmbeddedView;
use crate::StoreError;
use crate::layout::campaign_index::{self, CAMPAIGN_KEY_BYTES, CreditedActivation};
use crate::layout::key::RowKey;
use crate::layout::stored_row::StoredRow;
use crate::layout::summary_counts::{self, SummaryKey, Totals};

impl EmbeddedView<'_> {
    /// Rows of an app before this time have been removed by retention.
    pub fn oldest(&self, pid: Pid) -> EventTime {
        self.reader.retention.oldest(pid)
    }

    /// See [`crate::reader::View::counts`].
    pub fn counts(
        &self,
        pid: Pid,
        range: Range<EventTime>,
        mut visit: impl FnMut(&SummaryKey<'_>, &Totals) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(summary_counts::prefix(pid, range.end));
        let table = self.reader.tables.counts();
        let mut counts = self.snapshot.raw_iterator_cf_opt(&table, options);
        counts.seek(summary_counts::prefix(pid, range.start.max(self.oldest(pid))));
        while let (Some(key), Some(value)) = (counts.key(), counts.value()) {
            let damage = || StoreError::corrupt("a summary count");
            let key = SummaryKey::decode(key).ok_or_else(damage)?;
            let totals = Totals::decode(value).ok_or_else(damage)?;
            if !totals.is_zero() && visit(&key, &totals).is_break() {
                return Ok(());
            }
            counts.next();
        }
        Ok(counts.status()?)
    }

    /// See [`crate::reader::View::credited_activations`].
    pub fn credited_activations(
        &self,
        pid: Pid,
        spreadid: SpreadId,
        range: Range<EventTime>,
        after: Option<CreditedActivation>,
        limit: usize,
    ) -> Result<Vec<StoredRow>, StoreError> {
        let mut found = Vec::new();
        let from = range.start.max(self.oldest(pid));
        if range.end <= from {
            return Ok(found);
        }
        let mut options = ReadOptions::default();
        // Keys are in reverse time order, so reading ends at the first key before the range, or at the campaign's end.
        let end = match from.millis() {
            0 => campaign_index::end(pid, spreadid),
            _ => campaign_index::from(pid, spreadid, from.minus(1)).to_vec(),
        };
        options.set_iterate_upper_bound(end);
        let mut entries =
            self.snapshot.raw_iterator_cf_opt(&self.reader.tables.campaign_index(), options);
        let first = campaign_index::from(pid, spreadid, range.end.minus(1));
        // The key directly behind the last one of the previous page.
        let after = after.map(|after| [&after.encode()[..], &[0]].concat());
        entries.seek(after.filter(|after| after[..] > first[..]).unwrap_or(first.to_vec()));
        while let (Some(key), Some(value)) = (entries.key(), entries.value()) {
            if found.len() == limit {
                return Ok(found);
            }
            let row =
                decode(key, value).ok_or_else(|| StoreError::corrupt("a credited activation"))?;
            let events = self.reader.tables.events();
            // A compaction may have removed an expired row and not yet its entry.
            if let Some(value) = self.snapshot.get_cf(&events, row.encode())? {
                found.push((row, value));
            }
            entries.next();
        }
        entries.status()?;
        Ok(found)
    }
}

/// The key of the row to which an entry points.
pub(crate) fn decode(key: &[u8], value: &[u8]) -> Option<RowKey> {
    let key: &[u8; CAMPAIGN_KEY_BYTES] = key.try_into().ok()?;
    let partition = value.try_into().map(u16::from_be_bytes).ok()?;
    Some(CreditedActivation::decode(key)?.row(partition))
}
