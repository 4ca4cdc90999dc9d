//! Reads events from files, in batches.

use std::fs::{self, File};
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use attribution::facts::event::Fact;
use attribution::rules::policy::Policy;
use indicatif::{HumanCount, ProgressBar};
use ingest::decode::DecodeError;
use ingest::files::compression;
use ingest::files::ndjson::{Events, FileError};

use crate::telemetry;

/// Number of bad lines that are logged for each file; further ones are only counted.
const BAD_LINES_LOGGED_MAX: u64 = 20;

/// Passes the facts of all files to `sink`, in batches of at most `records_max`. Returns the number of bad lines.
///
/// # Errors
/// Fails if a file cannot be read to its end, or if `sink` fails.
pub fn read(
    paths: &[PathBuf],
    policy: &Policy,
    records_max: usize,
    sink: impl FnMut(Vec<Fact>) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let mut intake =
        Intake { policy, records_max, facts: Vec::new(), bar: bar(paths), events: 0, sink };
    let mut bad_lines = 0;
    for path in paths {
        bad_lines += intake.read_file(path)?;
    }
    intake.flush()?;
    Ok(bad_lines)
}

struct Intake<'p, Sink> {
    policy: &'p Policy,
    records_max: usize,
    facts: Vec<Fact>,
    bar: ProgressBar,
    events: u64,
    sink: Sink,
}

impl<Sink: FnMut(Vec<Fact>) -> anyhow::Result<()>> Intake<'_, Sink> {
    fn read_file(&mut self, path: &Path) -> anyhow::Result<u64> {
        let unreadable = || format!("cannot be read: {}", path.display());
        let reader = self.open(path).with_context(unreadable)?;
        let mut bad_lines = 0;
        for event in Events::new(reader, self.policy) {
            match event {
                Ok(fact) => self.facts.push(fact),
                Err(FileError::Line { line_number, error }) => {
                    bad_lines += 1;
                    if bad_lines <= BAD_LINES_LOGGED_MAX {
                        log_bad_line(path, line_number, &error);
                    }
                }
                Err(FileError::Read { line_number, error }) => {
                    let line = || format!("after line {line_number}");
                    return Err(error).with_context(line).with_context(unreadable);
                }
            }
            if self.facts.len() >= self.records_max {
                self.flush()?;
            }
        }
        Ok(bad_lines)
    }

    /// Opens and decompresses a file. The bar counts compressed bytes, since only their number is known.
    fn open(&self, path: &Path) -> io::Result<Box<dyn BufRead>> {
        let file: Box<dyn Read> = if path == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(path)?)
        };
        compression::decompressed(self.bar.wrap_read(file))
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.events += self.facts.len() as u64;
        (self.sink)(std::mem::take(&mut self.facts))?;
        self.bar.set_message(format!("{} events", HumanCount(self.events)));
        Ok(())
    }
}

/// Shows a progress bar over the bytes of all files. The size of standard input and of pipes is unknown.
fn bar(paths: &[PathBuf]) -> ProgressBar {
    let size = |path: &PathBuf| {
        let metadata = fs::metadata(path).ok().filter(|metadata| metadata.is_file());
        metadata.filter(|_| path != Path::new("-")).map(|metadata| metadata.len())
    };
    let total = paths.iter().map(size).sum::<Option<u64>>();
    let template = match total {
        Some(_) => "{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {msg}, {eta} left",
        None => "{spinner} {bytes}, {bytes_per_sec}, {msg}",
    };
    let bar = telemetry::bar(total, template);
    bar.set_message("0 events");
    bar
}

fn log_bad_line(path: &Path, line_number: u64, error: &DecodeError) {
    let code = error.code.name();
    tracing::warn!("{}:{line_number}: {code}: {error}", path.display());
}
