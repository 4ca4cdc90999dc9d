//! Where a download goes.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;

use super::partial_file::Part;
use super::saved_query::Asked;
use crate::commands::WrongUse;

pub enum Target {
    Part(Box<Part>),
    /// Standard output, or what is no regular file: a pipe for one.
    Stream(Box<dyn Write + Send>),
}

impl Target {
    pub fn standard_output() -> Self {
        Self::Stream(Box::new(io::stdout()))
    }

    /// A file from its beginning. `asked` is what it is of, by names.
    pub fn new(path: &Path, asked: Asked) -> anyhow::Result<Self> {
        if is_no_file(path) {
            let stream = OpenOptions::new().write(true).open(path);
            let stream =
                stream.with_context(|| format!("can not be written: {}", path.display()))?;
            return Ok(Self::Stream(Box::new(stream)));
        }
        Ok(Self::Part(Box::new(Part::begin(path, asked)?)))
    }

    /// One that was begun before; from its beginning, where none was.
    pub fn resumed(path: &Path, asked: Asked) -> anyhow::Result<Self> {
        if is_no_file(path) {
            let problem = "--resume: only a file can be gone on with, and this is none";
            return Err(WrongUse(format!("{problem}: {}", path.display())).into());
        }
        Ok(Self::Part(Box::new(Part::resume(path, asked)?)))
    }

    pub fn take(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::Part(part) => part.take(bytes),
            Self::Stream(stream) => stream.write_all(bytes).context("the rows can not be written"),
        }
    }

    /// All is there.
    pub fn finish(self, sha256: &str) -> anyhow::Result<()> {
        match self {
            Self::Part(part) => part.finish(sha256),
            Self::Stream(mut stream) => stream.flush().context("the rows can not be written"),
        }
    }

    /// Not all is there; says what is.
    pub fn left(self, error: anyhow::Error) -> anyhow::Error {
        match self {
            Self::Part(part) => part.left(error),
            Self::Stream(_) => error,
        }
    }
}

fn is_no_file(path: &Path) -> bool {
    path.exists() && !path.is_file()
}
