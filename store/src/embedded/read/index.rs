//! Scans of index entries.

use attribution::facts::event::Family;
use attribution::ledger::index::{IndexEntry, Scan};

use crate::StoreError;
use crate::embedded::tables::Tables;
use crate::embedded::write::pending::Pending;
use crate::layout::codec;
use crate::layout::key::{self, FACT_PREFIX_BYTES};

/// A page of each scan: what is stored, and what waits to be.
pub fn scan(
    tables: &Tables,
    pending: &Pending,
    scans: &[Scan],
) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
    let mut pages = vec![Vec::new(); scans.len()];
    for family in Family::ALL {
        let mut order: Vec<usize> =
            (0..scans.len()).filter(|place| scans[*place].family == family).collect();
        if order.is_empty() {
            continue;
        }
        order.sort_unstable_by_key(|place| scans[*place].key);
        let mut entries = tables.index_iterator(family);
        for place in order {
            pages[place] = page(&mut entries, pending, &scans[place])?;
        }
    }
    Ok(pages)
}

/// One page of a scan: what is stored and what is pending, merged in key order.
fn page(
    entries: &mut rocksdb::DBRawIterator<'_>,
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
    let mut waiting = pending.from(scan.family, &first).iter().peekable();
    entries.seek(first);
    while page.len() < scan.limit {
        let stored = entries.key().filter(|key| key.starts_with(prefix));
        let next = waiting.peek().filter(|entry| entry.key.starts_with(prefix)).copied();
        let (key, id) = match (stored, next) {
            (None, None) => break,
            // What is pending stands before what is stored, and in place of it.
            (stored, Some(next)) if stored.is_none_or(|stored| &next.key[..] <= stored) => {
                waiting.next();
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
