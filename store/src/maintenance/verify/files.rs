//! Checks that the files of a store exist, have their full length and are readable.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rocksdb::LiveFile;

use super::report::{Problem, Report};
use crate::StoreError;
use crate::embedded::open::manifest_check;
use crate::embedded::tables::{OpenMode, Tables};

/// The table files of a store, and those that are known to be damaged.
#[derive(Default)]
pub struct Files {
    live: Vec<LiveFile>,
    damaged: BTreeSet<String>,
    /// Why the store does not open although its log is intact: damage in one of the files, which the error may not
    /// name.
    failure: Option<String>,
}

/// Levels of each table.
const LEVELS: i32 = 7;
/// A process that writes may delete a file between its listing and its opening.
const ATTEMPTS: usize = 5;

/// Opens a store, tolerating damage. Returns `None` if it does not open at all, which is then reported.
pub fn open(
    settings: &config::Store,
    report: &mut Report,
) -> Result<Option<(Tables, Files)>, StoreError> {
    let (path, memory_bytes) = (&*settings.path, settings.memory_bytes);
    let mut attempts = 0;
    let failure = loop {
        attempts += 1;
        match Tables::open_for_checking(path, memory_bytes, OpenMode::None) {
            Ok(tables) => {
                let files = Files::of(&tables)?;
                return Ok(Some((tables, files)));
            }
            Err(failure) if !is_damage(&failure) => return Err(failure),
            Err(failure) if attempts == ATTEMPTS => break failure.to_string(),
            Err(_) => sleep(Duration::from_millis(50)),
        }
    };
    let Ok(tables) = Tables::open_for_checking(path, memory_bytes, OpenMode::Files) else {
        let name = named_file(&failure).unwrap_or(failure);
        report.add(Problem::FileDamaged, false, || name);
        return Ok(None);
    };
    let mut files = Files::of(&tables)?;
    files.compare(path, report);
    if let Some(name) = named_file(&failure).filter(|name| name.ends_with(".sst")) {
        files.note(name, report);
    }
    // The error names at most one file.
    files.note_unopenable(&tables, report);
    if Tables::open_for_checking(path, memory_bytes, OpenMode::Log).is_ok() {
        report.add(Problem::LogDamaged, false, || logs(path).join(" or "));
    } else {
        files.failure = Some(failure);
    }
    Ok(Some((tables, files)))
}

/// True if the store did not open because of the contents of its files.
fn is_damage(failure: &StoreError) -> bool {
    matches!(
        failure,
        StoreError::Corrupt { .. } | StoreError::Engine(_) | StoreError::Unopened { .. }
    )
}

impl Files {
    pub fn of(tables: &Tables) -> Result<Self, StoreError> {
        Ok(Self { live: tables.db.live_files()?, ..Self::default() })
    }

    pub fn count(&self) -> usize {
        self.live.len()
    }

    /// Checks that all files exist and have their full length.
    fn compare(&mut self, path: &Path, report: &mut Report) {
        for file in &self.live {
            let name = file.name.trim_start_matches('/');
            let problem = match path.join(name).metadata() {
                Ok(found) if found.len() == file.size as u64 => continue,
                Ok(_) => Problem::FileCut,
                Err(_) => Problem::FileMissing,
            };
            if self.damaged.insert(name.to_owned()) {
                let of = &file.column_family_name;
                report.add(problem, false, || format!("{name} of table {of}"));
            }
        }
    }

    /// Reports a damaged file, once.
    pub fn note(&mut self, name: String, report: &mut Report) {
        if self.damaged.insert(name.clone()) {
            let of = self.of_name(&name).map(|file| file.column_family_name.clone());
            let of = of.map(|table| format!(" of table {table}")).unwrap_or_default();
            report.add(Problem::FileDamaged, false, || format!("{name}{of}"));
        }
    }

    /// Reports the error with which the store did not open, if no damaged file was found that explains it.
    pub fn note_failure(&mut self, report: &mut Report) {
        if let Some(failure) = self.failure.take().filter(|_| self.damaged.is_empty()) {
            self.note(failure, report);
        }
    }

    /// Reports files that do not open because their metadata is damaged; RocksDB does not name them. Returns true if
    /// there are any.
    pub fn note_unopenable(&mut self, tables: &Tables, report: &mut Report) -> bool {
        let mut unopenable: Vec<String> = Vec::new();
        for table in tables.names() {
            for level in 0..LEVELS {
                // Reading the property opens all files of the level.
                let property = format!("rocksdb.aggregated-table-properties-at-level{level}");
                let properties = tables.db.property_value_cf(&tables.table(&table), &property);
                if !matches!(properties, Ok(Some(_))) {
                    unopenable.extend(self.unopenable_of(tables, &table, level));
                }
            }
        }
        let is_any = !unopenable.is_empty();
        unopenable.into_iter().for_each(|name| self.note(name, report));
        is_any
    }

    /// The files of a level that do not open. Those of level 0 are opened together, so all of them are candidates.
    fn unopenable_of(&self, tables: &Tables, table: &str, level: i32) -> Vec<String> {
        let of_level = |file: &&LiveFile| file.level == level && file.column_family_name == table;
        let files = self.live.iter().filter(of_level);
        let name = |file: &LiveFile| file.name.trim_start_matches('/').to_owned();
        if level == 0 {
            let names: Vec<_> = files.map(name).collect();
            let is_known = names.iter().any(|name| self.damaged.contains(name));
            return Some(names.join(" or ")).filter(|_| !is_known).into_iter().collect();
        }
        let is_unopenable = |file: &&LiveFile| {
            let mut entries = tables.db.raw_iterator_cf(&tables.table(table));
            entries.seek(file.start_key.as_deref().unwrap_or_default());
            entries.status().is_err()
        };
        files.filter(is_unopenable).map(name).collect()
    }

    /// True if a damaged file belongs to one of the tables, or to an unknown one.
    pub fn has_damage_in(&self, of: &[&str]) -> bool {
        let is_of = |name: &String| {
            let known = self.of_name(name);
            known.is_none_or(|file| of.contains(&&*file.column_family_name))
        };
        self.damaged.iter().any(is_of)
    }

    /// The last key of a file.
    pub fn end(&self, name: &str) -> Option<&[u8]> {
        self.of_name(name)?.end_key.as_deref()
    }

    fn of_name(&self, name: &str) -> Option<&LiveFile> {
        self.live.iter().find(|file| file.name.trim_start_matches('/') == name)
    }
}

/// The name of the file in an error message of RocksDB.
pub fn named_file(message: &str) -> Option<String> {
    let mut names =
        message.split(|c: char| c.is_whitespace() || matches!(c, '/' | ',' | ':' | '\''));
    let is_file = |name: &&str| {
        name.ends_with(".sst") || name.ends_with(".log") || name.starts_with("MANIFEST-")
    };
    names.rfind(is_file).map(str::to_owned)
}

/// The names of the log files that are not empty.
fn logs(path: &Path) -> Vec<String> {
    let is_filled = |log: &PathBuf| log.metadata().is_ok_and(|data| data.len() > 0);
    let name = |log: PathBuf| Some(log.file_name()?.to_string_lossy().into_owned());
    let mut logs: Vec<_> = manifest_check::logs(path).filter(is_filled).filter_map(name).collect();
    logs.sort();
    logs
}
