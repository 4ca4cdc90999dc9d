//! Rebuilds aggregates from rows: for a copied or damaged store, and after retention became longer.

use attribution::facts::event::{EventTime, Pid};
use rocksdb::{ReadOptions, WriteBatch};

use super::aggregates::{self, AggregateChanges};
use super::regions::{self, SharedRegions};
use crate::StoreError;
use crate::apps::record::App;
use crate::clock;
use crate::embedded::open::meta;
use crate::embedded::tables::Tables;
use crate::layout::codec::row::{RowView, TextCell};
use crate::layout::hourly_counts::{self, Cell, Changes};
use crate::layout::key::{self, RowKey};
use crate::layout::region::Regions;
use crate::layout::summary_counts::Dimensions;

/// Counts the rows of an app between a new, earlier retention cutoff `from` and the present one. Summary counts and
/// credited activations are written at once: they are not read before the cutoff is moved. Returns the hourly counts.
pub fn rows(
    tables: &Tables,
    pid: Pid,
    app: &App,
    from: EventTime,
    settings: &config::Store,
) -> Result<Changes, StoreError> {
    let mut found = Changes::new();
    aggregates::clear_before(tables, pid, app.oldest)?;
    let mut writer = AggregateWriter::new(tables);
    for partition in app.partitions(settings.partitions) {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(key::row_from(partition, pid, app.oldest));
        let from = key::row_from(partition, pid, from);
        each_row(tables, options, &from, |key, row, bytes| {
            add(&mut found, key, Cell::row(row.event_type, row.status, bytes));
            writer.add(key, row)
        })?;
    }
    writer.write()?;
    Ok(found)
}

/// Rebuilds all aggregates from the rows: summary counts, credited activations, hourly counts, regions and totals. The
/// store does not open until all of it is written.
pub fn all(tables: &Tables, settings: &config::Store) -> Result<(), StoreError> {
    let (mut found, apps) = (Changes::new(), meta::apps(tables, settings.partitions)?);
    let mut batch = WriteBatch::default();
    aggregates::clear(&mut batch, tables);
    meta::invalidate_totals(&mut batch, tables);
    tables.db.write(batch)?;
    let mut writer = AggregateWriter::new(tables);
    each_row(tables, ReadOptions::default(), &[], |key, row, bytes| {
        if apps.of(key.pid).is_some_and(|app| key.event_time < app.oldest) {
            return Ok(());
        }
        add(&mut found, key, Cell::row(row.event_type, row.status, bytes));
        writer.add(key, row)
    })?;
    writer.write()?;
    let (mut batch, now) = (WriteBatch::default(), clock::now());
    for (pid, mut app) in apps.all() {
        // Compactions may have removed any row before now.
        app.reached = app.reached.max(now);
        meta::put_app(&mut batch, tables, pid, &app);
    }
    batch.delete_range_cf(&tables.cells(), &[][..], &[0xff; hourly_counts::CELL_KEY_BYTES + 1][..]);
    let mut totals = Cell::default();
    for (key, change) in &found {
        totals.add(&change.cell);
        batch.merge_cf(&tables.cells(), key, change.cell.encode());
    }
    meta::put_totals(&mut batch, tables, &totals);
    let new_regions = Regions::new(settings.partitions, settings.region_bytes_max);
    regions::replace(&new_regions, &mut batch, tables)?;
    let regions = SharedRegions::new(new_regions);
    let changed = regions.apply(&found, &mut batch, tables);
    tables.db.write(batch)?;
    regions.adjust(&changed, tables)
}

/// Writes summary counts and credited activations in bounded batches.
struct AggregateWriter<'t> {
    tables: &'t Tables,
    aggregates: AggregateChanges,
    batch: WriteBatch,
}

/// Buffered counts at which a batch is written.
const COUNTS_MAX: usize = 50_000;

impl<'t> AggregateWriter<'t> {
    fn new(tables: &'t Tables) -> Self {
        Self { tables, aggregates: AggregateChanges::default(), batch: WriteBatch::default() }
    }

    fn add(&mut self, key: &RowKey, row: &RowView<'_>) -> Result<(), StoreError> {
        let (dimensions, revenue) = (Dimensions::of_view(row), row.text(TextCell::Revenue));
        self.aggregates.add(&mut self.batch, self.tables, key, dimensions, revenue);
        let is_full = self.aggregates.len() >= COUNTS_MAX
            || self.batch.size_in_bytes() >= aggregates::BATCH_BYTES;
        if is_full { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        self.aggregates.finish(&mut self.batch, self.tables);
        Ok(self.tables.db.write(std::mem::take(&mut self.batch))?)
    }
}

fn add(found: &mut Changes, key: &RowKey, cell: Cell) {
    found.entry(hourly_counts::cell_key(key)).or_default().cell.add(&cell);
}

/// Calls `visit` with each row, its key, and the size of both in bytes.
fn each_row(
    tables: &Tables,
    mut options: ReadOptions,
    from: &[u8],
    mut visit: impl FnMut(&RowKey, &RowView<'_>, i64) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    options.fill_cache(false);
    options.set_readahead_size(4 << 20);
    let mut rows = tables.db.raw_iterator_cf_opt(&tables.events(), options);
    rows.seek(from);
    while let Some((key, value)) = rows.item() {
        let bytes = (key.len() + value.len()) as i64;
        let key = RowKey::decode(key).ok_or_else(|| StoreError::corrupt("a row's key"))?;
        visit(&key, &RowView::decode(value)?, bytes)?;
        rows.next();
    }
    Ok(rows.status()?)
}
