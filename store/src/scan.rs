//! Reads an app's rows between two times, in key order, from one snapshot.

use std::ops::ControlFlow;

use attribution::event::EventTime;
use attribution::ledger::{FactKey, Facts, Home, IndexEntry, Scan};
use attribution::policy::AppPolicy;
use rocksdb::{DBRawIterator, ReadOptions};

use crate::StoreError;
use crate::embedded::index;
use crate::embedded::pending::Pending;
use crate::embedded::tables::Tables;
use crate::expiry::ConsumedUntil;
use crate::key::{self, RowKey};
use crate::retention::Retention;

/// The reading side of a store; cheap to clone, for any number of threads.
#[derive(Clone)]
pub struct Reader {
    tables: Tables,
    partitions: u16,
    retention: Retention,
    until: ConsumedUntil,
}

/// The table of rows.
pub(crate) const EVENTS: &str = "events";

/// Bytes that RocksDB reads ahead of a scan.
const READ_AHEAD_BYTES: usize = 2 << 20;

impl Reader {
    pub(crate) fn new(
        tables: Tables,
        partitions: u16,
        retention: Retention,
        until: ConsumedUntil,
    ) -> Self {
        Self { tables, partitions, retention, until }
    }

    /// Calls `visit` with each row's key and value, `from <= event_time < to`, in key order. All
    /// rows are of the moment of the call, whatever is written meanwhile. `visit` may break off.
    pub fn scan_rows(
        &self,
        app: &AppPolicy,
        from: EventTime,
        to: EventTime,
        mut visit: impl FnMut(&RowKey, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut rows = self.rows(app, from, to)?;
        while let Some((key, value)) = rows.current()? {
            if visit(&key, value).is_break() {
                return Ok(());
            }
            rows.advance();
        }
        Ok(())
    }

    /// As [`Reader::scan_rows`], for a caller that goes at its own pace.
    pub fn rows(
        &self,
        app: &AppPolicy,
        from: EventTime,
        to: EventTime,
    ) -> Result<Rows<'_>, StoreError> {
        let partition = key::partition(&app.key, self.partitions);
        let first = key::row_from(partition, app.pid, from.max(self.retention.oldest()));
        let end = key::row_from(partition, app.pid, to);
        if end <= first {
            return Ok(Rows(None));
        }
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(end);
        options.set_readahead_size(READ_AHEAD_BYTES);
        options.set_async_io(false);
        let mut rows = self.tables.db.raw_iterator_cf_opt(self.tables.events(), options);
        rows.seek(first);
        Ok(Rows(Some(rows)))
    }
}

/// A place among the rows of an app; `None` within: a range that holds none.
pub struct Rows<'r>(Option<DBRawIterator<'r>>);

impl Rows<'_> {
    /// The row at this place; `None` after the last.
    #[inline]
    pub fn current(&self) -> Result<Option<(RowKey, &[u8])>, StoreError> {
        let Some(rows) = &self.0 else { return Ok(None) };
        let (Some(key), Some(value)) = (rows.key(), rows.value()) else {
            rows.status()?;
            return Ok(None);
        };
        let key = RowKey::decode(key).ok_or_else(|| StoreError::corrupt("a row's key"))?;
        Ok(Some((key, value)))
    }

    /// To the next row.
    #[inline]
    pub fn advance(&mut self) {
        if let Some(rows) = self.0.as_mut().filter(|rows| rows.valid()) {
            rows.next();
        }
    }
}

impl Facts for Reader {
    type Error = StoreError;

    fn homes(&mut self, keys: &[FactKey]) -> Result<Vec<Option<Home>>, StoreError> {
        let mut homes = vec![None; keys.len()];
        let wanted: Vec<(usize, FactKey)> = keys.iter().copied().enumerate().collect();
        self.tables.homes(&wanted, &mut homes)?;
        Ok(homes)
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        index::scan(&self.tables, &Pending::default(), scans)
    }

    fn consumed_until(&self) -> Option<EventTime> {
        self.until.get()
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Reader").field("path", &self.tables.db.path()).finish_non_exhaustive()
    }
}
