//! The manifest of a backup: its time, contents and files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::Amount;
use super::stored_file::StoredFile;
use crate::StoreError;
use crate::embedded::checkpoint::StoreContents;

/// Next offsets by topic and Kafka partition.
pub type Positions = BTreeMap<String, BTreeMap<i32, i64>>;

/// A backup's manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The number of the backup, counted from 1.
    pub backup: u32,
    /// The start of the command, RFC 3339.
    pub time: String,
    /// The number of partitions of the store, fixed when it was created.
    pub partitions: u16,
    pub rows: u64,
    pub positions: Positions,
    /// Names of [`StoredFile`]s.
    files: Vec<String>,
}

/// The file name of a manifest. It contains a hash of the text, by which changes are detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ManifestName {
    pub backup: u32,
    pub hash: u64,
}

impl Manifest {
    pub fn new(backup: u32, time: String, contents: &StoreContents, files: &[StoredFile]) -> Self {
        let mut positions = Positions::new();
        for position in &contents.positions {
            let of_topic = positions.entry(position.topic.to_string()).or_default();
            of_topic.insert(position.partition, position.next_offset);
        }
        let (partitions, rows) = (contents.partitions, contents.rows);
        let files = files.iter().map(StoredFile::to_string).collect();
        Self { backup, time, partitions, rows, positions, files }
    }

    /// The stored files. The error is a name that is not valid.
    pub fn files(&self) -> Result<Vec<StoredFile>, &str> {
        self.files.iter().map(|name| name.parse().map_err(|()| &**name)).collect()
    }

    /// The number and the size of all files, including those shared with other backups.
    pub fn amount(&self) -> Amount {
        let mut amount = Amount::default();
        for file in self.files.iter().filter_map(|name| name.parse::<StoredFile>().ok()) {
            amount.add(file.source.bytes);
        }
        amount
    }

    /// Checks that the restored store opens and matches this manifest.
    pub fn check(&self, settings: &config::Store) -> Result<(), StoreError> {
        let found = Self::new(self.backup, String::new(), &StoreContents::read(settings)?, &[]);
        let matches = (self.partitions, self.rows, &self.positions)
            == (found.partitions, found.rows, &found.positions);
        if matches {
            return Ok(());
        }
        Err(StoreError::corrupt(format!(
            "it does not match the manifest of backup {}",
            self.backup
        )))
    }

    /// Returns the file's name and text.
    pub fn encode(&self) -> Result<(ManifestName, Vec<u8>), serde_json::Error> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok((ManifestName { backup: self.backup, hash: xxh3_64(&text) }, text))
    }

    pub fn read(path: &Path, name: ManifestName) -> Result<Self, StoreError> {
        let text = fs::read(path).map_err(StoreError::file("read", path))?;
        Self::parse(&text, name)
            .map_err(|what| StoreError::DamagedBackup { path: path.into(), what })
    }

    /// Parses the text of the file with the given name.
    ///
    /// # Errors
    /// A description of the damage.
    pub(crate) fn parse(text: &[u8], name: ManifestName) -> Result<Self, String> {
        if xxh3_64(text) != name.hash {
            return Err("checksum mismatch".into());
        }
        let manifest: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let is_known = manifest.files().is_ok() && manifest.backup == name.backup;
        if is_known { Ok(manifest) } else { Err("written by another version of adtrail".into()) }
    }
}

impl ManifestName {
    pub fn parse(file: &str) -> Option<Self> {
        let (backup, hash) = file.strip_suffix(".json")?.split_once('-')?;
        let name = Self { backup: backup.parse().ok()?, hash: u64::from_str_radix(hash, 16).ok()? };
        (name.file() == file).then_some(name)
    }

    pub fn file(self) -> String {
        format!("{}-{:016x}.json", self.backup, self.hash)
    }
}
