//! The files of a store: that they are there, are as long as they were, and read.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rocksdb::LiveFile;

use super::report::{Problem, Report};
use crate::StoreError;
use crate::embedded::open::column_families::TABLES;
use crate::embedded::tables::{OpenMode, Tables};

/// Files that hold data, and those of them that are known to be damaged.
#[derive(Default)]
pub struct Files {
    live: Vec<LiveFile>,
    damaged: BTreeSet<String>,
    /// Why the store does not open, though its log is whole: one of the files, named or not.
    failure: Option<String>,
}

/// Of every table.
const LEVELS: i32 = 7;
/// A process that writes may delete a file between its listing and its opening.
const ATTEMPTS: usize = 5;

/// Opens a store as far as it can be; `None` if it can not at all, which is then in the report.
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
        report.find(Problem::FileDamaged, false, || name);
        return Ok(None);
    };
    let mut files = Files::of(&tables)?;
    files.compare(path, report);
    if let Some(name) = named_file(&failure).filter(|name| name.ends_with(".sst")) {
        files.note(name, report);
    }
    // Only one is named, or none.
    files.note_closed(&tables, report);
    if Tables::open_for_checking(path, memory_bytes, OpenMode::Log).is_ok() {
        report.find(Problem::LogDamaged, false, || logs(path).join(" or "));
    } else {
        files.failure = Some(failure);
    }
    Ok(Some((tables, files)))
}

/// Whether opening failed because of what is in the files.
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

    /// Looks whether all are there, in their lengths.
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
                report.find(problem, false, || format!("{name} of table {of}"));
            }
        }
    }

    /// A file can not be read, or not all of it.
    pub fn note(&mut self, name: String, report: &mut Report) {
        if self.damaged.insert(name.clone()) {
            let of = self.of_name(&name).map(|file| file.column_family_name.clone());
            let of = of.map(|table| format!(" of table {table}")).unwrap_or_default();
            report.find(Problem::FileDamaged, false, || format!("{name}{of}"));
        }
    }

    /// What keeps the store from opening was in no file that was read.
    pub fn note_failure(&mut self, report: &mut Report) {
        if let Some(failure) = self.failure.take().filter(|_| self.damaged.is_empty()) {
            self.note(failure, report);
        }
    }

    /// Notes the files that can not be opened, because of what they say of themselves: the engine
    /// does not name them.
    pub fn note_closed(&mut self, tables: &Tables, report: &mut Report) -> bool {
        let mut closed: Vec<String> = Vec::new();
        for table in TABLES {
            for level in 0..LEVELS {
                // It opens all files of the level.
                let property = format!("rocksdb.aggregated-table-properties-at-level{level}");
                let properties = tables.db.property_value_cf(tables.table(table), &property);
                if !matches!(properties, Ok(Some(_))) {
                    closed.extend(self.closed_of(tables, table, level));
                }
            }
        }
        let is_any = !closed.is_empty();
        closed.into_iter().for_each(|name| self.note(name, report));
        is_any
    }

    /// Which files of a level can not be opened. Those of the first level are only opened together.
    fn closed_of(&self, tables: &Tables, table: &str, level: i32) -> Vec<String> {
        let of_level = |file: &&LiveFile| file.level == level && file.column_family_name == table;
        let files = self.live.iter().filter(of_level);
        let name = |file: &LiveFile| file.name.trim_start_matches('/').to_owned();
        if level == 0 {
            let names: Vec<_> = files.map(name).collect();
            let is_known = names.iter().any(|name| self.damaged.contains(name));
            return Some(names.join(" or ")).filter(|_| !is_known).into_iter().collect();
        }
        let is_closed = |file: &&LiveFile| {
            let mut entries = tables.db.raw_iterator_cf(tables.table(table));
            entries.seek(file.start_key.as_deref().unwrap_or_default());
            entries.status().is_err()
        };
        files.filter(is_closed).map(name).collect()
    }

    /// Whether nothing tells what a table holds.
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

/// The file that a message of RocksDB is about.
pub fn named_file(message: &str) -> Option<String> {
    let mut names =
        message.split(|c: char| c.is_whitespace() || matches!(c, '/' | ',' | ':' | '\''));
    let is_file = |name: &&str| {
        name.ends_with(".sst") || name.ends_with(".log") || name.starts_with("MANIFEST-")
    };
    names.rfind(is_file).map(str::to_owned)
}

/// The log files that hold something.
fn logs(path: &Path) -> Vec<String> {
    let files = path.read_dir().into_iter().flatten().flatten();
    let is_filled = |file: &std::fs::DirEntry| file.metadata().is_ok_and(|data| data.len() > 0);
    let names = files.filter(is_filled).map(|file| file.file_name().to_string_lossy().into_owned());
    let mut logs: Vec<_> = names.filter(|name| name.ends_with(".log")).collect();
    logs.sort();
    logs
}

#[cfg(test)]
mod tests {
    use super::named_file;

    #[test]
    fn the_file_of_a_message() {
        let check = |message, expected: Option<&str>| {
            assert_eq!(named_file(message).as_deref(), expected, "{message}");
        };
        check(
            "Corruption: block checksum mismatch: stored = 1, computed = 2, type = 4  in \
             /a/b c/000012.sst offset 0 size 4012",
            Some("000012.sst"),
        );
        check("IO error: No such file or directory: /a/000009.sst: gone", Some("000009.sst"));
        check("Corruption: checksum mismatch in /a/MANIFEST-000005", Some("MANIFEST-000005"));
        check("Corruption: missing start of fragmented record", None);
    }
}
