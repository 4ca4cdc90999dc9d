//! The page of a backup: when it was taken, what is in it, and its files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::Amount;
use super::stored_file::StoredFile;
use crate::StoreError;
use crate::embedded::checkpoint::Moment;

/// Next offsets by topic and Kafka partition.
pub type Positions = BTreeMap<String, BTreeMap<i32, i64>>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Counted from 1; greater is newer.
    pub backup: u32,
    /// When the command began, RFC 3339.
    pub time: String,
    /// Of the store; fixed when it was created.
    pub partitions: u16,
    pub rows: u64,
    pub positions: Positions,
    /// Names of [`StoredFile`]s.
    files: Vec<String>,
}

/// The place of a page, as its name has it. The hash of its text is part of the name, so that a
/// page that was changed is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageName {
    pub backup: u32,
    pub hash: u64,
}

impl Manifest {
    pub fn new(backup: u32, time: String, moment: &Moment, pieces: &[StoredFile]) -> Self {
        let mut positions = Positions::new();
        for position in &moment.positions {
            let of_topic = positions.entry(position.topic.to_string()).or_default();
            of_topic.insert(position.partition, position.next_offset);
        }
        let (partitions, rows) = (moment.partitions, moment.rows);
        let files = pieces.iter().map(StoredFile::to_string).collect();
        Self { backup, time, partitions, rows, positions, files }
    }

    pub fn pieces(&self) -> Result<Vec<StoredFile>, &str> {
        self.files.iter().map(|name| name.parse().map_err(|()| &**name)).collect()
    }

    /// All files of it, those that it shares too.
    pub fn amount(&self) -> Amount {
        let mut amount = Amount::default();
        for piece in self.files.iter().filter_map(|name| name.parse::<StoredFile>().ok()) {
            amount.add(piece.source.bytes);
        }
        amount
    }

    /// Checks that the restored store opens and is the one of this backup.
    pub fn check(&self, settings: &config::Store) -> Result<(), StoreError> {
        if self.is_of(&Moment::read(settings)?) {
            return Ok(());
        }
        Err(StoreError::corrupt(format!("it is not the one of backup {}", self.backup)))
    }

    fn is_of(&self, moment: &Moment) -> bool {
        let told = Self::new(self.backup, String::new(), moment, &[]);
        (self.partitions, self.rows, &self.positions)
            == (told.partitions, told.rows, &told.positions)
    }

    /// As it is kept, and under which name.
    pub fn encode(&self) -> Result<(PageName, Vec<u8>), serde_json::Error> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok((PageName { backup: self.backup, hash: xxh3_64(&text) }, text))
    }

    pub fn read(path: &Path, name: PageName) -> Result<Self, StoreError> {
        let text = fs::read(path).map_err(StoreError::file("read", path))?;
        Self::parse(&text, name)
            .map_err(|what| StoreError::DamagedBackup { path: path.into(), what })
    }

    /// # Errors
    /// In which way it is damaged.
    pub(crate) fn parse(text: &[u8], name: PageName) -> Result<Self, String> {
        if xxh3_64(text) != name.hash {
            return Err("its text is not the one that was written".into());
        }
        let page: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let is_known = page.pieces().is_ok() && page.backup == name.backup;
        if is_known { Ok(page) } else { Err("written by another version of adtrail".into()) }
    }
}

impl PageName {
    pub fn parse(file: &str) -> Option<Self> {
        let (backup, hash) = file.strip_suffix(".json")?.split_once('-')?;
        let name = Self { backup: backup.parse().ok()?, hash: u64::from_str_radix(hash, 16).ok()? };
        (name.file() == file).then_some(name)
    }

    pub fn file(self) -> String {
        format!("{}-{:016x}.json", self.backup, self.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::PageName;

    #[test]
    fn only_pages_are_taken_for_pages() {
        let check = |file: &str, expected: Option<u32>| {
            assert_eq!(PageName::parse(file).map(|name| name.backup), expected, "{file}");
        };
        check("12-00000000000000ff.json", Some(12));
        check("12-ff.json", None);
        check("012-00000000000000ff.json", None);
        check("12-00000000000000ff.json.tmp", None);
        check("adtrail-backups", None);
    }
}
