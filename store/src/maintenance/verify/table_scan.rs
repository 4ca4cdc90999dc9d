//! Reads tables through, past what is damaged.

use rocksdb::{ErrorKind, ReadOptions};

use super::files::named_file;
use super::{Check, Checker, Progress};
use crate::StoreError;
use crate::layout::key::Key;

/// A key and its value.
pub type Entry = (Box<[u8]>, Box<[u8]>);

/// So much is looked at together: look-ups in key order read less.
const CHUNK_ENTRIES: usize = 4_096;
const CHUNK_BYTES: usize = 8 << 20;
const READ_AHEAD_BYTES: usize = 2 << 20;

/// What stands under a key.
pub enum Found {
    Nothing,
    Value(Box<[u8]>),
    /// Its file is damaged.
    Unreadable,
}

/// What stands under some keys.
pub struct LookedUp {
    keys: Vec<Key>,
    found: Vec<Found>,
}

impl LookedUp {
    /// Of one of the keys that were asked for.
    pub fn of(&self, key: &Key) -> &Found {
        self.keys
            .binary_search(key)
            .ok()
            .and_then(|at| self.found.get(at))
            .unwrap_or(&Found::Nothing)
    }
}

impl Checker<'_> {
    /// Hands all entries of a table to `visit`, some thousand at a time, in key order. Of a damaged
    /// file the rest is passed over.
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

    /// Notes a damaged file, and says where what comes after it begins.
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

    /// Notes that a file is damaged and names it; other failures are the caller's.
    pub fn note_failure(&mut self, failure: rocksdb::Error) -> Result<Option<String>, StoreError> {
        if !matches!(failure.kind(), ErrorKind::Corruption | ErrorKind::IOError) {
            return Err(failure.into());
        }
        let text = failure.to_string();
        let name = named_file(&text);
        match &name {
            Some(name) => self.files.note(name.clone(), &mut self.report),
            None if self.files.note_closed(&self.tables, &mut self.report) => {}
            None => self.files.note(text, &mut self.report),
        }
        Ok(name)
    }

    /// What stands under the keys of a table, in any order.
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
