//! The writing side of the table of rows: where each row goes, and the figures of what is there.

use std::collections::HashMap;

use attribution::facts::event::{EventTime, Pid};
use attribution::ledger::DecisionWrite;
use attribution::rules::policy::Policy;
use attribution::rules::row::Row;
use foldhash::fast::FixedState;
use rocksdb::WriteBatch;

use super::aggregates::Views;
use super::reclaim_space::Space;
use super::regions::{self, SharedRegions};
use crate::StoreError;
use crate::apps::spread::{self, App, Apps};
use crate::clock::now;
use crate::embedded::open::meta::{self, Meta};
use crate::embedded::tables::Tables;
use crate::expiry::retention::{self, Retention};
use crate::layout::hourly_counts::{self, Cell, Changes};
use crate::layout::key::{self, KEY_BYTES, Key, RowKey};
use crate::layout::region::{Flow, Regions};
use crate::layout::{codec, row_ref};

/// Reads alone change no row: so often at most they are kept.
const READS_KEPT_MS: u64 = 10_000;
/// An app is spread no further by itself.
const FAN_BITS_MAX: u8 = 6;

pub struct RowTable {
    settings: config::Store,
    /// Those of `apps`, at hand.
    own: HashMap<Pid, App, FixedState>,
    apps: Apps,
    pub retention: Retention,
    pub regions: SharedRegions,
    pub totals: Cell,
    space: Space,
    /// Of the batch that is being made.
    changes: Changes,
    views: Views,
    /// Where regions begin that the batch changed.
    touched: Vec<Key>,
    /// Apps of which rows go with the batch.
    swept: Vec<Pid>,
    /// Rows of apps of late; only where they can be spread further by that.
    rates: HashMap<Pid, Flow, FixedState>,
    reads_kept: EventTime,
}

impl RowTable {
    pub fn open(
        tables: &Tables,
        meta: &Meta,
        (settings, policy): (&config::Store, &Policy),
        retention: Retention,
    ) -> Result<Self, StoreError> {
        let kept = regions::load(tables)?;
        let is_new = kept.is_empty();
        let regions = match is_new {
            true => Regions::new(settings.partitions, settings.region_bytes_max),
            false => Regions::of(settings.partitions, settings.region_bytes_max, kept)
                .ok_or_else(|| StoreError::corrupt("the regions"))?,
        };
        let apps = meta::apps(tables, settings.partitions)?;
        let mut rows = Self {
            settings: settings.clone(),
            own: apps.all().into_iter().collect(),
            apps,
            retention,
            regions: SharedRegions::new(regions),
            totals: meta.totals,
            space: Space::open(tables)?,
            changes: Changes::default(),
            views: Views::default(),
            touched: Vec::new(),
            swept: Vec::new(),
            rates: HashMap::default(),
            reads_kept: now(),
        };
        let mut batch = WriteBatch::default();
        if is_new {
            regions::replace(&rows.regions.lock(), &mut batch, tables)?;
        }
        rows.start(batch, tables, (meta, policy))?;
        Ok(rows)
    }

    pub fn apps(&self) -> Apps {
        self.apps.clone()
    }

    /// Takes the settings of the apps over.
    fn start(
        &mut self,
        mut batch: WriteBatch,
        tables: &Tables,
        (meta, policy): (&Meta, &Policy),
    ) -> Result<(), StoreError> {
        for app in policy.apps() {
            let base = key::partition(&app.key, self.settings.partitions);
            let kept = self.own.entry(app.pid).or_insert(App::new(base));
            match self.settings.apps.get(&app.pid).and_then(|app| app.fanout) {
                Some(fanout) => kept.spread(fanout.ilog2() as u8),
                None if self.settings.fanout_above.is_none() => kept.spread(0),
                None => {}
            }
        }
        let clock = retention::clock(now(), meta.consumed());
        for (pid, app) in &mut self.own {
            let gone = retention::gone_before(self.settings.retention_of(*pid), clock);
            if gone < app.oldest {
                // Kept longer than before: what no compaction has left out counts again.
                let found =
                    super::rebuild_aggregates::rows(tables, (*pid, app), gone, &self.settings)?;
                let bytes: i64 = found.values().map(|change| change.cell.bytes).sum();
                self.space.sweep(-bytes, &mut batch, tables);
                self.changes.extend(found);
                app.begin_at(gone);
            }
            if self.apps.of(*pid) != Some(*app) {
                meta::put_app(&mut batch, tables, *pid, app);
                self.apps.put(*pid, *app);
            }
        }
        let own = self.own.iter().map(|(pid, app)| (*pid, app.oldest));
        self.retention.start(own);
        self.finish(&mut batch, tables)?;
        tables.db.write(batch)?;
        self.committed(tables)
    }

    /// Takes the rows away that are too old by now; before any row of the batch is put.
    pub fn sweep(
        &mut self,
        batch: &mut WriteBatch,
        tables: &Tables,
        consumed_until: Option<EventTime>,
    ) -> Result<(), StoreError> {
        let clock = retention::clock(now(), consumed_until);
        for (pid, app) in &mut self.own {
            let gone = retention::gone_before(self.settings.retention_of(*pid), clock);
            if gone <= app.oldest {
                continue;
            }
            for partition in app.partitions(self.settings.partitions) {
                let first = hourly_counts::cell_from(partition, *pid, EventTime::default());
                let end = hourly_counts::cell_from(partition, *pid, gone);
                for (key, cell) in regions::cells(tables, &first, Some(&end))? {
                    batch.delete_cf(tables.cells(), key);
                    self.changes.entry(key).or_default().cell.add(&cell.negated());
                }
            }
            app.begin_at(gone);
            meta::put_app(batch, tables, *pid, app);
            self.swept.push(*pid);
        }
        // These cells are deleted: what goes with them only changes the sums.
        let gone = std::mem::take(&mut self.changes);
        gone.values().for_each(|change| self.totals.add(&change.cell));
        if !gone.is_empty() {
            let bytes: i64 = gone.values().map(|change| change.cell.bytes).sum();
            self.space.sweep(-bytes, batch, tables);
        }
        self.touched = self.regions.apply(&gone, batch, tables);
        Ok(())
    }

    /// Puts a decision's row in place of the one before it, and notes its place in the home.
    pub fn put(
        &mut self,
        batch: &mut WriteBatch,
        tables: &Tables,
        write: &mut DecisionWrite,
    ) -> Result<(), StoreError> {
        let row = &write.row;
        let app = self.own.get(&row.pid).copied().unwrap_or(App::new(0));
        let place = self.key(&app, row, (row.event_time, row.spreadid), app.fanout_bits);
        let key = place.encode();
        let mut value = Vec::with_capacity(384);
        codec::row::encode(row, &mut value);
        let bytes = KEY_BYTES + value.len();
        if let Some(old) = &write.replaced {
            let old_place =
                self.key(&app, row, (old.event_time, old.spreadid), old.place.fanout_bits);
            let old_key = old_place.encode();
            if is_counted(&app, &old_place, &old_key, tables)? {
                let bytes = -i64::from(old.place.bytes);
                self.count(&app, &old_place, Cell::row(row.event_type, old.status, bytes), 0);
                self.views.take(batch, tables, (&old_place, old), row)?;
            }
            if old_key != key {
                batch.delete_cf(tables.events(), old_key);
            }
        }
        self.count(&app, &place, Cell::row(row.event_type, row.status, bytes as i64), 1);
        if place.event_time >= app.oldest {
            self.views.add(batch, tables, &place, row);
        }
        batch.put_cf(tables.events(), key, value);
        if let Some(current_row) = write.record.current_row_mut() {
            current_row.place = row_ref::row_place(row, app.fanout_bits, bytes);
        }
        Ok(())
    }

    /// Adds the batch's counts to it.
    pub fn finish(&mut self, batch: &mut WriteBatch, tables: &Tables) -> Result<(), StoreError> {
        let changes = std::mem::take(&mut self.changes);
        for (key, change) in &changes {
            self.totals.add(&change.cell);
            batch.merge_cf(tables.cells(), key, change.cell.encode());
        }
        self.views.finish(batch, tables);
        let is_changed = !(changes.is_empty() && self.swept.is_empty());
        if is_changed {
            meta::put_totals(batch, tables, &self.totals);
            self.touched.extend(self.regions.apply(&changes, batch, tables));
        }
        let now = now();
        if now.millis().saturating_sub(self.reads_kept.millis()) >= READS_KEPT_MS {
            self.regions.put_read(self.reads_kept, batch, tables);
            self.reads_kept = now;
        }
        if let Some(rate_max) = self.settings.fanout_above {
            self.spread(&changes, rate_max, batch, tables);
        }
        Ok(())
    }

    /// After the batch was written.
    pub fn committed(&mut self, tables: &Tables) -> Result<(), StoreError> {
        for pid in self.swept.drain(..) {
            if let Some(app) = self.own.get(&pid) {
                self.apps.put(pid, *app);
                self.retention.advance(pid, app.oldest);
            }
        }
        let partitions = self.settings.partitions;
        self.space.give_back(self.totals.bytes, tables, &self.apps, partitions);
        let touched = std::mem::take(&mut self.touched);
        if touched.is_empty() { Ok(()) } else { self.regions.adjust(&touched, tables) }
    }

    /// Spreads apps further that write more than so many rows a second and partition.
    fn spread(
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
        let bits_max = FAN_BITS_MAX.min(spread::bits_max(self.settings.partitions));
        for (pid, rate) in &mut self.rates {
            let Some(app) = self.own.get_mut(pid).filter(|app| app.fanout_bits < bits_max) else {
                continue;
            };
            if rate.per_second(now) <= f64::from(rate_max) * f64::from(1 << app.fanout_bits) {
                continue;
            }
            app.spread(app.fanout_bits + 1);
            // Known to who reads before the first row is there.
            self.apps.put(*pid, *app);
            meta::put_app(batch, tables, *pid, app);
        }
    }

    fn key(
        &self,
        app: &App,
        row: &Row,
        (event_time, spreadid): (EventTime, attribution::facts::event::SpreadId),
        fanout_bits: u8,
    ) -> RowKey {
        let partitions = self.settings.partitions;
        let partition = key::row_partition(app.base, row.seq, fanout_bits, partitions);
        RowKey { partition, pid: row.pid, event_time, spreadid, seq: row.seq }
    }

    /// Rows that have gone by their age are in no figure.
    fn count(&mut self, app: &App, key: &RowKey, cell: Cell, written: u64) {
        if key.event_time >= app.oldest {
            let change = self.changes.entry(hourly_counts::cell_key(key)).or_default();
            change.cell.add(&cell);
            change.written += written;
        }
    }
}

/// Whether a row is in the figures. One that had gone by its age, before retention became longer, is
/// so only if no compaction had left it out.
fn is_counted(app: &App, place: &RowKey, key: &Key, tables: &Tables) -> Result<bool, StoreError> {
    if place.event_time >= app.reached || place.event_time < app.oldest {
        return Ok(place.event_time >= app.oldest);
    }
    Ok(tables.db.get_pinned_cf(tables.events(), key)?.is_some())
}
