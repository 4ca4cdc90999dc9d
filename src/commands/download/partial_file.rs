//! A file that is written beside its target, and can be resumed after any interruption.
//!
//! Rows may have been corrected since the partial file was written. So `--resume` repeats the whole export from one
//! snapshot, and compares it with the partial file. It writes only from the first byte that differs or is missing: the
//! result is the new export, byte for byte, whatever the partial file contained.
//!
//! `FILE.part` has the rows, `FILE.part.query` the query. Both are removed once `FILE` is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use config::private_files;
use export::Checksum;
use rustix::fs::{FlockOperation, flock};

use super::saved_query::{Query, beside, read_query, require_same, write_query};
use crate::commands::temp_files::{TempPath, resume_hint};
use crate::commands::{UsageError, unwritable};
use crate::telemetry::write_stderr;

const READ_BYTES: usize = 128 << 10;

pub struct Part {
    file: File,
    /// Current path of the file; equals the target only for a file that another program wrote there.
    path: PathBuf,
    target: PathBuf,
    query: Query,
    /// Number of leading bytes that equal the export, by comparison or because they were written.
    same_bytes: u64,
    /// Number of bytes after `same_bytes`, which are not compared yet.
    remaining_bytes: u64,
    /// True if the file was not empty at the start.
    is_resumed: bool,
    /// True if the saved query shows that the file belongs to this export.
    is_own: bool,
    temp: TempPath,
}

impl Part {
    /// Starts from the beginning and discards an existing partial file.
    pub fn begin(target: &Path, query: Query) -> anyhow::Result<Self> {
        let path = beside(target, ".part");
        let file = open_locked(&path, true)?;
        file.set_len(0).with_context(|| unwritable(&path))?;
        write_query(&path, &query)?;
        Self::new(file, path, target, query, true)
    }

    /// Continues the partial file, or, if it does not exist, a target that another program left incomplete.
    pub fn resume(target: &Path, query: Query) -> anyhow::Result<Self> {
        let path = beside(target, ".part");
        if !path.exists() && target.is_file() {
            let file = open_locked(target, false)?;
            return Self::new(file, target.to_owned(), target, query, false);
        }
        let file = open_locked(&path, true)?;
        if file.metadata().with_context(|| unwritable(&path))?.len() == 0 {
            write_query(&path, &query)?;
            return Self::new(file, path, target, query, true);
        }
        let saved = read_query(&path)?;
        saved.as_ref().map_or(Ok(()), |saved| require_same(&path, saved, &query))?;
        Self::new(file, path, target, query, saved.is_some())
    }

    fn new(
        file: File,
        path: PathBuf,
        target: &Path,
        query: Query,
        is_own: bool,
    ) -> anyhow::Result<Self> {
        let remaining_bytes = file.metadata().with_context(|| unwritable(&path))?.len();
        let (is_resumed, temp) = (remaining_bytes > 0, TempPath::resumable(&path)?);
        let target = target.to_owned();
        Ok(Self {
            file,
            path,
            target,
            query,
            same_bytes: 0,
            remaining_bytes,
            is_resumed,
            is_own,
            temp,
        })
    }

    /// Compares or writes the next bytes of the export.
    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let same = self.compare(bytes)?;
        let new = bytes.get(same..).unwrap_or_default();
        if !new.is_empty() {
            self.move_beside_target()?;
            self.file.write_all_at(new, self.same_bytes).context("the rows cannot be written")?;
            self.same_bytes += new.len() as u64;
        }
        Ok(())
    }

    /// Returns how many of the bytes the file already has. Truncates the file at the first difference.
    fn compare(&mut self, bytes: &[u8]) -> anyhow::Result<usize> {
        let length = bytes.len().min(usize::try_from(self.remaining_bytes).unwrap_or(usize::MAX));
        let mut found = vec![0; length];
        let read = self.file.read_exact_at(&mut found, self.same_bytes);
        read.with_context(|| self.unreadable())?;
        let difference = found.iter().zip(bytes).position(|(found, expected)| found != expected);
        let same = difference.unwrap_or(length);
        self.same_bytes += same as u64;
        self.remaining_bytes -= same as u64;
        if difference.is_some() {
            let line = self.difference_line()?;
            self.truncate(&format!("line {line} differs from this export"))?;
        }
        Ok(same)
    }

    /// Truncates the file where it differs from the export. Fails if the file may belong to another export.
    fn truncate(&mut self, difference: &str) -> anyhow::Result<()> {
        let path = self.path.display();
        if self.is_own {
            write_stderr(format_args!(
                "{path}: {difference}: rows were corrected since, or the file was changed or damaged; \
                 rewriting it from there\n"
            ));
            self.remaining_bytes = 0;
            return self.file.set_len(self.same_bytes).with_context(|| unwritable(&self.path));
        }
        let query = match self.path == self.target {
            true => String::new(),
            false => {
                let query = beside(&self.path, ".query");
                format!(", and {} is missing or truncated", query.display())
            }
        };
        let hint = "without --resume the file is overwritten";
        Err(UsageError(format!("--resume: {path}: {difference}{query}; {hint}")).into())
    }

    /// Returns the line number of the first difference.
    fn difference_line(&self) -> anyhow::Result<u64> {
        let mut lines = 1;
        self.for_each_chunk(self.same_bytes, |bytes| {
            lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        })?;
        Ok(lines)
    }

    /// Moves a file that another program wrote at the target to the partial path, before it is changed.
    fn move_beside_target(&mut self) -> anyhow::Result<()> {
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

    /// Moves the file to the target after checking that it has this checksum.
    pub fn finish(mut self, sha256: &str) -> anyhow::Result<()> {
        self.move_to_target(sha256).map_err(|error| self.with_resume_hint(error))
    }

    fn move_to_target(&mut self, sha256: &str) -> anyhow::Result<()> {
        if self.remaining_bytes > 0 {
            self.truncate(&format!(
                "{} bytes follow the end of this export",
                self.remaining_bytes
            ))?;
        }
        if self.is_resumed {
            self.check(sha256)?;
        }
        let is_moved = self.path != self.target;
        self.temp.complete(|| {
            if is_moved {
                fs::rename(&self.path, &self.target).with_context(|| unwritable(&self.target))?;
            }
            let query = beside(&self.target, ".part.query");
            match fs::remove_file(&query) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Err(error).with_context(|| unwritable(&query))
                }
                _ => Ok(()),
            }
        })?;
        if !is_moved {
            write_stderr(format_args!("{}: already complete\n", self.target.display()));
        }
        Ok(())
    }

    /// Compares the checksum of the file on disk with that of the export.
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

    /// Adds a hint on how to resume to the error that interrupted the download.
    pub fn with_resume_hint(&self, error: anyhow::Error) -> anyhow::Error {
        if error.is::<UsageError>() {
            return error;
        }
        anyhow!("{error:#}; {}", resume_hint(&self.path))
    }
}

/// Mode of a new file: its group may not write it, whatever the umask, because [`private_files::open`] would refuse that
/// when the download is resumed.
const MODE: u32 = 0o644;

/// Opens and locks a file. Fails if another download is writing it, or if another user could have put it there.
fn open_locked(path: &Path, may_be_new: bool) -> anyhow::Result<File> {
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(may_be_new).truncate(false).mode(MODE);
        let file = private_files::open(path, &mut options).with_context(|| unwritable(path))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => {
                anyhow!("another download is writing it: {}", path.display())
            }
            error => anyhow!(io::Error::from(error)).context(unwritable(path)),
        })?;
        // Another download may have moved the file to its target meanwhile.
        let opened = file.metadata().with_context(|| unwritable(path))?;
        if fs::metadata(path)
            .is_ok_and(|current| (current.dev(), current.ino()) == (opened.dev(), opened.ino()))
        {
            return Ok(file);
        }
    }
}
