//! The target of a download.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;

use super::partial_file::Part;
use super::saved_query::Query;
use crate::commands::{UsageError, is_stream, unwritable};

pub enum Target {
    Part(Box<Part>),
    /// Standard output, or a path that is not a regular file, such as a pipe.
    Stream(Box<dyn Write + Send>),
}

impl Target {
    pub fn standard_output() -> Self {
        Self::Stream(Box::new(io::stdout()))
    }

    /// Opens a file to write it from its beginning.
    pub fn new(path: &Path, query: Query) -> anyhow::Result<Self> {
        if is_stream(path) {
            let stream = OpenOptions::new().write(true).open(path);
            return Ok(Self::Stream(Box::new(stream.with_context(|| unwritable(path))?)));
        }
        Ok(Self::Part(Box::new(Part::begin(path, query)?)))
    }

    /// Opens a file to continue an interrupted download.
    pub fn resume(path: &Path, query: Query) -> anyhow::Result<Self> {
        if is_stream(path) {
            let problem = "--resume: expected a regular file";
            return Err(UsageError(format!("{problem}: {}", path.display())).into());
        }
        Ok(Self::Part(Box::new(Part::resume(path, query)?)))
    }

    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::Part(part) => part.write(bytes),
            Self::Stream(stream) => stream.write_all(bytes).context("the rows cannot be written"),
        }
    }

    /// Completes the target after the last bytes.
    pub fn finish(self, sha256: &str) -> anyhow::Result<()> {
        match self {
            Self::Part(part) => part.finish(sha256),
            Self::Stream(mut stream) => stream.flush().context("the rows cannot be written"),
        }
    }

    /// Adds a hint on how to resume to the error that interrupted the download.
    pub fn with_resume_hint(self, error: anyhow::Error) -> anyhow::Error {
        match self {
            Self::Part(part) => part.with_resume_hint(error),
            Self::Stream(_) => error,
        }
    }
}
