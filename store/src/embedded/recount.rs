//! The counts of what is there, from the rows themselves: where a store has none yet, and where
//! rows count again that had gone by their age.

use attribution::event::{EventTime, Pid};
use rocksdb::{ReadOptions, WriteBatch};

use super::meta;
use super::regions::{self, SharedRegions};
use super::tables::Tables;
use crate::StoreError;
use crate::app::{App, Apps};
use crate::cell::{self, Cell, Change, Changes};
use crate::codec::row::RowView;
use crate::key::{self, RowKey};
use crate::region::Regions;

/// The counts of an app's rows from a time to where they begin to be kept.
pub fn rows(
    tables: &Tables,
    pid: Pid,
    app: &App,
    from: EventTime,
    settings: &config::Store,
) -> Result<Changes, StoreError> {
    let mut found = Changes::new();
    for partition in app.partitions(settings.partitions) {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(key::row_from(partition, pid, app.oldest));
        let from = key::row_from(partition, pid, from);
        count(tables, options, &from, |key, cell| add(&mut found, key, cell))?;
    }
    Ok(found)
}

/// Counts all rows anew: cells, regions and totals, in place of what was kept of them. Apps that
/// the store does not know yet begin where their rows are.
pub fn all(tables: &Tables, settings: &config::Store) -> Result<Cell, StoreError> {
    let (mut found, apps) = (Changes::new(), meta::apps(tables, settings.partitions)?);
    let mut batch = WriteBatch::default();
    count(tables, ReadOptions::default(), &[], |key, cell| {
        let app = known(&apps, key);
        if key.event_time >= app.oldest {
            add(&mut found, key, cell);
        }
    })?;
    apps.all().iter().for_each(|(pid, app)| meta::put_app(&mut batch, tables, *pid, app));
    batch.delete_range_cf(tables.cells(), &[][..], &[0xff; cell::CELL_KEY_BYTES + 1][..]);
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
    meta::put_layout(&mut batch, tables);
    tables.db.write(batch)?;
    regions.adjust(&touched, tables)?;
    Ok(totals)
}

fn known(apps: &Apps, key: &RowKey) -> App {
    apps.of(key.pid).unwrap_or_else(|| {
        let app = App::new(key.partition);
        apps.put(key.pid, app);
        app
    })
}

fn add(found: &mut Changes, key: &RowKey, cell: Cell) {
    let change: &mut Change = found.entry(cell::cell_key(key)).or_default();
    change.cell.add(&cell);
}

fn count(
    tables: &Tables,
    mut options: ReadOptions,
    from: &[u8],
    mut each: impl FnMut(&RowKey, Cell),
) -> Result<(), StoreError> {
    options.fill_cache(false);
    options.set_readahead_size(4 << 20);
    let mut rows = tables.db.raw_iterator_cf_opt(tables.events(), options);
    rows.seek(from);
    while let (Some(key), Some(value)) = (rows.key(), rows.value()) {
        let bytes = (key.len() + value.len()) as i64;
        let key = RowKey::decode(key).ok_or_else(|| StoreError::corrupt("a row's key"))?;
        let row = RowView::decode(value)?;
        each(&key, Cell::row(row.event_type, row.status, bytes));
        rows.next();
    }
    rows.status()?;
    Ok(())
}
