//! Scans of tables that continue after damaged files.

use rocksdb::{ErrorKind, ReadOptions};

use super::files::named_file;
use super::{Check, Checker, Progress};
use crate::StoreError;
use crate::layout::key::Key;

/// A key and its value.
pub type Entry = (Box<[u8]>, Box<[u8]>);

/// Limits of a chunk. Larger chunks make lookups cheaper, because these are sorted by key.
const CHUNK_ENTRIES: usize = 4_096;
const CHUNK_BYTES: usize = 8 << 20;
const READ_AHEAD_BYTES: usize = 2 << 20;

/// The result of a lookup.
pub enum Found {
    Nothing,
    Value(Box<[u8]>),
    /// Its file is damaged.
    Unreadable,
}

/// The results of lookups, by key.
pub struct LookedUp {
    keys: Vec<Key>,
    found: Vec<Found>,
}

impl LookedUp {
    /// The result for one of the keys.
    pub fn of(&self, key: &Key) -> &Found {
        self.keys
            .binary_search(key)
            .ok()
            .and_then(|at| self.found.get(at))
            .unwrap_or(&Found::Nothing)
    }
}

impl Checker<'_> {
    /// Calls `visit` with all entries of a table, in key order and in chunks. The rest of a damaged file is skipped.
    pub fn scan_table(
        &mut self,
        check: Check,
        table: &'static str,
        mut visit: impl FnMut(&mut Self, Vec<Entry>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let tables = self.tables.clone();
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        options.set_total_order_seek(true);
        options.set_readahead_size(READ_AHEAD_BYTES);
        let mut entries = tables.db.raw_iterator_cf_opt(tables.table(table), options);
        entries.seek_to_first();
        let mut last: Box<[u8]> = Box::default();
        loop {
            let (mut chunk, mut bytes): (Vec<Entry>, usize) = (Vec::new(), 0);
            while chunk.len() < CHUNK_ENTRIES && bytes < CHUNK_BYTES {
                let (Some(key), Some(value)) = (entries.key(), entries.value()) else { break };
                bytes += key.len() + value.len();
                chunk.push((Box::from(key), Box::from(value)));
                entries.next();
            }
            let is_end = !entries.valid();
            if let Some((key, _)) = chunk.last() {
                last = key.clone();
            }
            self.done += chunk.len() as u64;
            visit(self, chunk)?;
            self.write_fixes()?;
            (self.watch)(Progress { check, done: self.done, total: self.total.max(self.done) });
            if !is_end {
                continue;
            }
            let Err(failure) = entries.status() else { return Ok(()) };
            let Some(next) = self.after_damage(failure, &last)? else { return Ok(()) };
            entries.seek(&next);
            last = next;
        }
    }

    /// Reports a damaged file, and returns the first key after it.
    fn after_damage(
        &mut self,
        failure: rocksdb::Error,
        last: &[u8],
    ) -> Result<Option<Box<[u8]>>, StoreError> {
        let name = self.note_failure(failure)?;
        let end = name.as_deref().and_then(|name| self.files.end(name));
        let next = end.map(|end| [end, &[0]].concat());
        Ok(next.filter(|next| **next > *last).map(Vec::into_boxed_slice))
    }

    /// Reports a damaged file and returns its name, if known. Other failures are returned as errors.
    pub fn note_failure(&mut self, failure: rocksdb::Error) -> Result<Option<String>, StoreError> {
        if !matches!(failure.kind(), ErrorKind::Corruption | ErrorKind::IOError) {
            return Err(failure.into());
        }
        let text = failure.to_string();
        let name = named_file(&text);
        match &name {
            Some(name) => self.files.note(name.clone(), &mut self.report),
            None if self.files.note_unopenable(&self.tables, &mut self.report) => {}
            None => self.files.note(text, &mut self.report),
        }
        Ok(name)
    }

    /// Looks up keys of a table, which may be in any order.
    pub fn look_up(&mut self, table: &str, mut keys: Vec<Key>) -> Result<LookedUp, StoreError> {
        keys.sort_unstable();
        keys.dedup();
        let tables = self.tables.clone();
        let values = tables.db.batched_multi_get_cf(tables.table(table), &keys, true);
        let mut found = Vec::with_capacity(keys.len());
        for value in values {
            found.push(match value {
                Ok(None) => Found::Nothing,
                Ok(Some(value)) => Found::Value(Box::from(&*value)),
                Err(failure) => {
                    self.note_failure(failure)?;
                    Found::Unreadable
                }
            });
        }
        Ok(LookedUp { keys, found })
    }
}
