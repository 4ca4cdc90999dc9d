//! Counts from the rows themselves: of a copied store, of a damaged one, and of rows that count again
//! because retention became longer.

use attribution::facts::event::{EventTime, Pid};
use rocksdb::{ReadOptions, WriteBatch};

use super::aggregates::{self, Views};
use super::regions::{self, SharedRegions};
use crate::StoreError;
use crate::apps::spread::App;
use crate::clock;
use crate::embedded::open::meta;
use crate::embedded::tables::Tables;
use crate::layout::codec::row::RowView;
use crate::layout::hourly_counts::{self, Cell, Change, Changes};
use crate::layout::key::{self, RowKey};
use crate::layout::region::Regions;

/// Counts an app's rows once more that were too old, from a time to where they begin to be kept. What
/// only tells of rows is written at once: nobody reads it while the app begins where it does.
pub fn rows(
    tables: &Tables,
    (pid, app): (Pid, &App),
    from: EventTime,
    settings: &config::Store,
) -> Result<Changes, StoreError> {
    let mut found = Changes::new();
    aggregates::clear_before(tables, pid, app.oldest)?;
    let mut written = Written::new(tables);
    for partition in app.partitions(settings.partitions) {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(key::row_from(partition, pid, app.oldest));
        let from = key::row_from(partition, pid, from);
        each_row(tables, options, &from, |key, row, bytes| {
            add(&mut found, key, Cell::row(row.event_type, row.status, bytes));
            written.add(key, row)
        })?;
    }
    written.write()?;
    Ok(found)
}

/// Counts all rows, in place of what was kept: counts, what campaigns brought, cells, regions and totals. Until all is
/// written the store does not open.
pub fn all(tables: &Tables, settings: &config::Store) -> Result<(), StoreError> {
    let (mut found, apps) = (Changes::new(), meta::apps(tables, settings.partitions)?);
    let mut batch = WriteBatch::default();
    aggregates::clear(&mut batch, tables);
    meta::invalidate_totals(&mut batch, tables);
    tables.db.write(batch)?;
    let mut written = Written::new(tables);
    each_row(tables, ReadOptions::default(), &[], |key, row, bytes| {
        if apps.of(key.pid).is_some_and(|app| key.event_time < app.oldest) {
            return Ok(());
        }
        add(&mut found, key, Cell::row(row.event_type, row.status, bytes));
        written.add(key, row)
    })?;
    written.write()?;
    let (mut batch, now) = (WriteBatch::default(), clock::now());
    for (pid, mut app) in apps.all() {
        // Which rows before now are missing is not known.
        app.reached = app.reached.max(now);
        meta::put_app(&mut batch, tables, pid, &app);
    }
    batch.delete_range_cf(tables.cells(), &[][..], &[0xff; hourly_counts::CELL_KEY_BYTES + 1][..]);
    let mut totals = Cell::default();
    for (key, change) in &found {
        totals.add(&change.cell);
        batch.merge_cf(tables.cells(), key, change.cell.encode());
    }
    meta::put_totals(&mut batch, tables, &totals);
    let fresh = Regions::new(settings.partitions, settings.region_bytes_max);
    regions::replace(&fresh, &mut batch, tables)?;
    let regions = SharedRegions::new(fresh);
    let touched = regions.apply(&found, &mut batch, tables);
    tables.db.write(batch)?;
    regions.adjust(&touched, tables)
}

/// What tells of rows, on its way to the store, a part at a time.
struct Written<'t> {
    tables: &'t Tables,
    views: Views,
    batch: WriteBatch,
}

/// Counts that wait to be written.
const COUNTS_MAX: usize = 50_000;

impl<'t> Written<'t> {
    fn new(tables: &'t Tables) -> Self {
        Self { tables, views: Views::default(), batch: WriteBatch::default() }
    }

    fn add(&mut self, key: &RowKey, row: &RowView<'_>) -> Result<(), StoreError> {
        self.views.add_stored(&mut self.batch, self.tables, (key, row));
        let is_full =
            self.views.len() >= COUNTS_MAX || self.batch.size_in_bytes() >= aggregates::BATCH_BYTES;
        if is_full { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        self.views.finish(&mut self.batch, self.tables);
        Ok(self.tables.db.write(std::mem::take(&mut self.batch))?)
    }
}

fn add(found: &mut Changes, key: &RowKey, cell: Cell) {
    let change: &mut Change = found.entry(hourly_counts::cell_key(key)).or_default();
    change.cell.add(&cell);
}

/// Calls `each` with the key, the row, and the bytes of both.
fn each_row(
    tables: &Tables,
    mut options: ReadOptions,
    from: &[u8],
    mut each: impl FnMut(&RowKey, &RowView<'_>, i64) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    options.fill_cache(false);
    options.set_readahead_size(4 << 20);
    let mut rows = tables.db.raw_iterator_cf_opt(tables.events(), options);
    rows.seek(from);
    while let (Some(key), Some(value)) = (rows.key(), rows.value()) {
        let bytes = (key.len() + value.len()) as i64;
        let key = RowKey::decode(key).ok_or_else(|| StoreError::corrupt("a row's key"))?;
        each(&key, &RowView::decode(value)?, bytes)?;
        rows.next();
    }
    rows.status()?;
    Ok(())
}
