//! The files of a spool. Only their owner may access them, and one process uses the directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use config::private_files;
use ingest::TopicKind;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::record::Event;
use crate::CollectError;

const MODE: u32 = 0o600;

/// The name of a segment: its number, which follows the order in which segments were started, and the marker of its
/// records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub number: u64,
    pub marker: u64,
}

impl Name {
    fn parse(stem: &str) -> Option<Self> {
        let (number, marker) = stem.split_once('-')?;
        let marker = u64::from_str_radix(marker, 16).ok()?;
        Some(Self { number: number.parse().ok()?, marker })
    }

    fn file(self, extension: &str) -> String {
        format!("{:020}-{:016x}.{extension}", self.number, self.marker)
    }
}

const SEGMENT: &str = "events";
/// Segments in which something is damaged, after their other events were produced.
const DAMAGED: &str = "damaged";

/// What is in the directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// In their order.
    pub segments: Vec<Name>,
    /// The size of all files.
    pub bytes: u64,
    /// More than the number of any segment, damaged ones included.
    pub next_number: u64,
}

/// A directory that no other process uses.
pub(super) struct Folder {
    path: PathBuf,
    /// Has the lock, and syncs the names of new files.
    handle: File,
}

impl Folder {
    pub fn open(path: &Path) -> Result<Self, CollectError> {
        let unusable = |error| CollectError::Spool { path: path.to_owned(), error };
        private_files::private_store(path).map_err(unusable)?;
        sync_name(path);
        let handle = File::open(path).map_err(unusable)?;
        match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.to_owned(), handle }),
            Err(Errno::WOULDBLOCK) => Err(CollectError::SpoolInUse { path: path.to_owned() }),
            Err(error) => Err(unusable(error.into())),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn list(&self) -> io::Result<Listing> {
        let mut listing = Listing::default();
        for entry in self.path.read_dir()? {
            let entry = entry?;
            let found = entry.metadata()?;
            if !found.is_file() {
                continue;
            }
            listing.bytes += found.len();
            let file = entry.file_name();
            let parts = file.to_str().and_then(|file| file.split_once('.'));
            let Some((name, extension)) =
                parts.and_then(|(stem, extension)| Some((Name::parse(stem)?, extension)))
            else {
                continue;
            };
            listing.next_number = listing.next_number.max(name.number.saturating_add(1));
            if extension == SEGMENT {
                listing.segments.push(name);
            }
        }
        listing.segments.sort_unstable();
        Ok(listing)
    }

    /// Starts a segment. Its name survives a power failure.
    pub fn create(&self, number: u64) -> io::Result<(Name, File)> {
        let mut marker = [0_u8; 8];
        getrandom::fill(&mut marker)
            .map_err(|_| io::Error::other("the system has no random numbers"))?;
        let name = Name { number, marker: u64::from_le_bytes(marker) };
        let path = self.path.join(name.file(SEGMENT));
        let mut options = OpenOptions::new();
        let file = private_files::open(&path, options.write(true).create_new(true).mode(MODE))?;
        self.handle.sync_all()?;
        Ok((name, file))
    }

    /// Reads a segment, at most this many bytes.
    pub fn read(&self, name: Name, bytes_max: u64) -> io::Result<Vec<u8>> {
        let path = self.path.join(name.file(SEGMENT));
        let file = private_files::open(&path, OpenOptions::new().read(true))?;
        let mut bytes = Vec::new();
        file.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Cuts a segment after this many bytes.
    pub fn cut(&self, name: Name, bytes: u64) -> io::Result<()> {
        let path = self.path.join(name.file(SEGMENT));
        let file = private_files::open(&path, OpenOptions::new().write(true))?;
        file.set_len(bytes)?;
        file.sync_data()
    }

    /// Removes a segment. If a power failure brings it back, its events are produced again.
    pub fn remove(&self, name: Name) -> io::Result<()> {
        fs::remove_file(self.path.join(name.file(SEGMENT)))
    }

    /// Keeps a damaged segment under another name, where an operator can look at it.
    pub fn set_aside(&self, name: Name) -> io::Result<()> {
        fs::rename(self.path.join(name.file(SEGMENT)), self.path.join(name.file(DAMAGED)))
    }

    /// Keeps events that Kafka will never accept, as lines of `rejected-TOPIC.ndjson`. Returns the bytes written. After
    /// an error, those of another topic may be there nevertheless.
    pub fn reject(&self, events: &[Event]) -> io::Result<u64> {
        let mut bytes = 0;
        for topic in TopicKind::ALL {
            let of_topic = events.iter().filter(|event| event.topic == topic);
            let lines: Vec<u8> = of_topic.flat_map(line).collect();
            if !lines.is_empty() {
                self.append_rejected(topic, &lines)?;
                bytes += lines.len() as u64;
            }
        }
        self.handle.sync_all()?;
        Ok(bytes)
    }

    fn append_rejected(&self, topic: TopicKind, lines: &[u8]) -> io::Result<()> {
        let topic = match topic {
            TopicKind::Clicks => "clicks",
            TopicKind::Activations => "activations",
            TopicKind::Effects => "effects",
        };
        let path = self.path.join(format!("rejected-{topic}.ndjson"));
        let mut options = OpenOptions::new();
        let mut file = private_files::open(&path, options.append(true).create(true).mode(MODE))?;
        let before = file.metadata()?.len();
        let written = file.write_all(lines).and_then(|()| file.sync_data());
        if written.is_err() {
            // The events stay in their segment.
            let _ = file.set_len(before);
        }
        written
    }
}

/// Returns the line of an event. A line break in JSON is white space.
fn line(event: &Event) -> impl Iterator<Item = u8> {
    let text = event.value.iter().copied().filter(|byte| !matches!(byte, b'\n' | b'\r'));
    text.chain([b'\n'])
}

/// Makes a directory that may be new, and those above it, survive a power failure. A directory that this process must
/// not open is not new.
fn sync_name(path: &Path) {
    let path = path.canonicalize().unwrap_or_default();
    for parent in path.ancestors().skip(1) {
        let _ = File::open(parent).and_then(|parent| parent.sync_all());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_private_and_listed_in_order() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("spool");
        let folder = Folder::open(&path).unwrap();
        let names = [10, 9, 2].map(|number| folder.create(number).unwrap().0);
        folder.set_aside(names[0]).unwrap();
        fs::write(path.join("README.events"), "abc").unwrap();
        let listing = folder.list().unwrap();
        assert_eq!(listing.segments, [names[2], names[1]]);
        assert_eq!((listing.bytes, listing.next_number), (3, 11));
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&path.join(names[1].file(SEGMENT))), 0o600);
    }

    #[test]
    fn a_directory_is_of_one_process() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::open(temporary.path()).unwrap();
        let second = Folder::open(temporary.path());
        assert!(matches!(second, Err(CollectError::SpoolInUse { .. })));
        drop(folder);
        Folder::open(temporary.path()).unwrap();
    }

    #[test]
    fn links_are_not_followed() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::open(temporary.path()).unwrap();
        let name = Name { number: 1, marker: 2 };
        symlink("/etc/passwd", temporary.path().join(name.file(SEGMENT))).unwrap();
        assert!(folder.read(name, u64::MAX).is_err());
        assert!(folder.cut(name, 0).is_err());
        drop(folder);
        assert!(matches!(Folder::open(temporary.path()), Err(CollectError::Spool { .. })));
    }

    #[test]
    fn a_rejected_event_is_one_line() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::open(temporary.path()).unwrap();
        let event = |topic, value: &str| Event { topic, key: "app-x".into(), value: value.into() };
        let effect = event(TopicKind::Effects, "{\"a\":\r\n 1}");
        let events = [effect.clone(), event(TopicKind::Clicks, "{}"), effect.clone()];
        assert_eq!(folder.reject(&events).unwrap(), 21);
        assert_eq!(folder.reject(&[effect]).unwrap(), 9);
        let text = |file: &str| fs::read_to_string(temporary.path().join(file)).unwrap();
        assert_eq!(text("rejected-effects.ndjson"), "{\"a\": 1}\n".repeat(3));
        assert_eq!(text("rejected-clicks.ndjson"), "{}\n");
        assert_eq!(mode(&temporary.path().join("rejected-effects.ndjson")), 0o600);
    }
}
