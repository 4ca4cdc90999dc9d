//! What a verification collects.

use rocksdb::{ErrorKind, WriteBatch};

use super::files::{Files, named_file};
use super::report::{Check, Problem, Report, at};
use super::{Progress, Watch};
use crate::StoreError;
use crate::embedded::open::column_families::{CAMPAIGN_INDEX, CELLS, COUNTS, EVENTS, META};
use crate::embedded::tables::Tables;

/// The problems found so far, and the repairs that have not been written yet.
pub struct Findings<'a> {
    pub report: Report,
    pub files: Files,
    /// `None` if the store must not be changed.
    pub fixes: Option<WriteBatch>,
    done: u64,
    /// See [`Progress::total`].
    pub total: u64,
    watch: Watch<'a>,
}

impl<'a> Findings<'a> {
    pub fn new(report: Report, files: Files, watch: Watch<'a>) -> Self {
        Self { report, files, fixes: None, done: 0, total: 0, watch }
    }

    pub fn finish(mut self) -> Report {
        self.files.note_failure(&mut self.report);
        self.report.add_checked(Check::Files, self.files.count());
        self.report
    }

    /// Adds a problem that cannot be repaired.
    pub fn add(&mut self, problem: Problem, at: impl FnOnce() -> String) {
        self.report.add(problem, false, at);
    }

    /// Adds a problem, and repairs it by `fix` if repairs are to be written.
    pub fn repair(
        &mut self,
        problem: Problem,
        at: impl FnOnce() -> String,
        fix: impl FnOnce(&mut WriteBatch),
    ) {
        self.report.add(problem, self.fixes.is_some(), at);
        if let Some(batch) = &mut self.fixes {
            fix(batch);
        }
    }

    /// Adds a problem of an entry, which is repaired by deleting the entry.
    pub fn repair_by_delete(&mut self, problem: Problem, tables: &Tables, table: &str, key: &[u8]) {
        let delete = |batch: &mut WriteBatch| batch.delete_cf(&tables.table(table), key);
        self.repair(problem, || at(table, key), delete);
    }

    /// Adds a wrong count. A repair rebuilds all counts, if all rows are readable.
    pub fn add_count(&mut self, problem: Problem, at: impl FnOnce() -> String) {
        if self.files.has_damage_in(&[EVENTS, CELLS, COUNTS, CAMPAIGN_INDEX, META]) {
            // Rows or counts cannot all be read, so a difference says nothing.
            self.report.unchecked += 1;
            return;
        }
        let can_rebuild = [Problem::RowKeyUnreadable, Problem::RowUnreadable]
            .iter()
            .filter_map(|problem| self.report.found.get(problem))
            .all(|times| times.found == times.repaired);
        self.report.add(problem, can_rebuild && self.fixes.is_some(), at);
    }

    /// Writes the repairs so far.
    pub fn write_fixes(&mut self, tables: &Tables) -> Result<(), StoreError> {
        if let Some(batch) = self.fixes.as_mut().filter(|batch| !batch.is_empty()) {
            tables.db.write(std::mem::take(batch))?;
        }
        Ok(())
    }

    /// Returns `None` for a read that failed because a file is damaged, and reports the file.
    pub fn unless_damaged<T>(
        &mut self,
        tables: &Tables,
        read: Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match read {
            Err(StoreError::Engine(failure)) => self.note_failure(tables, failure).map(|_| None),
            read => read.map(Some),
        }
    }

    /// Reports a damaged file and returns its name, if known. Other failures are returned as errors.
    pub fn note_failure(
        &mut self,
        tables: &Tables,
        failure: rocksdb::Error,
    ) -> Result<Option<String>, StoreError> {
        if !matches!(failure.kind(), ErrorKind::Corruption | ErrorKind::IOError) {
            return Err(failure.into());
        }
        let text = failure.to_string();
        let name = named_file(&text);
        match &name {
            Some(name) => self.files.note(name.clone(), &mut self.report),
            None if self.files.note_unopenable(tables, &mut self.report) => {}
            None => self.files.note(text, &mut self.report),
        }
        Ok(name)
    }

    /// Reports the progress of a check that has read more entries.
    pub fn advance(&mut self, check: Check, entries: usize) {
        self.done += entries as u64;
        (self.watch)(Progress { check, done: self.done, total: self.total.max(self.done) });
    }
}
