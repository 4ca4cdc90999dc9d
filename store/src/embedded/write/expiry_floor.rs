//! Stores the expiry record of each app, so that expiry never moves backwards.

use attribution::facts::event::{EventTime, Pid};
use rocksdb::{WriteBatch, WriteOptions};

use crate::StoreError;
use crate::clock::now;
use crate::embedded::tables::Tables;
use crate::expiry::Expiry;
use crate::expiry::floor::{self, ExpiryRecord, ExpiryRecords};
use crate::layout::key;

/// The start of the keys of expiry records, followed by the pid.
pub const EXPIRING: &[u8] = b"expiring/";

/// The stored expiry records.
///
/// # Errors
/// [`StoreError::Corrupt`] if one is invalid.
pub fn records(tables: &Tables) -> Result<ExpiryRecords, StoreError> {
    let all = tables.meta_entries(EXPIRING)?;
    all.iter().map(|(pid, value)| floor::decode(pid, value, now())).collect()
}

/// The stored records for a reader or a copy: the floor of each is everything that has expired at `until`.
pub fn floors(tables: &Tables, until: Option<EventTime>) -> Result<ExpiryRecords, StoreError> {
    let records = records(tables)?.into_iter();
    Ok(records.map(|(pid, record)| (pid, record.for_copy(until))).collect())
}

/// Stores the records for the settings of `expiry`, and returns them. They are synced to disk before anything expires
/// under these settings.
pub fn record(
    tables: &Tables,
    expiry: &Expiry,
    until: Option<EventTime>,
) -> Result<ExpiryRecords, StoreError> {
    let before = records(tables)?;
    let after = floor::under(&before, expiry, until);
    let mut batch = WriteBatch::default();
    for (pid, record) in &after {
        if before.get(pid).copied().unwrap_or_default() != *record {
            put(&mut batch, tables, *pid, record);
        }
    }
    if !batch.is_empty() {
        tables.write(batch, &WriteOptions::default())?;
        tables.db.flush_wal(true)?;
    }
    Ok(after)
}

pub fn put(batch: &mut WriteBatch, tables: &Tables, pid: Pid, record: &ExpiryRecord) {
    batch.put_cf(&tables.meta(), key::with_pid(EXPIRING, pid), record.encode());
}
