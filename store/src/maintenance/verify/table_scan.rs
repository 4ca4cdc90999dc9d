//! Scans and lookups that continue after damaged files.

use std::collections::BTreeMap;

use rocksdb::ReadOptions;

use super::findings::Findings;
use super::report::Check;
use super::snapshot::Snapshot;
use crate::StoreError;

/// A key and its value.
pub type Entry = (Box<[u8]>, Box<[u8]>);

/// Limits of a chunk. Larger chunks make lookups cheaper, because these are sorted by key.
const CHUNK_ENTRIES: usize = 4_096;
const CHUNK_BYTES: usize = 8 << 20;
const READ_AHEAD_BYTES: usize = 2 << 20;

/// The result of a lookup of a key that may exist.
pub enum Found {
    Value(Box<[u8]>),
    /// Its file is damaged.
    Unreadable,
}

/// Calls `visit` with all entries of a table, in key order and in chunks, and writes the repairs of each. The rest of a
/// damaged file is skipped.
pub fn scan_table(
    snapshot: &Snapshot<'_>,
    findings: &mut Findings<'_>,
    check: Check,
    table: &str,
    mut visit: impl FnMut(&mut Findings<'_>, &[Entry]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let tables = &snapshot.tables;
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    options.set_total_order_seek(true);
    options.set_readahead_size(READ_AHEAD_BYTES);
    let mut entries = tables.db.raw_iterator_cf_opt(&tables.table(table), options);
    entries.seek_to_first();
    let mut last: Box<[u8]> = Box::default();
    loop {
        let (mut chunk, mut bytes): (Vec<Entry>, usize) = (Vec::new(), 0);
        while chunk.len() < CHUNK_ENTRIES && bytes < CHUNK_BYTES {
            let Some((key, value)) = entries.item() else { break };
            bytes += key.len() + value.len();
            chunk.push((Box::from(key), Box::from(value)));
            entries.next();
        }
        let is_end = !entries.valid();
        if let Some((key, _)) = chunk.last() {
            last = key.clone();
        }
        visit(findings, &chunk)?;
        findings.write_fixes(tables)?;
        findings.advance(check, chunk.len());
        if !is_end {
            continue;
        }
        let Err(failure) = entries.status() else { return Ok(()) };
        let name = findings.note_failure(tables, failure)?;
        let end = name.as_deref().and_then(|name| findings.files.end(name));
        // The first key after the damaged file.
        let next = end.map(|end| [end, &[0]].concat()).filter(|next| **next > *last);
        let Some(next) = next else { return Ok(()) };
        entries.seek(&next);
        last = next.into();
    }
}

/// Looks up keys of a table, which may be in any order. Keys that do not exist are left out.
pub fn look_up<K: AsRef<[u8]> + Ord + Copy>(
    snapshot: &Snapshot<'_>,
    table: &str,
    keys: impl IntoIterator<Item = K>,
    findings: &mut Findings<'_>,
) -> Result<BTreeMap<K, Found>, StoreError> {
    let tables = &snapshot.tables;
    let mut keys: Vec<K> = keys.into_iter().collect();
    keys.sort_unstable();
    keys.dedup();
    let values = tables.db.batched_multi_get_cf(&tables.table(table), &keys, true);
    let mut found = BTreeMap::new();
    for (key, value) in keys.iter().zip(values) {
        match value {
            Ok(None) => continue,
            Ok(Some(value)) => found.insert(*key, Found::Value(Box::from(&*value))),
            Err(failure) => {
                findings.note_failure(tables, failure)?;
                found.insert(*key, Found::Unreadable)
            }
        };
    }
    Ok(found)
}
