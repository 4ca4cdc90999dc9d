//! Scans of index entries: those in RocksDB, and those of batches that may not be there yet.

use attribution::facts::event::Family;
use attribution::ledger::index::{IndexEntry, Scan};

use crate::StoreError;
use crate::embedded::db::RawIterator;
use crate::embedded::tables::Tables;
use crate::embedded::touches::filter::{FilterView, KeyHash};
use crate::embedded::touches::read::TouchEntries;
use crate::embedded::write::pending::{Merged, Pending};
use crate::layout::codec;
use crate::layout::key::{self, FACT_PREFIX_BYTES, Key};

/// Returns a page of each scan, in the order of `scans`. `unstored` are the batches that RocksDB may not have yet, newest
/// first; `activations` is the filter of all stored and unstored activations.
pub fn scan<const N: usize>(
    tables: &Tables,
    unstored: [&Pending; N],
    activations: &FilterView,
    scans: &[Scan],
) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
    let mut pages = vec![Vec::new(); scans.len()];
    for (family, mut indexes) in key::by_family(scans.iter().map(|scan| scan.family).enumerate()) {
        if family == Family::Activation {
            let first = |scan: &Scan| key::index_from(scan.key, scan.pid, scan.newest);
            let hash = |index: &usize| KeyHash::of(&first(&scans[*index]));
            indexes.retain(|index| activations.may_contain(hash(index)));
        }
        if indexes.is_empty() {
            continue;
        }
        indexes.sort_unstable_by_key(|index| scans[*index].key);
        let mut entries = match family {
            Family::Touch => StoredEntries::Touches(TouchEntries::new(&tables.db, &tables.touches)),
            _ => StoredEntries::Table(tables.index_iterator(family)),
        };
        for index in indexes {
            pages[index] = page(&mut entries, unstored, &scans[index])?;
        }
    }
    Ok(pages)
}

/// The stored entries of a key, newest first.
enum StoredEntries<'d> {
    Table(RawIterator<'d>),
    Touches(TouchEntries<'d>),
}

impl StoredEntries<'_> {
    /// Moves to the first entry of a scan at or after the key `first`.
    fn seek(&mut self, first: &Key, scan: &Scan) -> Result<(), StoreError> {
        match self {
            Self::Table(entries) => entries.seek(first),
            Self::Touches(entries) => entries.seek(first, scan)?,
        }
        Ok(())
    }

    /// The present entry, if it has this prefix.
    fn item(&self, prefix: &[u8]) -> Option<(&[u8], &[u8])> {
        let item = match self {
            Self::Table(entries) => entries.item(),
            Self::Touches(entries) => entries.item(),
        };
        item.filter(|(key, _)| key.starts_with(prefix))
    }

    fn advance(&mut self) -> Result<(), StoreError> {
        match self {
            Self::Table(entries) => entries.next(),
            Self::Touches(entries) => entries.advance()?,
        }
        Ok(())
    }

    /// Checks that the entries ended without an error.
    fn check(&self) -> Result<(), StoreError> {
        match self {
            Self::Table(entries) => Ok(entries.status()?),
            // Errors are returned at once.
            Self::Touches(_) => Ok(()),
        }
    }
}

/// One page of a scan: stored and unstored entries, merged in key order.
fn page<const N: usize>(
    entries: &mut StoredEntries<'_>,
    unstored: [&Pending; N],
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
    let mut unstored = Merged::new(unstored, scan.family, &first);
    entries.seek(&first, scan)?;
    // The next entry may be in an older table, so it is only looked for once it is needed.
    let mut is_used = false;
    while page.len() < scan.limit {
        if std::mem::take(&mut is_used) {
            entries.advance()?;
        }
        let stored = entries.item(prefix);
        let next = unstored.peek().filter(|(key, _)| key.starts_with(prefix));
        let (key, id) = match (stored, next) {
            (None, None) => break,
            // An unstored entry replaces the stored one with the same key.
            (stored, Some((next, value))) if stored.is_none_or(|(key, _)| &next[..] <= key) => {
                unstored.advance();
                is_used = stored.is_some_and(|(key, _)| key == &next[..]);
                match value {
                    Some(value) => (*next, codec::index_id(value)?),
                    None => continue,
                }
            }
            (Some((key, value)), _) => {
                is_used = true;
                (copy(key)?, codec::index_id(value)?)
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
    entries.check()?;
    Ok(page)
}

fn copy(key: &[u8]) -> Result<Key, StoreError> {
    key.try_into().map_err(|_| StoreError::corrupt("a key of an unknown length"))
}
