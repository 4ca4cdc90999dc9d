//! Facts and rows of stores of past layouts stand under another hash of their ids. They are brought under the
//! present one in place, in passes:
//!
//! | pass | needs | where it was begun before |
//! |---|---|---|
//! | what leads to homes, and names them | homes under their past keys | it goes on where it was |
//! | homes | only themselves | those that were moved stay |
//! | rows | where an app is spread, homes under their present keys | those that were moved stay |
//!
//! Then all that is told of rows is counted anew. Until that is done the store is of a layout that nobody reads.

use attribution::facts::event::{Family, Pid};
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::facts::match_keys;
use attribution::ledger::record::{CurrentRow, FactRecord};
use attribution::rules::row::{EventType, seq};
use rocksdb::{ColumnFamily, WriteBatch};

use super::open::{layout_version, meta};
use super::tables::Tables;
use super::write::rebuild_aggregates;
use crate::StoreError;
use crate::apps::spread::{self, App, Apps};
use crate::layout::codec::row::{RowView, TextCell};
use crate::layout::codec::{self, fact};
use crate::layout::hourly_counts::Cell;
use crate::layout::key::{self, FactPlace, KEY_BYTES, Key, RowKey};

/// Entries whose keys begin with these stand for one match, app and time.
const GROUP_BYTES: usize = 18;
/// So many changes are written together, and those of a group always.
const CHANGES: usize = 2_000;

/// Hears how much was written, after each time.
pub type Progress<'p> = dyn FnMut(usize) -> Result<(), StoreError> + 'p;

/// Gives the totals of all rows.
pub fn all(
    tables: &Tables,
    settings: &config::Store,
    progress: &mut Progress<'_>,
) -> Result<Cell, StoreError> {
    Pass { tables, batch: WriteBatch::default(), changes: CHANGES, progress }.run(settings)?;
    rebuild_aggregates::all(tables, settings)
}

struct Pass<'p, 'q> {
    tables: &'p Tables,
    batch: WriteBatch,
    changes: usize,
    progress: &'p mut Progress<'q>,
}

impl Pass<'_, '_> {
    fn run(mut self, settings: &config::Store) -> Result<(), StoreError> {
        let tables = self.tables;
        meta::put_layout(&mut self.batch, tables, layout_version::UNFINISHED);
        self.write()?;
        let (begun, from) = meta::rekeyed(tables)?;
        for (place, family) in Family::ALL.into_iter().enumerate().skip(begun) {
            let from = if place == begun { &from[..] } else { &[] };
            self.references((place, family), from)?;
        }
        for family in Family::ALL {
            self.records(family)?;
        }
        self.rows(&meta::apps(tables, settings.partitions)?, settings.partitions)?;
        Ok(tables.db.flush_wal(true)?)
    }

    fn references(
        &mut self,
        (place, family): (usize, Family),
        from: &[u8],
    ) -> Result<(), StoreError> {
        let tables = self.tables;
        let table = tables.facts(family);
        let mut group = [0; GROUP_BYTES];
        tables.each_entry(table, from, |key, value| {
            if !key.starts_with(&group) {
                if self.batch.len() >= self.changes {
                    // Past all of the group, whatever it holds by now.
                    let next = [&group[..], &[u8::MAX; KEY_BYTES - GROUP_BYTES + 1]].concat();
                    meta::put_rekeyed(&mut self.batch, tables, (place, &next));
                    self.write()?;
                }
                group = *key.first_chunk().ok_or_else(|| StoreError::corrupt("a fact's key"))?;
            }
            match key::decode_fact(key).ok_or_else(|| StoreError::corrupt("a fact's key"))? {
                FactPlace::FactRecord { pid, .. } if family == Family::Activation => {
                    if let Some(value) = self.with_causes(pid, value)? {
                        self.batch.put_cf(table, key, value);
                    }
                    Ok(())
                }
                FactPlace::FactRecord { .. } => Ok(()),
                FactPlace::Index { pid, tag, .. } => {
                    self.entry(table, key, value, (family, pid, tag))
                }
            }
        })?;
        meta::put_rekeyed(&mut self.batch, tables, (place + 1, &[]));
        self.write()
    }

    /// An entry of a fact that is gone goes; a mark leads to none.
    fn entry(
        &mut self,
        table: &ColumnFamily,
        key: &[u8],
        value: &[u8],
        (family, pid, tag): (Family, Pid, u64),
    ) -> Result<(), StoreError> {
        let damage = || StoreError::corrupt("an index entry");
        let (id, lookback) = value.split_first_chunk().ok_or_else(damage)?;
        let id = MatchKey(u64::from_be_bytes(*id));
        let past = FactKey { family, id, pid, tag };
        if id == MatchKey(0) {
            return Ok(());
        }
        let current_row = self.current_row(past)?;
        if current_row == Some(past) {
            return Ok(());
        }
        self.batch.delete_cf(table, key);
        if let Some(current_row) = current_row {
            let key = key::with_tag(key.try_into().map_err(|_| damage())?, current_row.tag);
            let value = [&current_row.id.0.to_be_bytes(), lookback].concat();
            self.batch.put_cf(table, key, value);
        }
        Ok(())
    }

    /// A home that names others, by their present keys; those that are gone are more that may have been.
    fn with_causes(&self, pid: Pid, value: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let mut record = codec::fact_record::decode(Family::Activation, pid, value)?;
        let FactRecord::Activation(activation) = &mut record else { return Ok(None) };
        let causes = &mut activation.changed_by;
        if causes.facts.is_empty() {
            return Ok(None);
        }
        let mut facts = Vec::with_capacity(causes.facts.len());
        for mut cause in std::mem::take(&mut causes.facts) {
            match self.current_row(cause.fact)? {
                Some(current_row) => {
                    cause.fact = current_row;
                    facts.push(cause);
                }
                None => causes.has_more = true,
            }
        }
        causes.facts = facts;
        let mut value = Vec::new();
        codec::fact_record::encode(&record, &mut value);
        Ok(Some(value))
    }

    /// The present key of what stands under a past one.
    fn current_row(&self, past: FactKey) -> Result<Option<FactKey>, StoreError> {
        let record =
            self.tables.db.get_pinned_cf(self.tables.facts(past.family), key::record(&past))?;
        let Some(record) = record else { return Ok(None) };
        Ok(Some(match_keys::fact_key(past.family, past.pid, &fact::id_of(&record)?)))
    }

    fn records(&mut self, family: Family) -> Result<(), StoreError> {
        let table = self.tables.facts(family);
        self.tables.each_entry(table, &[], |past, value| {
            if let Some(FactPlace::FactRecord { pid, .. }) = key::decode_fact(past) {
                let fact = match_keys::fact_key(family, pid, &fact::id_of(value)?);
                self.move_to(table, (past, &key::record(&fact)), value)?;
            }
            Ok(())
        })?;
        self.write()
    }

    fn rows(&mut self, apps: &Apps, partitions: u16) -> Result<(), StoreError> {
        let table = self.tables.events();
        self.tables.each_entry(table, &[], |key, value| {
            let past = RowKey::decode(key).ok_or_else(|| StoreError::corrupt("a row's key"))?;
            let row = RowView::decode(value)?;
            let id = row.text(TextCell::EventId);
            let mut current_row = RowKey { seq: seq(row.event_type, id), ..past };
            if current_row == past {
                return Ok(());
            }
            if let Some(app) = apps.of(past.pid).filter(|app| app.fan_bits_max > 0) {
                let fanout_bits =
                    self.fanout_bits(&app, &past, (row.event_type, id), partitions)?;
                current_row.partition =
                    key::row_partition(app.base, current_row.seq, fanout_bits, partitions);
            }
            self.move_to(table, (key, &current_row.encode()), value)
        })?;
        self.write()
    }

    /// Over how many partitions the app was spread when a row was written. Of one whose home is gone it is the
    /// least that its place can be by.
    fn fanout_bits(
        &self,
        app: &App,
        past: &RowKey,
        (event_type, id): (EventType, &str),
        partitions: u16,
    ) -> Result<u8, StoreError> {
        let family = event_type.family();
        let record = key::record(&match_keys::fact_key(family, past.pid, id));
        if let Some(value) = self.tables.db.get_pinned_cf(self.tables.facts(family), record)? {
            let current_row = match codec::fact_record::decode(family, past.pid, &value)? {
                FactRecord::Activation(record) => record.current_row,
                FactRecord::Effect(record) => record.current_row,
                FactRecord::Touch(_) => None,
            };
            if let Some(CurrentRow { place, .. }) = current_row {
                return Ok(place.fanout_bits);
            }
        }
        let of = |bits: &u8| key::row_partition(app.base, past.seq, *bits, partitions);
        let mut possible = 0..=app.fan_bits_max.min(spread::bits_max(partitions));
        possible
            .find(|bits| of(bits) == past.partition)
            .ok_or_else(|| StoreError::corrupt("a row's place"))
    }

    fn move_to(
        &mut self,
        table: &ColumnFamily,
        (past, current_row): (&[u8], &Key),
        value: &[u8],
    ) -> Result<(), StoreError> {
        if past == current_row {
            return Ok(());
        }
        self.batch.delete_cf(table, past);
        self.batch.put_cf(table, current_row, value);
        if self.batch.len() < self.changes { Ok(()) } else { self.write() }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        let batch = std::mem::take(&mut self.batch);
        let changes = batch.len();
        self.tables.db.write(batch)?;
        (self.progress)(changes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::process::Command;

    use attribution::rules::policy::{AppPolicy, Policy};
    use tempfile::TempDir;

    use super::*;
    use crate::embedded::Embedded;
    use crate::embedded::open::column_families::Limits;

    /// The store that the first build of a layout wrote.
    fn kept(layout: u32) -> (TempDir, config::Store) {
        let dir = TempDir::with_prefix("adtrail-store-").unwrap();
        let file = format!("tests/kept/layout-{layout}.tar.gz");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let tar = Command::new("tar").arg("-xzf").arg(file).arg("-C").arg(dir.path()).status();
        assert!(tar.unwrap().success());
        let settings = config::Store {
            path: dir.path().into(),
            partitions: 8,
            retention_ms: None,
            memory_bytes: 64 << 20,
            region_bytes_max: 1 << 30,
            fanout_above: None,
            apps: BTreeMap::new(),
            hbase: None,
        };
        (dir, settings)
    }

    fn open(settings: &config::Store) -> Tables {
        Tables::open(&settings.path, settings.memory_bytes, &Limits::none()).unwrap()
    }

    fn contents(settings: &config::Store) -> Vec<(Vec<u8>, Vec<u8>)> {
        let tables = open(settings);
        let mut found = Vec::new();
        let facts = Family::ALL.map(|family| tables.facts(family));
        for table in facts.into_iter().chain([tables.events(), tables.counts(), tables.cells()]) {
            let entry = |key: &[u8], value: &[u8]| {
                found.push((key.to_vec(), value.to_vec()));
                Ok(())
            };
            tables.each_entry(table, &[], entry).unwrap();
        }
        found
    }

    fn policy() -> Policy {
        let apps = [(1, "app-x"), (2, "app-y")];
        Policy::new(apps.map(|(pid, key)| AppPolicy::new(Pid(pid), key)).into(), Vec::new())
    }

    /// Writes a few changes at a time, and ends after so many writes. Whether it came to its end.
    fn ends_after(settings: &config::Store, writes: usize) -> bool {
        let tables = open(settings);
        let mut left = writes;
        let progress: &mut Progress<'_> = &mut |_| {
            left = left.checked_sub(1).ok_or_else(|| StoreError::corrupt("the end"))?;
            Ok(())
        };
        let batch = WriteBatch::default();
        Pass { tables: &tables, batch, changes: 3, progress }.run(settings).is_ok()
    }

    #[test]
    fn what_ends_midway_is_the_same_in_the_end() {
        for layout in [3, 5, 7] {
            let (_dir, expected) = kept(layout);
            drop(Embedded::open(&expected, &policy()).unwrap());
            let expected = contents(&expected);
            // From the first write on, and after each of them once.
            for &step in testbed::length(&[3, 19][..], &[3, 4, 7, 19, 50][..]) {
                let (_dir, settings) = kept(layout);
                let mut times = 0;
                while !ends_after(&settings, step + times) {
                    times += 1;
                }
                assert!(times > 3 || step > 20, "layout {layout}: {times} times");
                drop(Embedded::open(&settings, &policy()).unwrap());
                assert_eq!(contents(&settings), expected, "layout {layout}, by {step}");
            }
        }
    }
}
