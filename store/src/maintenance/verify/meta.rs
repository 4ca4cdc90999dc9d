//! Checks the metadata of a store: apps, positions and the low watermark. Regions and totals are checked with the
//! counts.

use std::collections::BTreeSet;

use attribution::facts::event::{EventTime, Pid};
use rocksdb::WriteBatch;

use super::table_scan::Entry;
use super::{Check, Checker, Problem, at};
use crate::StoreError;
use crate::apps::record::{self, App};
use crate::clock::now;
use crate::embedded::open::column_families::{CELLS, META, OFFSETS};
use crate::embedded::open::meta::{self, APP, FINGERPRINTS, LAST_FINGERPRINTS};
use crate::embedded::tables::Tables;
use crate::embedded::write::expiry_floor::EXPIRING;
use crate::embedded::write::regions;
use crate::expiry::floor;
use crate::layout::hourly_counts::{self, CELL_KEY_BYTES, Cell, CellKey};
use crate::layout::key::{self, RowKey};

impl Checker<'_> {
    pub fn check_meta(&mut self) -> Result<(), StoreError> {
        let mut unreadable: BTreeSet<Pid> = BTreeSet::new();
        self.scan_table(Check::Meta, META, |checker, chunk| {
            checker.report.add_checked(Check::Meta, chunk.len());
            for (name, value) in chunk {
                unreadable.extend(checker.load_app(&name, &value));
                checker.check_fingerprint(&name, &value);
                checker.check_expiry_record(&name, &value);
            }
            Ok(())
        })?;
        self.scan_table(Check::Meta, OFFSETS, |checker, chunk| {
            checker.check_positions(&chunk);
            Ok(())
        })?;
        let with_rows = self.pids_of_rows()?;
        unreadable.extend(with_rows.iter().filter(|pid| !self.apps.contains_key(pid)));
        for pid in &unreadable {
            let (pid, named) = (*pid, self.app_name(*pid));
            match self.derive_app(pid)? {
                Some(app) => {
                    self.apps.insert(pid, app);
                    self.find_and(Problem::AppUnreadable, || named, put_app(pid, app));
                }
                None if with_rows.contains(&pid) => self.find(Problem::AppUnreadable, || named),
                // The app is not in the settings and has no rows, so its record is not needed.
                None => self.find_and(
                    Problem::AppUnreadable,
                    || named,
                    |batch, tables| {
                        meta::delete_app(batch, tables, pid);
                    },
                ),
            }
        }
        let apps: Vec<Pid> = self.apps.keys().copied().collect();
        apps.into_iter().try_for_each(|pid| self.check_oldest(pid))?;
        self.check_consumed_until()?;
        self.write_fixes()
    }

    /// Checks that no counted rows exist before the retention cutoff of an app. If some do, the cutoff is moved back to
    /// the first of them.
    fn check_oldest(&mut self, pid: Pid) -> Result<(), StoreError> {
        let Some(mut app) = self.app(pid) else { return Ok(()) };
        let counted = meta::counted_before(&self.tables, (pid, &app), self.settings.partitions);
        let counted = match counted {
            Err(StoreError::Engine(failure)) => {
                self.note_failure(failure)?;
                return Ok(());
            }
            counted => counted?,
        };
        let start =
            |cell| RowKey::decode(&hourly_counts::first_row(cell)).map(|first| first.event_time);
        let Some(oldest) = counted.iter().filter_map(start).min() else { return Ok(()) };
        let stored = app;
        app.oldest = oldest;
        self.apps.insert(pid, app);
        let mut have_rows = false;
        for cell in &counted {
            have_rows |= self.has_rows(cell)?;
        }
        if !have_rows {
            // The counts are wrong, not the cutoff.
            self.apps.insert(pid, stored);
            return Ok(());
        }
        let named = self.app_name(pid);
        self.find_and(Problem::AppAhead, || named, put_app(pid, app));
        Ok(())
    }

    fn check_consumed_until(&mut self) -> Result<(), StoreError> {
        match meta::consumed_until(&self.tables) {
            Err(StoreError::Engine(failure)) => drop(self.note_failure(failure)?),
            Err(StoreError::Corrupt { .. } | StoreError::AheadOfClock { .. }) => {
                let named = || at(META, meta::CONSUMED_UNTIL);
                let until = self.expiry.until().get().unwrap_or_default();
                self.find_and(Problem::ConsumedUntilWrong, named, |batch, tables| {
                    meta::put_consumed_until(batch, tables, until);
                });
            }
            known => drop(known?),
        }
        Ok(())
    }

    /// Derives the low watermark: the hour of the newest row, but at most the time of the last write, as rows may be in
    /// the future. A value that is too early only keeps state longer.
    pub fn derive_consumed_until(&mut self) -> Result<EventTime, StoreError> {
        let mut newest = EventTime::default();
        self.scan_table(Check::Meta, CELLS, |_, chunk| {
            for (key, value) in chunk {
                let has_rows = Cell::decode(&value).is_some_and(|cell| cell.rows() > 0);
                let cell = CellKey::try_from(&*key).ok().filter(|_| has_rows);
                let first = cell.and_then(|cell| RowKey::decode(&hourly_counts::first_row(&cell)));
                newest = newest.max(first.map_or(EventTime::default(), |first| first.event_time));
            }
            Ok(())
        })?;
        let regions = regions::load(&self.tables).unwrap_or_default();
        let written = regions.iter().map(|region| region.writes.as_of()).max().unwrap_or_default();
        let is_known = written > EventTime::default();
        Ok(newest.min(now()).min(if is_known { written } else { newest }))
    }

    /// Loads the record of an app. Returns its pid if the record is damaged.
    fn load_app(&mut self, name: &[u8], value: &[u8]) -> Option<Pid> {
        let pid = name.strip_prefix(APP)?;
        let Ok(pid) = pid.try_into().map(u32::from_be_bytes).map(Pid) else {
            let named = || at(META, name);
            self.find_and(Problem::AppUnreadable, named, |batch, tables| {
                batch.delete_cf(tables.meta(), name);
            });
            return None;
        };
        match App::decode(value) {
            Some(app) if app.is_possible(self.settings.partitions, now()) => {
                self.apps.insert(pid, app);
                None
            }
            _ => Some(pid),
        }
    }

    fn check_fingerprint(&mut self, name: &[u8], value: &[u8]) {
        let is_fingerprint =
            [FINGERPRINTS, LAST_FINGERPRINTS].iter().any(|prefix| name.starts_with(prefix));
        if is_fingerprint && key::decode_fingerprint(value).is_none() {
            // Without the fingerprint, a recreated topic is not detected until the next commit.
            let named = || at(META, name);
            self.find_and(Problem::PositionUnreadable, named, |batch, tables| {
                batch.delete_cf(tables.meta(), name);
            });
        }
    }

    /// Deletes a damaged expiry record, and with it the expiry floor of earlier settings.
    fn check_expiry_record(&mut self, name: &[u8], value: &[u8]) {
        let Some(pid) = name.strip_prefix(EXPIRING) else { return };
        if floor::decode(pid, value, now()).is_err() {
            let named = || at(META, name);
            self.find_and(Problem::AppUnreadable, named, |batch, tables| {
                batch.delete_cf(tables.meta(), name);
            });
        }
    }

    fn check_positions(&mut self, chunk: &[Entry]) {
        self.report.add_checked(Check::Meta, chunk.len());
        for (key, value) in chunk {
            let position = key::decode_position(key, value);
            if position.is_none_or(|position| position.next_offset < 0 || position.partition < 0) {
                // Without it the partition is read from its beginning; known events are redeliveries.
                let named = || at(OFFSETS, key);
                self.find_and(Problem::PositionUnreadable, named, |batch, tables| {
                    batch.delete_cf(tables.offsets(), key);
                });
            }
        }
    }

    /// The apps that have rows, by one seek per app and partition.
    fn pids_of_rows(&mut self) -> Result<BTreeSet<Pid>, StoreError> {
        let mut pids = BTreeSet::new();
        let tables = self.tables.clone();
        let mut rows = tables.db.raw_iterator_cf(tables.events());
        rows.seek_to_first();
        while let Some(key) = rows.key() {
            let Some(key) = RowKey::decode(key) else {
                rows.next();
                continue;
            };
            pids.insert(key.pid);
            let (partition, pid) = match key.pid.0.checked_add(1) {
                Some(pid) => (key.partition, Pid(pid)),
                None if key.partition == u16::MAX => break,
                None => (key.partition + 1, Pid(0)),
            };
            rows.seek(key::row_from(partition, pid, EventTime::default()));
        }
        if let Err(failure) = rows.status() {
            self.note_failure(failure)?;
        }
        Ok(pids)
    }

    /// Derives the record of an app: its fanout from the partitions of its rows, its retention cutoff from the oldest
    /// hourly count.
    fn derive_app(&mut self, pid: Pid) -> Result<Option<App>, StoreError> {
        let partitions = self.settings.partitions;
        let mut found: BTreeSet<u16> = BTreeSet::new();
        for partition in 0..partitions {
            let first = key::row_from(partition, pid, EventTime::default());
            let tables = self.tables.clone();
            let mut rows = tables.db.raw_iterator_cf(tables.events());
            rows.seek(first);
            let key = rows.key().and_then(RowKey::decode);
            if key.is_some_and(|key| (key.partition, key.pid) == (partition, pid)) {
                found.insert(partition);
            }
        }
        let mut oldest: Option<EventTime> = None;
        self.scan_table(Check::Meta, CELLS, |_, chunk| {
            let cells = chunk.iter().filter_map(|(key, _)| CellKey::try_from(&**key).ok());
            for cell in
                cells.filter(|cell| hourly_counts::pid(cell) == pid && cell.len() == CELL_KEY_BYTES)
            {
                let start =
                    RowKey::decode(&hourly_counts::first_row(&cell)).map(|first| first.event_time);
                oldest = oldest.into_iter().chain(start).min();
            }
            Ok(())
        })?;
        let by_key = self.policy.app(pid).map(|app| key::partition(&app.key, partitions));
        let bases: Vec<u16> = by_key.into_iter().chain(found.iter().copied()).collect();
        for bits in 0..=record::fanout_bits_limit(partitions) {
            for base in &bases {
                let possible: BTreeSet<u16> = key::spread(*base, bits, partitions).collect();
                if found.is_subset(&possible) {
                    let mut app = App::new(*base);
                    app.spread(bits);
                    app.begin_at(oldest.unwrap_or_default());
                    app.reached = app.reached.max(now());
                    return Ok(Some(app));
                }
            }
        }
        Ok(None)
    }
}

fn put_app(pid: Pid, app: App) -> impl FnOnce(&mut WriteBatch, &Tables) {
    move |batch, tables| meta::put_app(batch, tables, pid, &app)
}
