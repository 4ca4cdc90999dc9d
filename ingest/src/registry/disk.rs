//! A cache of fetched schemas on disk, used to start while the registry is down.
//!
//! It is optional: files that cannot be read or written are logged and skipped.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use config::private_files;
use reqwest::Url;
use tempfile::NamedTempFile;
use xxhash_rust::xxh3::xxh3_64;

use super::schema_key::SchemaKey;
use crate::kafka::retry::Throttle;

/// A file is this string, a space, the hash of the text in 16 hexadecimal digits, a newline, the text.
const MAGIC: &str = "adtrail schema 1";
const HEADER_BYTES: usize = MAGIC.len() + 1 + 16 + 1;

/// Maximum length of a file. The registry's responses are bounded by 1 MiB; inlining adds names.
const FILE_BYTES_MAX: u64 = 4 << 20;

pub struct DiskCache {
    cache: PathBuf,
    /// The folder of this registry, in `cache`.
    folder: PathBuf,
    unreadable: Throttle,
    unwritable: Throttle,
}

impl DiskCache {
    /// Uses one folder per registry, because ids are unique within one registry only. Its name is a hash of the URLs,
    /// independent of their order.
    pub fn new(cache: &Path, urls: &[Url]) -> Self {
        let mut urls: Vec<&str> = urls.iter().map(Url::as_str).collect();
        urls.sort_unstable();
        urls.dedup();
        let folder = cache.join(format!("{:016x}", xxh3_64(urls.join("\n").as_bytes())));
        let (unreadable, unwritable) = (Throttle::default(), Throttle::default());
        Self { cache: cache.to_owned(), folder, unreadable, unwritable }
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

    /// Logs that a file exists but cannot be used.
    pub fn warn_unreadable(&self, key: SchemaKey, reason: &str) {
        self.unreadable.warn(|| {
            let path = self.path(key);
            tracing::warn!(path = %path.display(), reason, "a cached schema cannot be used and will \
                be fetched again");
        });
    }

    /// Writes a file atomically. It is not synced: the hash detects a file damaged by a power failure.
    pub fn write(&self, key: SchemaKey, text: &str) {
        let path = self.path(key);
        if read_file(&path).is_ok_and(|cached| cached == text) {
            return;
        }
        let write = || {
            private_files::private_folder(&self.cache)?;
            private_files::private_folder(&self.folder)?;
            let mut file = NamedTempFile::new_in(&self.folder)?;
            writeln!(file, "{MAGIC} {:016x}", xxh3_64(text.as_bytes()))?;
            file.write_all(text.as_bytes())?;
            file.persist(&path).map_err(|error| error.error)
        };
        if let Err(error) = write() {
            self.unwritable.warn(|| {
                tracing::warn!(path = %path.display(), %error, "schemas cannot be cached on \
                    disk, so the next start needs the registry; check registry.cache");
            });
        }
    }

    fn path(&self, key: SchemaKey) -> PathBuf {
        self.folder.join(key.file_name())
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    let mut content = String::new();
    // A schema of another user could change the meaning of events.
    let file = private_files::open(path, OpenOptions::new().read(true))?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut content)?;
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the file is damaged");
    let (head, text) = content.split_at_checked(HEADER_BYTES).ok_or_else(damaged)?;
    let expected = format!("{MAGIC} {:016x}\n", xxh3_64(text.as_bytes()));
    if head == expected { Ok(text.to_owned()) } else { Err(damaged()) }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const KEY: SchemaKey = SchemaKey::Id(7);

    fn urls(texts: &[&str]) -> Vec<Url> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn disk(cache: &Path) -> DiskCache {
        DiskCache::new(cache, &urls(&["http://a", "http://b"]))
    }

    #[test]
    fn written_schemas_are_read_back() {
        let cache = tempfile::tempdir().unwrap();
        let disk = disk(cache.path());
        assert_eq!(disk.read(KEY), None);
        disk.write(KEY, "\"é\"\n");
        assert_eq!(disk.read(KEY).as_deref(), Some("\"é\"\n"));
        disk.write(KEY, "");
        assert_eq!(disk.read(KEY).as_deref(), Some(""));
        assert_eq!(disk.read(SchemaKey::Id(8)), None);
        // No temporary file remains.
        assert_eq!(fs::read_dir(&disk.folder).unwrap().count(), 1);
    }

    #[test]
    fn each_registry_has_its_own_folder() {
        let cache = tempfile::tempdir().unwrap();
        let folder = |texts: &[&str]| DiskCache::new(cache.path(), &urls(texts)).folder;
        let both = folder(&["http://a", "http://b"]);
        assert_eq!(both, folder(&["http://b/", "http://a", "http://a"]));
        assert_ne!(both, folder(&["http://a"]));
        assert_ne!(folder(&["http://a"]), folder(&["http://a/b"]));
    }

    /// Tries every truncation, every changed byte, and an appended byte.
    #[test]
    fn a_damaged_file_is_ignored_and_replaced() {
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
    fn a_file_that_others_could_have_written_is_ignored() {
        let cache = tempfile::tempdir().unwrap();
        let disk = disk(cache.path());
        disk.write(KEY, "\"int\"");
        let path = disk.path(KEY);
        for folder in [cache.path(), disk.folder.as_path()] {
            assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
        }
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert_eq!(disk.read(KEY), None);
        // It is fetched again, and replaced.
        disk.write(KEY, "\"long\"");
        assert_eq!(disk.read(KEY).as_deref(), Some("\"long\""));
        let other = cache.path().join("other");
        fs::rename(&path, &other).unwrap();
        symlink(&other, &path).unwrap();
        assert_eq!(disk.read(KEY), None);
    }

    #[test]
    fn a_folder_that_cannot_be_created_is_not_an_error() {
        let cache = tempfile::NamedTempFile::new().unwrap();
        let disk = disk(cache.path());
        disk.write(KEY, "\"int\"");
        assert_eq!(disk.read(KEY), None);
    }
}
