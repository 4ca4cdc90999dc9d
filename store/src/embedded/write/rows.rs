//! Writes rows under their keys, with the counts and regions that change by them.

use std::collections::HashMap;

use attribution::facts::event::{EventTime, Pid};
use attribution::ledger::DecisionWrite;
use attribution::rules::policy::Policy;
use foldhash::fast::FixedState;
use rocksdb::{WriteBatch, WriteOptions};

use super::aggregates::AggregateChanges;
use super::reclaim_space::SpaceReclaimer;
use super::regions::{self, SharedRegions};
use crate::StoreError;
use crate::apps::record::{self, App, Apps};
use crate::clock::now;
use crate::embedded::open::meta::{self, Meta};
use crate::embedded::tables::Tables;
use crate::expiry::retention::{self, Retention};
use crate::layout::hourly_counts::{self, Cell, Changes};
use crate::layout::key::{self, KEY_BYTES, Key, RowKey};
use crate::layout::region::{Flow, Regions};
use crate::layout::summary_counts::Dimensions;
use crate::layout::{codec, row_meta};

/// Interval at which the read rates of regions are stored.
const READS_STORE_INTERVAL_MS: u64 = 10_000;
/// Limit for fanouts that are raised automatically.
const AUTO_FANOUT_BITS_MAX: u8 = 6;

pub struct RowTable {
    settings: config::Store,
    /// The writer's copy of `apps`, read without a lock.
    local_apps: HashMap<Pid, App, FixedState>,
    pub apps: Apps,
    pub retention: Retention,
    pub regions: SharedRegions,
    pub totals: Cell,
    reclaimer: SpaceReclaimer,
    /// Hourly counts that the batch in progress changes.
    changes: Changes,
    aggregates: AggregateChanges,
    /// Start keys of the regions that the batch changes.
    changed_regions: Vec<Key>,
    /// Apps of which the batch removes expired rows.
    swept: Vec<Pid>,
    /// Write rates of the apps whose fanout can be raised automatically.
    rates: HashMap<Pid, Flow, FixedState>,
    reads_stored_at: EventTime,
}

impl RowTable {
    pub fn open(
        tables: &Tables,
        meta: &Meta,
        settings: &config::Store,
        policy: &Policy,
        retention: Retention,
    ) -> Result<Self, StoreError> {
        let stored = regions::load(tables)?;
        let is_new = stored.is_empty();
        let regions = match is_new {
            true => Regions::new(settings.partitions, settings.region_bytes_max),
            false => Regions::of(settings.partitions, settings.region_bytes_max, stored)
                .ok_or_else(|| StoreError::corrupt("the regions"))?,
        };
        let apps = meta::apps(tables, settings.partitions)?;
        let mut rows = Self {
            settings: settings.clone(),
            local_apps: apps.all().into_iter().collect(),
            apps,
            retention,
            regions: SharedRegions::new(regions),
            totals: meta.totals,
            reclaimer: SpaceReclaimer::open(tables)?,
            changes: Changes::default(),
            aggregates: AggregateChanges::default(),
            changed_regions: Vec::new(),
            swept: Vec::new(),
            rates: HashMap::default(),
            reads_stored_at: now(),
        };
        let mut batch = WriteBatch::default();
        if is_new {
            regions::replace(&rows.regions.lock(), &mut batch, tables)?;
        }
        rows.start(batch, tables, meta, policy)?;
        Ok(rows)
    }

    /// Applies the settings of the apps: fanout and retention.
    fn start(
        &mut self,
        mut batch: WriteBatch,
        tables: &Tables,
        meta: &Meta,
        policy: &Policy,
    ) -> Result<(), StoreError> {
        for app in policy.apps() {
            let base = key::partition(&app.key, self.settings.partitions);
            let stored = self.local_apps.entry(app.pid).or_insert(App::new(base));
            match self.settings.apps.get(&app.pid).and_then(|app| app.fanout) {
                Some(fanout) => stored.set_fanout_bits(fanout.ilog2() as u8),
                None if self.settings.fanout_above.is_none() => stored.set_fanout_bits(0),
                None => {}
            }
        }
        let clock = retention::clock(now(), meta.consumed_until);
        for (pid, app) in &mut self.local_apps {
            let oldest = retention::cutoff(self.settings.retention_of(*pid), clock);
            if oldest < app.oldest {
                // Retention became longer: rows that no compaction has removed count again.
                let found =
                    super::rebuild_aggregates::rows(tables, *pid, app, oldest, &self.settings)?;
                let bytes: i64 = found.values().map(|change| change.cell.bytes).sum();
                self.reclaimer.sweep(-bytes, &mut batch, tables);
                self.changes.extend(found);
                app.set_oldest(oldest);
            }
            if self.apps.of(*pid) != Some(*app) {
                meta::put_app(&mut batch, tables, *pid, app);
                self.apps.put(*pid, *app);
            }
        }
        let oldest = self.local_apps.iter().map(|(pid, app)| (*pid, app.oldest));
        self.retention.start(oldest);
        self.finish(&mut batch, tables)?;
        tables.db.write(batch)?;
        self.after_commit(tables)
    }

    /// Adds the apps of the settings that the store does not have yet. The settings of the others are those with which
    /// the store was opened: other ones would move rows, or count them again.
    pub fn add_apps(
        &mut self,
        tables: &Tables,
        settings: &config::Store,
        policy: &Policy,
    ) -> Result<(), StoreError> {
        let (mut batch, mut added_apps) = (WriteBatch::default(), Vec::new());
        for app in policy.apps().filter(|app| !self.local_apps.contains_key(&app.pid)) {
            let mut added = App::new(key::partition(&app.key, self.settings.partitions));
            let of_app = settings.apps.get(&app.pid);
            if let Some(fanout) = of_app.and_then(|app| app.fanout) {
                added.set_fanout_bits(fanout.ilog2() as u8);
            }
            self.settings.apps.extend(of_app.map(|of_app| (app.pid, *of_app)));
            meta::put_app(&mut batch, tables, app.pid, &added);
            added_apps.push((app.pid, added));
        }
        if added_apps.is_empty() {
            return Ok(());
        }
        tables.write(batch, &WriteOptions::default())?;
        added_apps.iter().for_each(|(pid, app)| self.apps.put(*pid, *app));
        self.local_apps.extend(added_apps);
        self.retention.start(self.local_apps.iter().map(|(pid, app)| (*pid, app.oldest)));
        Ok(())
    }

    /// Removes expired rows from all counts. Must be called before any row of the batch is put.
    pub fn sweep(
        &mut self,
        batch: &mut WriteBatch,
        tables: &Tables,
        consumed_until: Option<EventTime>,
    ) -> Result<(), StoreError> {
        let clock = retention::clock(now(), consumed_until);
        for (pid, app) in &mut self.local_apps {
            let oldest = retention::cutoff(self.settings.retention_of(*pid), clock);
            if oldest <= app.oldest {
                continue;
            }
            for partition in app.partitions(self.settings.partitions) {
                let first = hourly_counts::cell_from(partition, *pid, EventTime::default());
                let end = hourly_counts::cell_from(partition, *pid, oldest);
                for (key, cell) in regions::cells(tables, &first, Some(&end))? {
                    batch.delete_cf(&tables.cells(), key);
                    self.changes.entry(key).or_default().cell.add(&cell.negated());
                }
            }
            app.set_oldest(oldest);
            meta::put_app(batch, tables, *pid, app);
            self.swept.push(*pid);
        }
        // The hourly counts themselves are deleted above; only sums change here.
        let removed = std::mem::take(&mut self.changes);
        removed.values().for_each(|change| self.totals.add(&change.cell));
        if !removed.is_empty() {
            let bytes: i64 = removed.values().map(|change| change.cell.bytes).sum();
            self.reclaimer.sweep(-bytes, batch, tables);
        }
        self.changed_regions = self.regions.apply(&removed, batch, tables);
        Ok(())
    }

    /// Puts the row of a decision, deletes the row that it replaces, and sets the row reference in `write.record`.
    pub fn put(
        &mut self,
        batch: &mut WriteBatch,
        tables: &Tables,
        write: &mut DecisionWrite,
    ) -> Result<(), StoreError> {
        let row = &write.row;
        let app = self.local_apps.get(&row.pid).copied().unwrap_or(App::new(0));
        let partitions = self.settings.partitions;
        let row_key = RowKey::new(row, app.base, app.fanout_bits, partitions);
        let key = row_key.encode();
        let mut value = Vec::with_capacity(384);
        codec::row::encode(row, &mut value);
        let bytes = KEY_BYTES + value.len();
        if let Some(old) = &write.replaced {
            let old_row_key = RowKey::current(row.pid, row.seq, old, app.base, partitions);
            let old_key = old_row_key.encode();
            if is_counted(&app, &old_row_key, &old_key, tables)? {
                let bytes = -i64::from(old.row_meta.bytes);
                self.count(&app, &old_row_key, Cell::row(row.event_type, old.status, bytes), 0);
                self.aggregates.remove(batch, tables, &old_row_key, old, row)?;
            }
            if old_key != key {
                batch.delete_cf(&tables.events(), old_key);
            }
        }
        self.count(&app, &row_key, Cell::row(row.event_type, row.status, bytes as i64), 1);
        if row_key.event_time >= app.oldest {
            let dimensions = Dimensions::of(row);
            self.aggregates.add(batch, tables, &row_key, dimensions, &row.revenue);
        }
        batch.put_cf(&tables.events(), key, value);
        if let Some(current_row) = write.record.current_row_mut() {
            current_row.row_meta = row_meta::row_meta(row, app.fanout_bits, bytes);
        }
        Ok(())
    }

    /// Adds all changes of counts and regions to the batch.
    pub fn finish(&mut self, batch: &mut WriteBatch, tables: &Tables) -> Result<(), StoreError> {
        let changes = std::mem::take(&mut self.changes);
        let cells = tables.cells();
        for (key, change) in &changes {
            self.totals.add(&change.cell);
            batch.merge_cf(&cells, key, change.cell.encode());
        }
        self.aggregates.finish(batch, tables);
        let is_changed = !(changes.is_empty() && self.swept.is_empty());
        if is_changed {
            meta::put_totals(batch, tables, &self.totals);
            self.changed_regions.extend(self.regions.apply(&changes, batch, tables));
        }
        let now = now();
        if now.millis().saturating_sub(self.reads_stored_at.millis()) >= READS_STORE_INTERVAL_MS {
            self.regions.put_read(self.reads_stored_at, batch, tables);
            self.reads_stored_at = now;
        }
        if let Some(rate_max) = self.settings.fanout_above {
            self.raise_fanouts(&changes, rate_max, batch, tables);
        }
        Ok(())
    }

    /// Publishes the changes of a batch to readers, and adjusts regions. Must be called after the batch was written.
    pub fn after_commit(&mut self, tables: &Tables) -> Result<(), StoreError> {
        for pid in self.swept.drain(..) {
            if let Some(app) = self.local_apps.get(&pid) {
                self.apps.put(pid, *app);
                self.retention.advance(pid, app.oldest);
            }
        }
        let partitions = self.settings.partitions;
        self.reclaimer.reclaim(self.totals.bytes, tables, &self.apps, partitions);
        let changed = std::mem::take(&mut self.changed_regions);
        if changed.is_empty() { Ok(()) } else { self.regions.adjust(&changed, tables) }
    }

    /// Doubles the fanout of apps that write more than `rate_max` rows per second and partition.
    fn raise_fanouts(
        &mut self,
        changes: &Changes,
        rate_max: u32,
        batch: &mut WriteBatch,
        tables: &Tables,
    ) {
        let now = now();
        for (key, change) in changes {
            let pid = hourly_counts::pid(key);
            if self.settings.apps.get(&pid).is_none_or(|app| app.fanout.is_none()) {
                self.rates.entry(pid).or_default().add(change.written, now);
            }
        }
        let bits_max =
            AUTO_FANOUT_BITS_MAX.min(record::fanout_bits_limit(self.settings.partitions));
        for (pid, rate) in &mut self.rates {
            let Some(app) = self.local_apps.get_mut(pid).filter(|app| app.fanout_bits < bits_max)
            else {
                continue;
            };
            if rate.per_second(now) <= f64::from(rate_max) * f64::from(1 << app.fanout_bits) {
                continue;
            }
            app.set_fanout_bits(app.fanout_bits + 1);
            // Readers must know the fanout before the first row is written with it.
            self.apps.put(*pid, *app);
            meta::put_app(batch, tables, *pid, app);
        }
    }

    /// Adds a change of counts, unless the row has expired.
    fn count(&mut self, app: &App, key: &RowKey, cell: Cell, written: u64) {
        if key.event_time >= app.oldest {
            let change = self.changes.entry(hourly_counts::cell_key(key)).or_default();
            change.cell.add(&cell);
            change.written += written;
        }
    }
}

/// True if a row is counted. One that had expired before retention became longer is counted only if no compaction had
/// removed it.
fn is_counted(app: &App, row_key: &RowKey, key: &Key, tables: &Tables) -> Result<bool, StoreError> {
    if row_key.event_time >= app.reached || row_key.event_time < app.oldest {
        return Ok(row_key.event_time >= app.oldest);
    }
    Ok(tables.db.get_pinned_cf(&tables.events(), key)?.is_some())
}
