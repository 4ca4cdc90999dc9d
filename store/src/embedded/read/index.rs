//! Scans of index entries, stored and pending.

use attribution::ledger::index::{IndexEntry, Scan};

use crate::StoreError;
use crate::embedded::db::RawIterator;
use crate::embedded::tables::Tables;
use crate::embedded::write::pending::Pending;
use crate::layout::codec;
use crate::layout::key::{self, FACT_PREFIX_BYTES};

/// Returns a page of each scan, in the order of `scans`.
pub fn scan(
    tables: &Tables,
    pending: &Pending,
    scans: &[Scan],
) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
    let mut pages = vec![Vec::new(); scans.len()];
    for (family, mut indexes) in key::by_family(scans.iter().map(|scan| scan.family).enumerate()) {
        indexes.sort_unstable_by_key(|index| scans[*index].key);
        let mut entries = tables.index_iterator(family);
        for index in indexes {
            pages[index] = page(&mut entries, pending, &scans[index])?;
        }
    }
    Ok(pages)
}

/// One page of a scan: stored and pending entries, merged in key order.
fn page(
    entries: &mut RawIterator<'_>,
    pending: &Pending,
    scan: &Scan,
) -> Result<Vec<IndexEntry>, StoreError> {
    let mut page = Vec::new();
    if scan.newest < scan.oldest {
        return Ok(page);
    }
    let first = match &scan.after {
        Some(entry) => key::index(scan.key, &entry.fact, entry.time),
        None => key::index_from(scan.key, scan.pid, scan.newest),
    };
    let prefix = &first[..FACT_PREFIX_BYTES];
    let mut pending_entries = pending.from(scan.family, &first).iter().peekable();
    entries.seek(first);
    while page.len() < scan.limit {
        let stored = entries.key().filter(|key| key.starts_with(prefix));
        let next = pending_entries.peek().filter(|entry| entry.key.starts_with(prefix)).copied();
        let (key, id) = match (stored, next) {
            (None, None) => break,
            // A pending entry replaces the stored one with the same key.
            (stored, Some(next)) if stored.is_none_or(|stored| &next.key[..] <= stored) => {
                pending_entries.next();
                if stored == Some(&next.key[..]) {
                    entries.next();
                }
                match pending.value(next) {
                    Some(id) => (next.key, codec::index_id(id)?),
                    None => continue,
                }
            }
            (Some(stored), _) => {
                let found = (copy(stored)?, codec::index_id(entries.value().unwrap_or_default())?);
                entries.next();
                found
            }
            (None, Some(_)) => break,
        };
        if scan.after.is_some() && key == first {
            continue;
        }
        let entry = key::decode_index(scan.family, &key, id)
            .ok_or_else(|| StoreError::corrupt("an index entry"))?;
        if entry.time < scan.oldest {
            break;
        }
        page.push(entry);
    }
    entries.status()?;
    Ok(page)
}

fn copy(key: &[u8]) -> Result<key::Key, StoreError> {
    key.try_into().map_err(|_| StoreError::corrupt("a key of an unknown length"))
}
