//! Checks that hourly counts, region statistics and totals match the rows.

use attribution::facts::event::EventTime;
use rocksdb::ReadOptions;

use super::aggregates::AggregateSums;
use super::{Check, Checker, Problem, at};
use crate::StoreError;
use crate::embedded::open::column_families::{BROUGHT, CELLS, COUNTS, EVENTS, META};
use crate::embedded::open::meta;
use crate::embedded::write::regions;
use crate::layout::codec::row::RowView;
use crate::layout::hourly_counts::{self, Cell, CellKey};
use crate::layout::key::RowKey;
use crate::layout::region::{Figures, Regions};

/// The sums of all rows.
#[derive(Default)]
struct Sums {
    /// The hour that is being counted. Rows are in the order of their hourly counts.
    cell: Option<(CellKey, Cell)>,
    /// Indexed by region.
    figures: Vec<Figures>,
    totals: Cell,
    aggregates: AggregateSums,
}

impl Checker<'_> {
    pub fn check_counts(&mut self) -> Result<(), StoreError> {
        let regions = self.regions()?;
        let mut sums = Sums::default();
        sums.figures
            .resize(regions.as_ref().map_or(0, |regions| regions.iter().len()), Figures::default());
        self.scan_table(Check::Counts, EVENTS, |checker, chunk| {
            for (key, value) in chunk {
                checker.count(&key, &value, (&mut sums, regions.as_ref()))?;
            }
            Ok(())
        })?;
        self.close_cell((&mut sums, regions.as_ref()))?;
        self.check_empty_cells()?;
        if let Some(regions) = &regions {
            self.report.add_checked(Check::Counts, regions.iter().len());
            for (region, counted) in regions.iter().zip(&sums.figures) {
                if region.figures != *counted {
                    self.find_count(Problem::RegionDiffers, || at(META, &region.start));
                }
            }
        }
        self.report.add_checked(Check::Counts, 1);
        match meta::totals(&self.tables) {
            Ok(Some(totals)) if totals == sums.totals => {}
            Ok(_) => self.find_count(Problem::TotalsDiffer, || format!("{META} totals")),
            Err(StoreError::Engine(failure)) => drop(self.note_failure(failure)?),
            Err(failure) => return Err(failure),
        }
        self.check_aggregates(sums.aggregates)
    }

    fn count(
        &mut self,
        key: &[u8],
        value: &[u8],
        (sums, regions): (&mut Sums, Option<&Regions>),
    ) -> Result<(), StoreError> {
        let Some(row) = RowKey::decode(key) else { return Ok(()) };
        let oldest = self.app(row.pid).map_or(EventTime::default(), |app| app.oldest);
        let Ok(view) = RowView::decode(value) else { return Ok(()) };
        if row.event_time < oldest {
            return Ok(());
        }
        let cell_key = hourly_counts::cell_key(&row);
        if sums.cell.is_none_or(|(current, _)| current != cell_key) {
            self.close_cell((sums, regions))?;
        }
        let bytes = (key.len() + value.len()) as i64;
        let (_, cell) = sums.cell.get_or_insert((cell_key, Cell::default()));
        cell.add(&Cell::row(view.event_type, view.status, bytes));
        sums.aggregates.add_row(&row, &view);
        Ok(())
    }

    /// Compares the counted hour with its stored count.
    fn close_cell(
        &mut self,
        (sums, regions): (&mut Sums, Option<&Regions>),
    ) -> Result<(), StoreError> {
        let Some((key, counted)) = sums.cell.take() else { return Ok(()) };
        sums.totals.add(&counted);
        let region = regions.map(|regions| regions.index_of(&hourly_counts::first_row(&key)));
        if let Some(figures) = region.and_then(|index| sums.figures.get_mut(index)) {
            figures.add(counted.rows(), counted.bytes);
        }
        self.report.add_checked(Check::Counts, 1);
        let tables = self.tables.clone();
        match tables.db.get_pinned_cf(tables.cells(), key) {
            Ok(stored) => match stored.as_deref().map(Cell::decode) {
                Some(Some(stored)) if stored == counted => {}
                Some(None) => self.find_count(Problem::CellUnreadable, || at(CELLS, &key)),
                _ => self.find_count(Problem::CellDiffers, || at(CELLS, &key)),
            },
            Err(failure) => {
                self.report.unchecked += 1;
                self.note_failure(failure)?;
            }
        }
        Ok(())
    }

    /// Checks that hours without rows have no count other than 0.
    fn check_empty_cells(&mut self) -> Result<(), StoreError> {
        self.scan_table(Check::Counts, CELLS, |checker, chunk| {
            for (key, value) in chunk {
                let cell = CellKey::try_from(&*key).ok();
                match (cell, Cell::decode(&value)) {
                    (Some(_), Some(cell)) if cell == Cell::default() => {}
                    (Some(cell), stored) => {
                        if checker.has_rows(&cell)? {
                            continue;
                        }
                        let problem = if stored.is_some() {
                            Problem::CellDiffers
                        } else {
                            Problem::CellUnreadable
                        };
                        checker.find_count(problem, || at(CELLS, &key));
                    }
                    (None, _) => checker.find_count(Problem::CellUnreadable, || at(CELLS, &key)),
                }
            }
            Ok(())
        })
    }

    /// True if an hour has readable rows that retention has not passed, or cannot be read.
    pub fn has_rows(&mut self, cell: &CellKey) -> Result<bool, StoreError> {
        let oldest =
            self.app(hourly_counts::pid(cell)).map_or(EventTime::default(), |app| app.oldest);
        let tables = self.tables.clone();
        let mut rows = tables.db.raw_iterator_cf_opt(tables.events(), ReadOptions::default());
        rows.seek(hourly_counts::first_row(cell));
        while let (Some(key), Some(value)) = (rows.key(), rows.value()) {
            let key = RowKey::decode(key);
            match key {
                Some(key) if hourly_counts::cell_key(&key) != *cell => break,
                Some(key) if key.event_time >= oldest && RowView::decode(value).is_ok() => {
                    return Ok(true);
                }
                _ => rows.next(),
            }
        }
        if let Err(failure) = rows.status() {
            self.note_failure(failure)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// The stored regions; `None` if they cannot be used.
    fn regions(&mut self) -> Result<Option<Regions>, StoreError> {
        let (partitions, bytes_max) = (self.settings.partitions, self.settings.region_bytes_max);
        let regions = match regions::load(&self.tables) {
            Ok(stored) => Regions::of(partitions, bytes_max, stored),
            Err(StoreError::Corrupt { .. }) => None,
            Err(StoreError::Engine(failure)) => {
                self.note_failure(failure)?;
                return Ok(None);
            }
            Err(failure) => return Err(failure),
        };
        if regions.is_none() {
            self.find_count(Problem::RegionsBroken, || META.to_owned());
        }
        Ok(regions)
    }

    /// Reports a wrong count. A repair recounts all rows, if all of them are readable.
    pub fn find_count(&mut self, problem: Problem, named: impl FnOnce() -> String) {
        if self.files.has_damage_in(&[EVENTS, CELLS, COUNTS, BROUGHT, META]) {
            // Rows or counts cannot all be read, so a difference says nothing.
            self.report.unchecked += 1;
        } else if self.can_recount() {
            self.must_recount |= self.fixes.is_some();
            self.find_and(problem, named, |_, _| ());
        } else {
            self.find(problem, named);
        }
    }

    fn can_recount(&self) -> bool {
        let unreadable = [Problem::RowKeyUnreadable, Problem::RowUnreadable];
        let is_unrepaired = |times: &super::Times| times.found > times.repaired;
        !unreadable.iter().any(|problem| self.report.found.get(problem).is_some_and(is_unrepaired))
    }
}
