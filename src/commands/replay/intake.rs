//! The events of files, in batches.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use attribution::facts::event::Fact;
use attribution::rules::policy::Policy;
use ingest::decode::DecodeError;
use ingest::files::compression;
use ingest::files::ndjson::{Events, FileError};

use super::progress::Progress;

/// Bad lines of a file that are told one by one; the rest is counted.
const BAD_LINES_TOLD: u64 = 20;

/// Hands on the facts of all files, one file after the other, in batches of at most so many.
/// Gives the number of lines that are no events.
///
/// # Errors
/// Of a file that can not be read to its end, and those of `sink`.
pub fn read(
    paths: &[PathBuf],
    policy: &Policy,
    records_max: usize,
    sink: impl FnMut(Vec<Fact>) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let progress = Progress::over(paths);
    let mut intake = Intake { policy, records_max, facts: Vec::new(), progress, sink };
    let mut bad_lines = 0;
    for path in paths {
        bad_lines += intake.file(path)?;
    }
    intake.hand_on()?;
    Ok(bad_lines)
}

struct Intake<'p, Sink> {
    policy: &'p Policy,
    records_max: usize,
    facts: Vec<Fact>,
    progress: Progress,
    sink: Sink,
}

impl<Sink: FnMut(Vec<Fact>) -> anyhow::Result<()>> Intake<'_, Sink> {
    fn file(&mut self, path: &Path) -> anyhow::Result<u64> {
        let unreadable = || format!("can not be read: {}", path.display());
        let reader = self.open(path).with_context(unreadable)?;
        let mut bad_lines = 0;
        for event in Events::new(reader, self.policy) {
            match event {
                Ok(fact) => self.facts.push(fact),
                Err(FileError::Line { line_number, error }) => {
                    bad_lines += 1;
                    if bad_lines <= BAD_LINES_TOLD {
                        tell(path, line_number, &error);
                    }
                }
                Err(FileError::Read { line_number, error }) => {
                    let place = || format!("after line {line_number}");
                    return Err(error).with_context(place).with_context(unreadable);
                }
            }
            if self.facts.len() >= self.records_max {
                self.hand_on()?;
            }
        }
        Ok(bad_lines)
    }

    /// The text of a file. Counted is what is read of the file itself: its size is known, that
    /// of the text is not.
    fn open(&self, path: &Path) -> io::Result<Box<dyn BufRead>> {
        let file: Box<dyn Read> = if path == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(path)?)
        };
        compression::plain(self.progress.counted(file))
    }

    fn hand_on(&mut self) -> anyhow::Result<()> {
        let facts = std::mem::take(&mut self.facts);
        let events = facts.len();
        (self.sink)(facts)?;
        self.progress.done(events);
        Ok(())
    }
}

fn tell(path: &Path, line_number: u64, error: &DecodeError) {
    let code = error.code.name();
    tracing::warn!("{}:{line_number}: {code}: {error}", path.display());
}
