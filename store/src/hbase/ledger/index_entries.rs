//! Index entries as cells.

use attribution::facts::event::Family;
use attribution::ledger::FactWrite;
use attribution::ledger::index::{IndexEntry, Scan};

use super::cells::{Page, Put};
use crate::StoreError;
use crate::layout::codec;
use crate::layout::key::{self, FACT_PREFIX_BYTES, KEY_BYTES, Key};

/// Splits an index key into row and column. All entries of a match key and app are columns of one row, so a page of
/// them is one get, and gets of many rows are one call per server.
pub(in crate::hbase) fn split(key: &Key) -> (Vec<u8>, Vec<u8>) {
    let (row, column) = key.split_at(FACT_PREFIX_BYTES);
    (row.to_vec(), column.to_vec())
}

pub(in crate::hbase) fn join(row: &[u8], column: &[u8]) -> Result<Key, StoreError> {
    [row, column].concat().try_into().map_err(|_| StoreError::corrupt("an index entry"))
}

/// The entries by which a fact is found.
pub(super) fn fact_entries(write: &FactWrite, ttl_ms: Option<u64>) -> impl Iterator<Item = Put> {
    let lookback_ms = write.record.lookback_ms();
    let time = write.record.time();
    write.index.iter().map(move |found_by| {
        let key = key::index(*found_by, &write.key, time);
        Put { ttl_ms, ..entry(key, write.key.id.0, lookback_ms) }
    })
}

pub(super) fn entry(key: Key, id: u64, lookback_ms: Option<u64>) -> Put {
    let mut value = Vec::new();
    codec::put_index_value(&mut value, id, lookback_ms);
    let (row, column) = split(&key);
    Put { row, column, value, time: None, ttl_ms: None }
}

pub(super) fn page(scan: &Scan) -> Page {
    let first = match &scan.after {
        Some(entry) => {
            let last = key::index(scan.key, &entry.fact, entry.time);
            key::next(&last).unwrap_or([u8::MAX; KEY_BYTES])
        }
        None => key::index_from(scan.key, scan.pid, scan.newest),
    };
    let (row, first) = split(&first);
    let end = key::index_end_column(scan.oldest);
    Page { row, columns: first..end, limit: scan.limit }
}

pub(super) fn index_entry(
    family: Family,
    row: &[u8],
    column: Vec<u8>,
    value: Vec<u8>,
) -> Result<IndexEntry, StoreError> {
    let damage = || StoreError::corrupt("an index entry");
    key::decode_index(family, &join(row, &column)?, codec::index_id(&value)?).ok_or_else(damage)
}
