//! Reads an app's rows between two times, in key order, from one snapshot.

use std::ops::ControlFlow;
use std::sync::Arc;

use attribution::event::EventTime;
use attribution::policy::AppPolicy;
use rocksdb::{DB, ReadOptions};

use crate::StoreError;
use crate::key::{self, RowKey};
use crate::retention::Retention;

/// The reading side of a store; cheap to clone, for any number of threads.
#[derive(Clone)]
pub struct Reader {
    db: Arc<DB>,
    partitions: u16,
    retention: Retention,
}

/// The table of rows.
pub(crate) const EVENTS: &str = "events";

/// Bytes that RocksDB reads ahead of a scan.
const READ_AHEAD_BYTES: usize = 2 << 20;

impl Reader {
    pub(crate) fn new(db: Arc<DB>, partitions: u16, retention: Retention) -> Self {
        Self { db, partitions, retention }
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
        let partition = key::partition(&app.key, self.partitions);
        let first = key::row_from(partition, app.pid, from.max(self.retention.oldest()));
        let end = key::row_from(partition, app.pid, to);
        if end <= first {
            return Ok(());
        }
        let table = self
            .db
            .cf_handle(EVENTS)
            .ok_or_else(|| StoreError::corrupt("the table of rows is missing"))?;
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(end);
        options.set_readahead_size(READ_AHEAD_BYTES);
        options.set_async_io(false);
        let mut rows = self.db.raw_iterator_cf_opt(table, options);
        rows.seek(first);
        while let (Some(key), Some(value)) = (rows.key(), rows.value()) {
            let key = RowKey::decode(key).ok_or_else(|| StoreError::corrupt("a row's key"))?;
            if visit(&key, value).is_break() {
                return Ok(());
            }
            rows.next();
        }
        rows.status()?;
        Ok(())
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Reader").field("path", &self.db.path()).finish_non_exhaustive()
    }
}
