//! The files of a store: that they are there, are as long as they were, and read.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rocksdb::LiveFile;

use super::report::{Problem, Report};
use crate::StoreError;
use crate::embedded::tables::Tables;

/// Files that hold data, and those of them that are known to be damaged.
#[derive(Default)]
pub struct Files {
    live: Vec<LiveFile>,
    damaged: BTreeSet<String>,
}

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
        match Tables::open_for_checking(path, memory_bytes, false) {
            Ok(tables) => {
                let files = Files::of(&tables)?;
                return Ok(Some((tables, files)));
            }
            Err(failure) if !is_damage(&failure) => return Err(failure),
            Err(failure) if attempts == ATTEMPTS => break failure.to_string(),
            Err(_) => sleep(Duration::from_millis(50)),
        }
    };
    let Ok(tables) = Tables::open_for_checking(path, memory_bytes, true) else {
        let name = named_file(&failure).unwrap_or(failure);
        report.find(Problem::FileDamaged, false, || name);
        return Ok(None);
    };
    let mut files = Files::of(&tables)?;
    files.compare(path, report);
    match named_file(&failure) {
        Some(name) if name.ends_with(".sst") => files.note(name, report),
        _ if files.damaged.is_empty() => {
            report.find(Problem::LogDamaged, false, || logs(path).join(" or "));
        }
        _ => {}
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
        Ok(Self { live: tables.db.live_files()?, damaged: BTreeSet::new() })
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
