//! Reads events from files, line by line or in batches.

use std::fs::{self, File};
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use attribution::facts::event::Fact;
use attribution::rules::policy::Policy;
use config::Ingest;
use indicatif::{HumanCount, ProgressBar};
use ingest::decode::DecodeError;
use ingest::files::compression;
use ingest::files::ndjson::{Events, FileError};

use crate::telemetry;

/// Number of bad lines that are logged for each file; further ones are only counted.
const BAD_LINES_LOGGED_MAX: u64 = 20;
/// Number of events after which the progress bar shows their number again.
const EVENTS_PER_MESSAGE: u64 = 10_000;

/// A line of a file, with an event or an error.
pub struct Line<'a> {
    /// The index of the file.
    pub file: usize,
    /// The number of the line, starting at 1.
    pub number: u64,
    /// Truncated if it is too long for an event.
    pub text: &'a [u8],
    pub event: Result<Fact, DecodeError>,
}

/// Passes the facts of all files to `sink`, in batches of at most `batch_records_max` facts and, except for the last
/// one, less than `batch_bytes_max` bytes. Returns the number of bad lines.
///
/// # Errors
/// Fails if a file cannot be read to its end, or if `sink` fails.
pub fn read(
    paths: &[PathBuf],
    policy: &Policy,
    limits: &Ingest,
    mut sink: impl FnMut(Vec<Fact>) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let (mut facts, mut bytes) = (Vec::new(), 0);
    let mut bad_lines = vec![0_u64; paths.len()];
    for_each_line(paths, policy, limits, |line| {
        match line.event {
            Ok(fact) => {
                facts.push(fact);
                bytes += line.text.len();
            }
            Err(error) => {
                bad_lines[line.file] += 1;
                if bad_lines[line.file] <= BAD_LINES_LOGGED_MAX {
                    log_bad_line(&paths[line.file], line.number, &error);
                }
            }
        }
        if facts.len() >= limits.batch_records_max || bytes >= limits.batch_bytes_max {
            bytes = 0;
            sink(std::mem::take(&mut facts))?;
        }
        Ok(())
    })?;
    sink(facts)?;
    Ok(bad_lines.iter().sum())
}

/// Passes each line of all files to `visit`, except blank ones. Lines above `event_bytes_max` are errors.
///
/// # Errors
/// Fails if a file cannot be read to its end, or if `visit` fails.
pub fn for_each_line(
    paths: &[PathBuf],
    policy: &Policy,
    limits: &Ingest,
    mut visit: impl FnMut(Line<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let bar = bar(paths);
    let mut events = 0;
    for (file, path) in paths.iter().enumerate() {
        let unreadable = || format!("cannot be read: {}", path.display());
        let reader = open(path, &bar).with_context(unreadable)?;
        let mut lines = Events::new(reader, policy, limits.event_bytes_max);
        while let Some(outcome) = lines.next() {
            let event = match outcome {
                Ok(fact) => Ok(fact),
                Err(FileError::Line { error, .. }) => Err(error),
                Err(FileError::Read { line_number, error }) => {
                    let line = || format!("after line {line_number}");
                    return Err(error).with_context(line).with_context(unreadable);
                }
            };
            if event.is_ok() {
                events += 1;
                show_events(&bar, events);
            }
            visit(Line { file, number: lines.line_number(), text: lines.line(), event })?;
        }
    }
    Ok(())
}

fn show_events(bar: &ProgressBar, events: u64) {
    if events.is_multiple_of(EVENTS_PER_MESSAGE) {
        bar.set_message(format!("{} events", HumanCount(events)));
    }
}

/// Opens and decompresses a file. The bar counts compressed bytes, since only their number is known.
fn open(path: &Path, bar: &ProgressBar) -> io::Result<Box<dyn BufRead>> {
    let file: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path)?)
    };
    compression::decompressed(bar.wrap_read(file))
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

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::slice;

    use super::*;

    #[test]
    fn batches_are_bounded_by_records_and_by_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.ndjson");
        let mut lines = String::new();
        for number in 0..10 {
            let id = format!("{number:0100}");
            let time = 1_773_144_000_000_u64 + number;
            writeln!(
                lines,
                r#"{{"type":"activation","app":"app-x","event_id":"{id}","time":{time}}}"#
            )
            .unwrap();
        }
        fs::write(&path, &lines).unwrap();
        let bytes = lines.len() / 10;
        let batches = |records: usize, bytes: usize| {
            let mut config = config::parse("[[apps]]\npid = 1\nkey = \"app-x\"\n").unwrap();
            config.ingest.batch_records_max = records;
            config.ingest.batch_bytes_max = bytes;
            let mut batches = Vec::new();
            let bad = read(slice::from_ref(&path), &config.policy, &config.ingest, |facts| {
                batches.push(facts.len());
                Ok(())
            });
            assert_eq!(bad.unwrap(), 0);
            batches
        };
        assert_eq!(batches(4, usize::MAX), [4, 4, 2]);
        assert_eq!(batches(100, 3 * bytes - 10), [3, 3, 3, 1]);
        assert_eq!(batches(100, 1), [[1; 10].as_slice(), &[0]].concat());
    }
}
