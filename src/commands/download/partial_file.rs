//! A file that is written beside its place, and gone on with after whatever ended it.
//!
//! Rows may have been corrected since the part was written, and nobody can tell from a cursor. So
//! `--resume` makes the whole export again, of one moment, and compares what is there with its beginning.
//! Only from the first byte that differs, or is missing, something is written: what comes out is that one
//! export, byte for byte, whatever the part was.
//!
//! `FILE.part` has the rows, `FILE.part.query` what they are of. Both go when `FILE` is whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use export::Checksum;
use rustix::fs::{FlockOperation, OFlags, flock};

use super::saved_query::{Asked, beside, read_query, require_same, unwritable, write_query};
use crate::commands::WrongUse;
use crate::commands::temp_files::Kept;
use crate::telemetry::tell;

/// Of a file, at a time.
const READ_BYTES: usize = 128 << 10;

pub struct Part {
    file: File,
    /// Where it is, and is to be.
    path: PathBuf,
    whole: PathBuf,
    asked: Asked,
    /// So much of it is as the export is.
    same_bytes: u64,
    /// So much more was there before, and is not compared yet.
    left_bytes: u64,
    origin: Origin,
    /// For whoever ends the command.
    kept: Kept,
}

/// Whose the bytes are that were there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// There were none.
    New,
    /// Of a download of the same.
    Own,
    /// Nobody knows of what.
    Unknown,
}

/// What is there in place of the export.
#[derive(Clone, Copy)]
enum Other {
    Bytes,
    /// Zero bytes.
    Zeros,
    /// All of the export, and more.
    More,
}

impl Part {
    /// From its beginning, whatever was there.
    pub fn begin(whole: &Path, asked: Asked) -> anyhow::Result<Self> {
        let path = beside(whole, ".part");
        let file = open_alone(&path, true)?;
        file.set_len(0).with_context(|| unwritable(&path))?;
        write_query(&path, &asked)?;
        Self::new(file, path, whole, asked, Origin::New)
    }

    /// On with what is there: beside its place, or, as somebody else may have left it, at it.
    pub fn resume(whole: &Path, asked: Asked) -> anyhow::Result<Self> {
        let path = beside(whole, ".part");
        if !path.exists() && whole.is_file() {
            let file = open_alone(whole, false)?;
            return Self::new(file, whole.to_owned(), whole, asked, Origin::Unknown);
        }
        let file = open_alone(&path, true)?;
        let is_empty = file.metadata().with_context(|| unwritable(&path))?.len() == 0;
        let origin = match read_query(&path) {
            _ if is_empty => Origin::New,
            None => Origin::Unknown,
            Some(query) => {
                require_same(&path, &query, &asked)?;
                Origin::Own
            }
        };
        if origin == Origin::New {
            write_query(&path, &asked)?;
        }
        Self::new(file, path, whole, asked, origin)
    }

    fn new(
        file: File,
        path: PathBuf,
        whole: &Path,
        asked: Asked,
        origin: Origin,
    ) -> anyhow::Result<Self> {
        let left_bytes = file.metadata().with_context(|| unwritable(&path))?.len();
        let kept = Kept::new(&path).context("signals can not be listened for")?;
        let whole = whole.to_owned();
        Ok(Self { file, path, whole, asked, same_bytes: 0, left_bytes, origin, kept })
    }

    /// The next bytes of the export.
    pub fn take(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let same = self.compare(bytes)?;
        let new = bytes.get(same..).unwrap_or_default();
        if !new.is_empty() {
            self.require_place()?;
            self.file.write_all(new).context("the rows can not be written")?;
            self.same_bytes += new.len() as u64;
        }
        Ok(())
    }

    /// How many of the bytes are there already. From the first that is another nothing is kept.
    fn compare(&mut self, bytes: &[u8]) -> anyhow::Result<usize> {
        let length = bytes.len().min(usize::try_from(self.left_bytes).unwrap_or(usize::MAX));
        if length == 0 {
            return Ok(0);
        }
        let mut there = vec![0; length];
        let read = self.file.read_exact_at(&mut there, self.same_bytes);
        read.with_context(|| format!("can not be read: {}", self.path.display()))?;
        let differs = there.iter().zip(bytes).position(|(there, expected)| there != expected);
        let same = differs.unwrap_or(length);
        self.same_bytes += same as u64;
        self.left_bytes -= same as u64;
        if let Some(place) = differs {
            // Texts have no zeros, but disks that lost what was written to them have.
            let is_zero = there.get(place) == Some(&0) && bytes.get(place) != Some(&0);
            self.cut(if is_zero { Other::Zeros } else { Other::Bytes })?;
        } else if self.left_bytes == 0 {
            self.file
                .seek(SeekFrom::Start(self.same_bytes))
                .with_context(|| unwritable(&self.path))?;
        }
        Ok(same)
    }

    /// What is left is not of the export as it is now.
    fn cut(&mut self, other: Other) -> anyhow::Result<()> {
        let (path, line) = (self.path.display(), self.line()?);
        if self.origin != Origin::Own {
            return Err(self.refused(other, line).into());
        }
        let more = self.left_bytes;
        let what = match other {
            Other::Bytes => format!(
                "line {line} is not as in the export now: rows were corrected since, or the file \
                 was changed; written anew from there on"
            ),
            Other::Zeros => format!(
                "line {line} is damaged, zeros are where the export has text; written anew from \
                 there on"
            ),
            Other::More => format!(
                "{more} bytes are after the end of the export as it is now: rows have gone since, \
                 or something was added; left out"
            ),
        };
        tell(format_args!("{path}: {what}\n"));
        self.left_bytes = 0;
        let cut = self.file.set_len(self.same_bytes);
        cut.and_then(|()| self.file.seek(SeekFrom::Start(self.same_bytes)).map(drop))
            .with_context(|| unwritable(&self.path))
    }

    /// Of a file that nobody knows the query of, and that is of this one in no case.
    fn refused(&self, other: Other, line: u64) -> WrongUse {
        let (path, more) = (self.path.display(), self.left_bytes);
        let what = match other {
            Other::Bytes => format!("line {line} is not as in this export"),
            Other::Zeros => format!("line {line} has zeros where this export has text"),
            Other::More => format!("it has {more} bytes after the end of this export"),
        };
        let unknown = match self.path == self.whole {
            true => String::new(),
            false => {
                let query = beside(&self.path, ".query");
                format!(", and what it is of is not in {}", query.display())
            }
        };
        WrongUse(format!("--resume: {path}: {what}{unknown}; without --resume it is written anew"))
    }

    /// The line that the first byte which is not the same is in.
    fn line(&self) -> anyhow::Result<u64> {
        let mut lines = 1;
        each_bytes(&self.file, self.same_bytes, |bytes| {
            lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        })
        .with_context(|| format!("can not be read: {}", self.path.display()))?;
        Ok(lines)
    }

    /// A file that somebody else left is taken from its place before it is changed.
    fn require_place(&mut self) -> anyhow::Result<()> {
        if self.path != self.whole {
            return Ok(());
        }
        let path = beside(&self.whole, ".part");
        write_query(&path, &self.asked)?;
        fs::rename(&self.whole, &path).with_context(|| unwritable(&path))?;
        (self.path, self.origin) = (path, Origin::Own);
        self.kept.moved(&self.path);
        Ok(())
    }

    /// All is there, and has this checksum.
    pub fn finish(mut self, sha256: &str) -> anyhow::Result<()> {
        let outcome = self.place(sha256);
        outcome.map_err(|error| self.left(error))
    }

    fn place(&mut self, sha256: &str) -> anyhow::Result<()> {
        if self.left_bytes > 0 {
            self.cut(Other::More)?;
        }
        if self.origin != Origin::New {
            self.check(sha256)?;
        }
        if self.path == self.whole {
            tell(format_args!("{}: it was whole already\n", self.whole.display()));
        } else {
            let Self { path, whole, kept, .. } = self;
            kept.place(|| fs::rename(&*path, &*whole))
                .with_context(|| format!("can not be written: {}", whole.display()))?;
        }
        match fs::remove_file(beside(&self.whole, ".part.query")) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| unwritable(&beside(&self.whole, ".part.query")))
            }
            _ => Ok(()),
        }
    }

    /// That the file as it lies there is the export.
    fn check(&self, sha256: &str) -> anyhow::Result<()> {
        let mut checksum = Checksum::default();
        each_bytes(&self.file, u64::MAX, |bytes| checksum.add(bytes))
            .with_context(|| format!("can not be read: {}", self.path.display()))?;
        let found = checksum.text();
        if found == sha256 {
            return Ok(());
        }
        Err(anyhow!("{}: expected the checksum {sha256}, found {found}", self.path.display()))
    }

    /// The error that left it as it is, with what can be done.
    pub fn left(&self, error: anyhow::Error) -> anyhow::Error {
        if error.is::<WrongUse>() {
            return error;
        }
        anyhow!("{error:#}; {}", Kept::advice(&self.path))
    }
}

/// A file that no other download writes.
fn open_alone(path: &Path, may_be_new: bool) -> anyhow::Result<File> {
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(may_be_new).truncate(false);
        if may_be_new {
            options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        }
        let file = options.open(path).with_context(|| unwritable(path))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => {
                anyhow!("another download is writing it: {}", path.display())
            }
            error => anyhow!(io::Error::from(error)).context(unwritable(path)),
        })?;
        // Whoever had it may have moved it to its place meanwhile.
        let own = file.metadata().with_context(|| unwritable(path))?;
        if fs::metadata(path)
            .is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()))
        {
            return Ok(file);
        }
    }
}

fn each_bytes(file: &File, most: u64, mut visit: impl FnMut(&[u8])) -> io::Result<()> {
    let mut file = file;
    file.seek(SeekFrom::Start(0))?;
    let (mut read, mut buffer) = (file.take(most), vec![0; READ_BYTES]);
    loop {
        match read.read(&mut buffer)? {
            0 => return Ok(()),
            length => visit(&buffer[..length]),
        }
    }
}
