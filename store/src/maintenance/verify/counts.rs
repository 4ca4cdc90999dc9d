//! Checks that hourly counts, region statistics and totals match the rows.

use attribution::facts::event::EventTime;
use rocksdb::ReadOptions;

use super::aggregates::{AggregateSums, check_aggregates};
use super::findings::Findings;
use super::report::{Check, Problem, at};
use super::snapshot::Snapshot;
use super::table_scan::scan_table;
use crate::StoreError;
use crate::embedded::open::column_families::{CELLS, EVENTS, META};
use crate::embedded::open::meta;
use crate::embedded::write::regions;
use crate::layout::codec::row::RowView;
use crate::layout::hourly_counts::{self, Cell, CellKey};
use crate::layout::key::RowKey;
use crate::layout::region::{RegionSize, Regions};

/// The sums of all rows.
struct Sums {
    /// The stored regions; `None` if they cannot be used.
    regions: Option<Regions>,
    /// The counted size of each region.
    sizes: Vec<RegionSize>,
    /// The hour that is being counted. Rows are in the order of their hourly counts.
    cell: Option<(CellKey, Cell)>,
    totals: Cell,
    aggregates: AggregateSums,
}

pub fn check_counts(
    snapshot: &Snapshot<'_>,
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    let mut sums = Sums::new(read_regions(snapshot, findings)?);
    scan_table(snapshot, findings, Check::Counts, EVENTS, |findings, chunk| {
        for (key, value) in chunk {
            let (Some(row), Ok(view)) = (RowKey::decode(key), RowView::decode(value)) else {
                continue;
            };
            if snapshot.is_past_retention(row.pid, row.event_time) {
                continue;
            }
            if let Some((key, counted)) = sums.add(&row, &view, key.len() + value.len()) {
                check_cell(snapshot, &key, &counted, findings)?;
            }
        }
        Ok(())
    })?;
    if let Some((key, counted)) = sums.close_cell() {
        check_cell(snapshot, &key, &counted, findings)?;
    }
    check_empty_cells(snapshot, findings)?;
    if let Some(regions) = &sums.regions {
        findings.report.add_checked(Check::Counts, regions.iter().len());
        for (region, counted) in regions.iter().zip(&sums.sizes) {
            if region.size != *counted {
                findings.add_count(Problem::RegionDiffers, || at(META, &region.start));
            }
        }
    }
    findings.report.add_checked(Check::Counts, 1);
    let totals = findings.unless_damaged(&snapshot.tables, meta::totals(&snapshot.tables))?;
    if totals.is_some_and(|totals| totals != Some(sums.totals)) {
        findings.add_count(Problem::TotalsDiffer, || format!("{META} totals"));
    }
    check_aggregates(snapshot, sums.aggregates, findings)
}

impl Sums {
    fn new(regions: Option<Regions>) -> Self {
        let count = regions.as_ref().map_or(0, |regions| regions.iter().len());
        let (sizes, totals) = (vec![RegionSize::default(); count], Cell::default());
        Self { regions, sizes, cell: None, totals, aggregates: AggregateSums::default() }
    }

    /// Adds a row. Returns the hour before it, if it is the first of another.
    fn add(&mut self, row: &RowKey, view: &RowView<'_>, bytes: usize) -> Option<(CellKey, Cell)> {
        let key = hourly_counts::cell_key(row);
        let is_other = self.cell.is_some_and(|(current, _)| current != key);
        let before = if is_other { self.close_cell() } else { None };
        let (_, cell) = self.cell.get_or_insert((key, Cell::default()));
        cell.add(&Cell::row(view.event_type, view.status, bytes as i64));
        self.aggregates.add_row(row, view);
        before
    }

    /// Returns the counted hour, and adds it to the totals and its region.
    fn close_cell(&mut self) -> Option<(CellKey, Cell)> {
        let (key, counted) = self.cell.take()?;
        self.totals.add(&counted);
        let first = hourly_counts::first_row(&key);
        let region = self.regions.as_ref().map(|regions| regions.index_of(&first));
        if let Some(size) = region.and_then(|index| self.sizes.get_mut(index)) {
            size.add(counted.rows(), counted.bytes);
        }
        Some((key, counted))
    }
}

/// Compares a counted hour with its stored count.
fn check_cell(
    snapshot: &Snapshot<'_>,
    key: &CellKey,
    counted: &Cell,
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    let tables = &snapshot.tables;
    findings.report.add_checked(Check::Counts, 1);
    match tables.db.get_pinned_cf(&tables.cells(), key) {
        Ok(stored) => match stored.as_deref().map(Cell::decode) {
            Some(Some(stored)) if stored == *counted => {}
            Some(None) => findings.add_count(Problem::CellUnreadable, || at(CELLS, key)),
            _ => findings.add_count(Problem::CellDiffers, || at(CELLS, key)),
        },
        Err(failure) => {
            findings.report.unchecked += 1;
            findings.note_failure(tables, failure)?;
        }
    }
    Ok(())
}

/// Checks that hours without rows have no count other than 0.
fn check_empty_cells(
    snapshot: &Snapshot<'_>,
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    scan_table(snapshot, findings, Check::Counts, CELLS, |findings, chunk| {
        for (key, value) in chunk {
            let (cell, stored) = (CellKey::try_from(&**key).ok(), Cell::decode(value));
            let problem = match (cell, stored) {
                (Some(_), Some(stored)) if stored == Cell::default() => continue,
                (Some(cell), stored) => {
                    let app = snapshot.app(hourly_counts::pid(&cell));
                    let oldest = app.map_or(EventTime::default(), |app| app.oldest);
                    if has_rows(snapshot, &cell, oldest, findings)? {
                        continue;
                    }
                    stored.map_or(Problem::CellUnreadable, |_| Problem::CellDiffers)
                }
                (None, _) => Problem::CellUnreadable,
            };
            findings.add_count(problem, || at(CELLS, key));
        }
        Ok(())
    })
}

/// True if an hour has readable rows from a time on, or cannot be read.
pub fn has_rows(
    snapshot: &Snapshot<'_>,
    cell: &CellKey,
    oldest: EventTime,
    findings: &mut Findings<'_>,
) -> Result<bool, StoreError> {
    let tables = &snapshot.tables;
    let mut rows = tables.db.raw_iterator_cf_opt(&tables.events(), ReadOptions::default());
    rows.seek(hourly_counts::first_row(cell));
    while let Some((key, value)) = rows.item() {
        match RowKey::decode(key) {
            Some(key) if hourly_counts::cell_key(&key) != *cell => break,
            Some(key) if key.event_time >= oldest && RowView::decode(value).is_ok() => {
                return Ok(true);
            }
            _ => rows.next(),
        }
    }
    let read = findings.unless_damaged(tables, rows.status().map_err(StoreError::from))?;
    Ok(read.is_none())
}

/// The stored regions; `None` if they cannot be used.
fn read_regions(
    snapshot: &Snapshot<'_>,
    findings: &mut Findings<'_>,
) -> Result<Option<Regions>, StoreError> {
    let config::Store { partitions, region_bytes_max, .. } = *snapshot.settings;
    let regions = match regions::load(&snapshot.tables) {
        Ok(stored) => Regions::of(partitions, region_bytes_max, stored),
        Err(StoreError::Corrupt { .. }) => None,
        failure => {
            findings.unless_damaged(&snapshot.tables, failure)?;
            return Ok(None);
        }
    };
    if regions.is_none() {
        findings.add_count(Problem::RegionsBroken, || META.to_owned());
    }
    Ok(regions)
}
