//! What is noted of the state of each app, so that what has expired stays so.

use attribution::facts::event::{EventTime, Pid};
use rocksdb::WriteBatch;

use crate::StoreError;
use crate::clock::now;
use crate::embedded::tables::Tables;
use crate::expiry::Expiry;
use crate::expiry::floor::{self, ExpiryRecord, ExpiryRecords};

/// Then the pid.
pub const EXPIRING: &[u8] = b"expiring/";

/// # Errors
/// [`StoreError::Corrupt`] where what is noted can not be true.
pub fn noted(tables: &Tables) -> Result<ExpiryRecords, StoreError> {
    let all = tables.named(EXPIRING)?;
    all.iter().map(|(pid, value)| floor::decode(pid, value, now())).collect()
}

/// All that has expired, for whoever only reads.
pub fn expired(tables: &Tables, until: Option<EventTime>) -> Result<ExpiryRecords, StoreError> {
    let all = noted(tables)?.into_iter();
    Ok(all.map(|(pid, noted)| (pid, noted.moved(until))).collect())
}

/// Notes the settings, and holds what expired by those before them: on disk before anything expires by
/// these.
pub fn note(tables: &Tables, expiry: &Expiry, until: Option<EventTime>) -> Result<(), StoreError> {
    let before = noted(tables)?;
    let now = floor::under(&before, expiry, until);
    let mut batch = WriteBatch::default();
    for (pid, noted) in &now {
        if before.get(pid).copied().unwrap_or_default() != *noted {
            put(&mut batch, tables, *pid, noted);
        }
    }
    if !batch.is_empty() {
        tables.db.write(batch)?;
        tables.db.flush_wal(true)?;
    }
    expiry.hold(&now);
    Ok(())
}

pub fn put(batch: &mut WriteBatch, tables: &Tables, pid: Pid, noted: &ExpiryRecord) {
    batch.put_cf(tables.meta(), [EXPIRING, &pid.0.to_be_bytes()].concat(), noted.encode());
}
