//! The reading side of a store in HBase. It keeps no state between calls.

pub mod latest_revision;
pub mod newest_first;
pub mod rows;
pub mod tables;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use attribution::facts::event::{EventTime, Pid, SpreadId};
use attribution::facts::keys::FactKey;
use attribution::ledger::Facts;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::record::FactRecord;
use attribution::rules::expiry::ExpiryFloor;

use super::cluster::Cluster;
use super::ledger::SharedLedger;
use super::ledger::cells::{Cells, Table};
use super::outbox::SharedOutbox;
use super::schema::meta;
use super::schema::tables::LAG_MS;
use crate::StoreError;
use crate::apps::names::Names;
use crate::apps::record::App;
use crate::clock::now;
use crate::expiry::retention;
use crate::layout::campaign_index::CreditedActivation;
use crate::layout::codec::row::{RowView, TextCell};
use crate::layout::key::{self, Key, RowKey};
use crate::layout::stored_row::StoredRow;
use crate::layout::summary_counts::{Dimensions, SummaryKey, Totals, quarter_start};
use newest_first::NewestFirst;
use rows::SharedRows;

/// Counts that are added up in memory before they are visited, by the size of their keys.
const COUNTS_BYTES_MAX: usize = 4 << 20;

/// The reading side of a store; cheap to clone, for any number of threads.
#[derive(Clone)]
pub struct SharedReader {
    pub(super) cluster: Cluster,
    pub(super) partitions: u16,
    pub(super) settings: Arc<config::Store>,
}

impl SharedReader {
    pub(crate) fn names(&self) -> Result<Names, StoreError> {
        meta::names(&self.cluster)
    }

    pub fn apps(&self) -> Result<BTreeMap<Pid, App>, StoreError> {
        meta::apps(&self.cluster)
    }

    pub fn outbox(&self) -> SharedOutbox<Cluster> {
        SharedOutbox::new(self.cluster.clone())
    }

    /// See [`crate::reader::Reader::current_rows`].
    pub fn current_rows(
        &self,
        events: &[(FactKey, FactRecord)],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let mut bases: BTreeMap<Pid, Option<u16>> = BTreeMap::new();
        for (event, _) in events {
            if let Entry::Vacant(vacant) = bases.entry(event.pid) {
                vacant.insert(meta::app(&self.cluster, event.pid)?.map(|app| app.base));
            }
        }
        let key = |(event, record): &(FactKey, FactRecord)| {
            let base = bases.get(&event.pid).copied().flatten()?;
            key::current_row(event, record, base, self.partitions)
        };
        let keys: Vec<Option<Key>> = events.iter().map(key).collect();
        let found: Vec<Key> = keys.iter().flatten().copied().collect();
        let mut values = self.cluster.clone().get(Table::Events, &found)?.into_iter();
        let mut rows = Vec::with_capacity(events.len());
        for ((_, record), key) in events.iter().zip(keys) {
            let value = key.and_then(|_| values.next()).flatten();
            let revision = record.current_row().map(|row| row.revision);
            let is_current = match &value {
                Some(value) => Some(RowView::decode(value)?.revision) >= revision,
                None => false,
            };
            rows.push(value.filter(|_| is_current));
        }
        Ok(rows)
    }

    /// See [`crate::reader::View::rows`].
    pub fn rows(
        &self,
        pid: Pid,
        range: Range<EventTime>,
        after: Option<RowKey>,
    ) -> Result<SharedRows, StoreError> {
        let range = range.start.max(self.oldest(pid))..range.end;
        SharedRows::open(&self.cluster, pid, self.partitions(pid)?.into_iter(), range, after)
    }

    /// See [`crate::reader::View::rows_newest_first`].
    pub fn rows_newest_first(
        &self,
        pid: Pid,
        range: Range<EventTime>,
    ) -> Result<NewestFirst, StoreError> {
        let range = range.start.max(self.oldest(pid))..range.end;
        Ok(NewestFirst::new(&self.cluster, pid, self.partitions(pid)?, range))
    }

    /// The partitions with rows of an app. They are read for each scan: a worker stores a greater fanout before it
    /// writes a row with it.
    fn partitions(&self, pid: Pid) -> Result<Vec<u16>, StoreError> {
        let app = meta::app(&self.cluster, pid)?;
        Ok(app.map_or(Vec::new(), |app| app.partitions(self.partitions).collect()))
    }

    /// Rows of an app before this time have expired.
    pub fn oldest(&self, pid: Pid) -> EventTime {
        retention::cutoff(self.settings.retention_of(pid), now())
    }

    /// See [`crate::reader::View::counts`].
    pub fn counts(
        &self,
        pid: Pid,
        range: Range<EventTime>,
        mut visit: impl FnMut(&SummaryKey<'_>, &Totals) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut rows = self.rows(pid, range, None)?;
        let mut counts: BTreeMap<Vec<u8>, Totals> = BTreeMap::new();
        let (mut quarter, mut bytes) = (None, 0);
        while let Some((key, value)) = rows.current()? {
            let of = quarter_start(key.event_time);
            let is_next = quarter.replace(of).is_some_and(|before| before != of);
            if is_next || bytes >= COUNTS_BYTES_MAX {
                bytes = 0;
                if visit_counts(&mut counts, &mut visit)?.is_break() {
                    return Ok(());
                }
            }
            let view = RowView::decode(value)?;
            let counted = SummaryKey::new(&key, Dimensions::of_view(&view)).encode();
            let count = Totals::row(view.text(TextCell::Revenue));
            bytes += counted.len();
            counts.entry(counted).or_default().add(&count);
            rows.advance();
        }
        visit_counts(&mut counts, &mut visit).map(drop)
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
        // Rows of the same millisecond as `after` are compared with it by seq.
        let to = after.map_or(range.end, |after| range.end.min(after.event_time.plus(1)));
        let mut rows = self.rows_newest_first(pid, range.start..to)?;
        let (mut found, mut moment): (Vec<StoredRow>, Vec<StoredRow>) = (Vec::new(), Vec::new());
        loop {
            let next = rows.current()?;
            let time = next.as_ref().map(|(key, _)| key.event_time);
            if moment.first().is_some_and(|(key, _)| Some(key.event_time) != time) {
                moment.sort_unstable_by_key(|(key, _)| key.seq);
                found.append(&mut moment);
            }
            let Some((key, value)) = next.filter(|_| found.len() < limit) else { break };
            let view = RowView::decode(value)?;
            let is_past =
                after.is_none_or(|after| key.event_time < after.event_time || key.seq > after.seq);
            if key.spreadid == spreadid
                && is_past
                && CreditedActivation::has(view.event_type, view.status)
            {
                moment.push((key, value.to_vec()));
            }
            rows.advance();
        }
        found.truncate(limit);
        Ok(found)
    }
}

/// Calls `visit` with all counts and clears them.
fn visit_counts(
    counts: &mut BTreeMap<Vec<u8>, Totals>,
    visit: &mut impl FnMut(&SummaryKey<'_>, &Totals) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, StoreError> {
    for (key, count) in std::mem::take(counts) {
        let counted = SummaryKey::decode(&key).ok_or_else(|| StoreError::corrupt("a row"))?;
        if visit(&counted, &count).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

impl Facts for SharedReader {
    type Error = StoreError;

    /// A call of the client.
    const RECORDS_PER_READ: usize = 1_000;

    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        SharedLedger::new(self.cluster.clone(), [], self.partitions).records(keys)
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        SharedLedger::new(self.cluster.clone(), [], self.partitions).scan(scans)
    }

    /// The lag that the TTLs of the tables allow for: they keep all state that a worker with this lag needs.
    fn consumed_until(&self) -> Option<EventTime> {
        Some(now().minus(LAG_MS))
    }

    fn expiry_floor(&self, pid: Pid) -> ExpiryFloor {
        // If HBase does not answer, the next read reports it.
        meta::expiry_record(&self.cluster, pid).unwrap_or_default().floor
    }
}

impl std::fmt::Debug for SharedReader {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SharedReader")
            .field("prefix", &self.cluster.prefix())
            .finish_non_exhaustive()
    }
}
