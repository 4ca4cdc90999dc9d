//! A file that is written beside its target, and can be resumed after any interruption.
//!
//! Rows may have been corrected since the part was written. So `--resume` makes the whole export again, of one moment,
//! and compares it with what is there. It writes only from the first byte that differs or is missing: the result is
//! that one export, byte for byte, whatever the part was.
//!
//! `FILE.part` has the rows, `FILE.part.query` the query. Both are gone once `FILE` is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use export::Checksum;
use rustix::fs::{FlockOperation, OFlags, flock};

use super::saved_query::{Query, beside, read_query, require_same, unwritable, write_query};
use crate::commands::WrongUse;
use crate::commands::temp_files::{TempPath, resume_advice};
use crate::telemetry::tell;

const READ_BYTES: usize = 128 << 10;

pub struct Part {
    file: File,
    /// The present path: the target only if another program left the file there.
    path: PathBuf,
    target: PathBuf,
    query: Query,
    /// Bytes that are as in the export: compared or written.
    same_bytes: u64,
    /// Bytes that follow them and are not compared yet.
    left_bytes: u64,
    /// True if any bytes were there at the start.
    is_resumed: bool,
    /// True if the saved query says that the file is of this export.
    is_own: bool,
    temp: TempPath,
}

impl Part {
    /// Starts from the beginning, whatever is there.
    pub fn begin(target: &Path, query: Query) -> anyhow::Result<Self> {
        let path = beside(target, ".part");
        let file = open_locked(&path, true)?;
        file.set_len(0).with_context(|| unwritable(&path))?;
        write_query(&path, &query)?;
        Self::new((file, path), target, query, true)
    }

    /// Continues the part, or without one a target that another program left incomplete.
    pub fn resume(target: &Path, query: Query) -> anyhow::Result<Self> {
        let path = beside(target, ".part");
        if !path.exists() && target.is_file() {
            let file = open_locked(target, false)?;
            return Self::new((file, target.to_owned()), target, query, false);
        }
        let file = open_locked(&path, true)?;
        if file.metadata().with_context(|| unwritable(&path))?.len() == 0 {
            write_query(&path, &query)?;
            return Self::new((file, path), target, query, true);
        }
        let saved = read_query(&path);
        saved.as_ref().map_or(Ok(()), |saved| require_same(&path, saved, &query))?;
        Self::new((file, path), target, query, saved.is_some())
    }

    fn new(
        (file, path): (File, PathBuf),
        target: &Path,
        query: Query,
        is_own: bool,
    ) -> anyhow::Result<Self> {
        let left_bytes = file.metadata().with_context(|| unwritable(&path))?.len();
        let (is_resumed, temp) = (left_bytes > 0, TempPath::resumable(&path)?);
        let target = target.to_owned();
        Ok(Self { file, path, target, query, same_bytes: 0, left_bytes, is_resumed, is_own, temp })
    }

    /// Takes the next bytes of the export.
    pub fn take(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let same = self.compare(bytes)?;
        let new = bytes.get(same..).unwrap_or_default();
        if !new.is_empty() {
            self.leave_target()?;
            self.file.write_all_at(new, self.same_bytes).context("the rows cannot be written")?;
            self.same_bytes += new.len() as u64;
        }
        Ok(())
    }

    /// How many of the bytes are there already. What follows the first difference is cut off.
    fn compare(&mut self, bytes: &[u8]) -> anyhow::Result<usize> {
        let length = bytes.len().min(usize::try_from(self.left_bytes).unwrap_or(usize::MAX));
        let mut found = vec![0; length];
        let read = self.file.read_exact_at(&mut found, self.same_bytes);
        read.with_context(|| self.unreadable())?;
        let difference = found.iter().zip(bytes).position(|(found, expected)| found != expected);
        let same = difference.unwrap_or(length);
        self.same_bytes += same as u64;
        self.left_bytes -= same as u64;
        if difference.is_some() {
            let line = self.line()?;
            self.cut(&format!("line {line} is not as in this export"))?;
        }
        Ok(same)
    }

    /// Cuts off what is not as in the export; refuses if the file may be of another one.
    fn cut(&mut self, difference: &str) -> anyhow::Result<()> {
        let path = self.path.display();
        if self.is_own {
            tell(format_args!(
                "{path}: {difference}: rows were corrected since, or the file was changed or damaged; \
                 rewritten from there on\n"
            ));
            self.left_bytes = 0;
            return self.file.set_len(self.same_bytes).with_context(|| unwritable(&self.path));
        }
        let query = match self.path == self.target {
            true => String::new(),
            false => {
                let query = beside(&self.path, ".query");
                format!(", and {} does not say what it is of", query.display())
            }
        };
        let advice = "without --resume it is overwritten";
        Err(WrongUse(format!("--resume: {path}: {difference}{query}; {advice}")).into())
    }

    /// The line of the first byte that differs.
    fn line(&self) -> anyhow::Result<u64> {
        let mut lines = 1;
        self.for_each_chunk(self.same_bytes, |bytes| {
            lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        })?;
        Ok(lines)
    }

    /// Moves a file that another program left at the target beside it, before it is changed.
    fn leave_target(&mut self) -> anyhow::Result<()> {
        if self.path != self.target {
            return Ok(());
        }
        let path = beside(&self.target, ".part");
        write_query(&path, &self.query)?;
        fs::rename(&self.target, &path).with_context(|| unwritable(&path))?;
        self.temp = TempPath::resumable(&path)?;
        (self.path, self.is_own) = (path, true);
        Ok(())
    }

    /// Moves the file to the target once it is the export of this checksum.
    pub fn finish(mut self, sha256: &str) -> anyhow::Result<()> {
        self.move_to_target(sha256).map_err(|error| self.left(error))
    }

    fn move_to_target(&mut self, sha256: &str) -> anyhow::Result<()> {
        if self.left_bytes > 0 {
            self.cut(&format!("{} bytes follow the end of this export", self.left_bytes))?;
        }
        if self.is_resumed {
            self.check(sha256)?;
        }
        if self.path == self.target {
            tell(format_args!("{}: it is complete already\n", self.target.display()));
        } else {
            fs::rename(&self.path, &self.target).with_context(|| unwritable(&self.target))?;
        }
        let query = beside(&self.target, ".part.query");
        match fs::remove_file(&query) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| unwritable(&query))
            }
            _ => Ok(()),
        }
    }

    /// Compares the file as it is on the disk with the export.
    fn check(&self, sha256: &str) -> anyhow::Result<()> {
        let mut checksum = Checksum::default();
        self.for_each_chunk(u64::MAX, |bytes| checksum.add(bytes))?;
        let found = checksum.text();
        if found != sha256 {
            bail!("{}: expected the checksum {sha256}, found {found}", self.path.display());
        }
        Ok(())
    }

    fn for_each_chunk(&self, bytes_max: u64, mut visit: impl FnMut(&[u8])) -> anyhow::Result<()> {
        let mut file = &self.file;
        file.rewind().with_context(|| self.unreadable())?;
        let (mut file, mut chunk) = (file.take(bytes_max), vec![0; READ_BYTES]);
        loop {
            match file.read(&mut chunk).with_context(|| self.unreadable())? {
                0 => return Ok(()),
                length => visit(&chunk[..length]),
            }
        }
    }

    fn unreadable(&self) -> String {
        format!("cannot be read: {}", self.path.display())
    }

    /// The error that interrupted the download, with advice.
    pub fn left(&self, error: anyhow::Error) -> anyhow::Error {
        if error.is::<WrongUse>() {
            return error;
        }
        anyhow!("{error:#}; {}", resume_advice(&self.path))
    }
}

/// Opens a file that no other download writes.
fn open_locked(path: &Path, may_be_new: bool) -> anyhow::Result<File> {
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
        // Another download may have moved it to its target in between.
        let own = file.metadata().with_context(|| unwritable(path))?;
        if fs::metadata(path)
            .is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()))
        {
            return Ok(file);
        }
    }
}
