//! Schemas that were found, kept in files for a start while the registry is down.
//!
//! It serves, and is never needed: what cannot be read or written is told, and passed over.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use reqwest::Url;
use tempfile::NamedTempFile;
use xxhash_rust::xxh3::xxh3_64;

use super::schema_key::SchemaKey;
use crate::kafka::retry::Throttle;

/// A file is this, a space, the hash of the text in 16 hexadecimal digits, a newline, the text.
const MARK: &str = "adtrail schema 1";
const HEAD_BYTES: usize = MARK.len() + 1 + 16 + 1;

/// No schema that is written is longer, as the registry's answers are bounded; inlining adds names.
const FILE_BYTES_MAX: u64 = 4 << 20;

pub struct Disk {
    folder: PathBuf,
    unreadable: Throttle,
    unwritable: Throttle,
}

impl Disk {
    /// Ids mean something within one registry only, so each has a folder of its own, named by its
    /// URLs in whatever order.
    pub fn new(cache: &Path, urls: &[Url]) -> Self {
        let mut urls: Vec<&str> = urls.iter().map(Url::as_str).collect();
        urls.sort_unstable();
        urls.dedup();
        let folder = cache.join(format!("{:016x}", xxh3_64(urls.join("\n").as_bytes())));
        Self { folder, unreadable: Throttle::default(), unwritable: Throttle::default() }
    }

    pub fn read(&self, key: SchemaKey) -> Option<String> {
        let path = self.path(key);
        match read_file(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                self.warn_unreadable(key, &error.to_string());
                None
            }
        }
    }

    /// A file that is there and of no use.
    pub fn warn_unreadable(&self, key: SchemaKey, reason: &str) {
        self.unreadable.warn(|| {
            let path = self.path(key);
            tracing::warn!(path = %path.display(), reason, "a kept schema is of no use and will be \
                replaced");
        });
    }

    /// Whole or not at all. Not synced: a file that a power cut leaves damaged is seen as such.
    pub fn write(&self, key: SchemaKey, text: &str) {
        let path = self.path(key);
        if read_file(&path).is_ok_and(|kept| kept == text) {
            return;
        }
        let write = || {
            fs::create_dir_all(&self.folder)?;
            let mut file = NamedTempFile::new_in(&self.folder)?;
            writeln!(file, "{MARK} {:016x}", xxh3_64(text.as_bytes()))?;
            file.write_all(text.as_bytes())?;
            file.persist(&path).map_err(|error| error.error)
        };
        if let Err(error) = write() {
            self.unwritable.warn(|| {
                tracing::warn!(path = %path.display(), %error, "schemas cannot be kept on disk, so \
                    a start needs the registry; check registry.cache");
            });
        }
    }

    fn path(&self, key: SchemaKey) -> PathBuf {
        self.folder.join(key.file_name())
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    let mut content = String::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut content)?;
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the file is damaged");
    let (head, text) = content.split_at_checked(HEAD_BYTES).ok_or_else(damaged)?;
    let expected = format!("{MARK} {:016x}\n", xxh3_64(text.as_bytes()));
    if head == expected { Ok(text.to_owned()) } else { Err(damaged()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SchemaKey = SchemaKey::Id(7);

    fn urls(texts: &[&str]) -> Vec<Url> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn disk(cache: &Path) -> Disk {
        Disk::new(cache, &urls(&["http://a", "http://b"]))
    }

    #[test]
    fn what_is_written_is_read() {
        let cache = tempfile::tempdir().unwrap();
        let disk = disk(cache.path());
        assert_eq!(disk.read(KEY), None);
        disk.write(KEY, "\"é\"\n");
        assert_eq!(disk.read(KEY).as_deref(), Some("\"é\"\n"));
        disk.write(KEY, "");
        assert_eq!(disk.read(KEY).as_deref(), Some(""));
        assert_eq!(disk.read(SchemaKey::Id(8)), None);
        // Nothing else is left in the folder.
        assert_eq!(fs::read_dir(&disk.folder).unwrap().count(), 1);
    }

    #[test]
    fn another_registry_has_other_files() {
        let cache = tempfile::tempdir().unwrap();
        let folder = |texts: &[&str]| Disk::new(cache.path(), &urls(texts)).folder;
        assert_eq!(
            folder(&["http://a", "http://b"]),
            folder(&["http://b/", "http://a", "http://a"])
        );
        assert_ne!(folder(&["http://a", "http://b"]), folder(&["http://a"]));
        assert_ne!(folder(&["http://a"]), folder(&["http://a/b"]));
    }

    /// Cut at each place, with each byte changed, and with something after it.
    #[test]
    fn a_damaged_file_is_none_and_is_replaced() {
        let cache = tempfile::tempdir().unwrap();
        let disk = disk(cache.path());
        disk.write(KEY, "{\"type\":\"string\"}");
        let whole = fs::read(disk.path(KEY)).unwrap();
        let mut damaged: Vec<Vec<u8>> = (0..whole.len()).map(|end| whole[..end].to_vec()).collect();
        for index in 0..whole.len() {
            let mut changed = whole.clone();
            changed[index] ^= 0x81;
            damaged.push(changed);
        }
        damaged.push([&whole[..], b"\n"].concat());
        for content in damaged {
            fs::write(disk.path(KEY), &content).unwrap();
            assert_eq!(disk.read(KEY), None, "{}", String::from_utf8_lossy(&content));
        }
        disk.write(KEY, "\"int\"");
        assert_eq!(disk.read(KEY).as_deref(), Some("\"int\""));
    }

    #[test]
    fn a_folder_that_cannot_be_is_no_end() {
        let cache = tempfile::NamedTempFile::new().unwrap();
        let disk = disk(cache.path());
        disk.write(KEY, "\"int\"");
        assert_eq!(disk.read(KEY), None);
    }
}
