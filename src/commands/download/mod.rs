//! `adtrail download`: writes an export like that of the API, read from the store with or without a running service.
//!
//! One thread scans, another writes. A file is written beside its target and stays if the command is interrupted;
//! `partial_file` describes how `--resume` continues it.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod partial_file;
mod saved_query;
mod target;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use anyhow::Context;
use attribution::rules::policy::AppPolicy;
use config::Config;
use export::{Checksum, Chunk, ExportQuery};
use indicatif::ProgressBar;
use store::reader::Reader;

use super::{UsageError, canonical_path, known_app, load};
use crate::cli::{self, Download};
use crate::counted::counted;
use crate::telemetry::{self, write_stderr};
use target::Target;

const QUEUED_CHUNKS_MAX: usize = 4;
const BAR: &str = "{wide_bar} {human_pos} of {human_len} rows, {per_sec}, {eta} left";

pub fn run(options: &Download) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    let app = known_app(&config, &options.settings, &options.app)?;
    let format = match options.format {
        cli::Format::Csv => export::Format::Csv,
        cli::Format::Ndjson => export::Format::Ndjson,
    };
    let usage_error = |error| UsageError(format!("--{error}"));
    let query = ExportQuery::parse(format, parameters(options)).map_err(usage_error)?;
    query.check(app, &config.policy).map_err(usage_error)?;
    require_outside(options.out.as_deref(), &config.store)?;
    let reader = store::open_for_reading(&config.store, &config.policy)?;
    let mut values: saved_query::Query =
        query.texts().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    values.insert("app".into(), app.key.to_string());
    let target = match (options.out.as_deref(), options.resume) {
        (None, _) => Target::standard_output(),
        (Some(path), false) => Target::new(path, values)?,
        (Some(path), true) => Target::resume(path, values)?,
    };
    let written = write(target, &Source { reader: &reader, app, query: &query, config: &config })?;
    print_summary(options.out.as_deref(), &written);
    Ok(())
}

/// Rejects a file in the store's directory, where it could overwrite one of the store's files.
fn require_outside(out: Option<&Path>, store: &config::Store) -> Result<(), UsageError> {
    let Some(path) = out.filter(|_| store.hbase.is_none()) else { return Ok(()) };
    match (canonical_path(path), canonical_path(&store.path)) {
        (Some(out), Some(store)) if out.starts_with(&store) => {
            let (out, store) = (out.display(), store.display());
            let problem = "--out: expected a file outside of the store";
            Err(UsageError(format!("{problem}: {out}, {store}")))
        }
        _ => Ok(()),
    }
}

/// The rows to write, and where they are read from.
struct Source<'a> {
    reader: &'a Reader,
    app: &'a AppPolicy,
    query: &'a ExportQuery,
    config: &'a Config,
}

struct Written {
    rows: u64,
    bytes: u64,
    sha256: String,
}

fn write(mut target: Target, source: &Source<'_>) -> anyhow::Result<Written> {
    let Source { reader, app, query, config } = source;
    let bar = telemetry::bar(None, BAR);
    if !bar.is_hidden()
        && let Some(rows) = export::expected_rows(reader, app, query, &config.policy)?
    {
        bar.set_length(rows);
    }
    let (chunks, queue) = sync_channel::<Chunk>(QUEUED_CHUNKS_MAX);
    let (scanned, written) = thread::scope(|scope| {
        let (target, bar) = (&mut target, &bar);
        let writing = scope.spawn(move || write_chunks(target, queue, bar));
        let scanned = export::write_rows(reader, &[app], query, &config.policy, |chunk| {
            match chunks.send(chunk) {
                Ok(()) => ControlFlow::Continue(()),
                // The writing thread has failed, and returns the reason.
                Err(_) => ControlFlow::Break(()),
            }
        });
        drop(chunks);
        (scanned, writing.join())
    });
    drop(bar);
    // A panic has already ended the process.
    let written = written.unwrap_or_else(|_| Err(anyhow::anyhow!("the writing thread panicked")));
    let outcome = written
        .and_then(|sums| scanned.context("the rows cannot be read").map(|rows| (rows, sums)));
    match outcome {
        Ok((rows, (bytes, checksum))) => {
            let sha256 = checksum.text();
            target.finish(&sha256)?;
            Ok(Written { rows, bytes, sha256 })
        }
        Err(error) => Err(target.with_resume_hint(error)),
    }
}

/// Writes all chunks. Returns the number of their bytes and their checksum.
fn write_chunks(
    target: &mut Target,
    chunks: Receiver<Chunk>,
    bar: &ProgressBar,
) -> anyhow::Result<(u64, Checksum)> {
    let (mut bytes, mut checksum) = (0, Checksum::default());
    // Dropping the receiver stops the scan.
    for chunk in chunks {
        checksum.add(&chunk.bytes);
        target.write(&chunk.bytes)?;
        bytes += chunk.bytes.len() as u64;
        bar.inc(chunk.rows);
        // The expected number is an estimate.
        if bar.length().is_some_and(|expected| expected < bar.position()) {
            bar.set_length(bar.position());
        }
    }
    Ok((bytes, checksum))
}

fn print_summary(path: Option<&Path>, written: &Written) {
    let Written { rows, bytes, sha256 } = written;
    let path = path.map(|path| format!("{}: ", path.display())).unwrap_or_default();
    let rows = counted(*rows as usize, "row");
    write_stderr(format_args!("{path}{rows}, {bytes} bytes, sha256 {sha256}\n"));
}

/// Returns the options as parameters of the API.
fn parameters(options: &Download) -> impl Iterator<Item = (&str, &str)> {
    let required = [
        ("from", &options.from),
        ("to", &options.to),
        ("timezone", &options.timezone),
        ("type", &options.event_type),
        ("preset", &options.preset),
        ("dialect", &options.dialect),
    ];
    let optional =
        [("fields", &options.fields), ("limit", &options.limit), ("after", &options.after)];
    let lists = [
        ("event_name", &options.event_name),
        ("status", &options.status),
        ("channel", &options.channel),
        ("spreadid", &options.spreadid),
        ("install_type", &options.install_type),
        ("additional_fields", &options.additional_fields),
    ];
    let optional = optional.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let lists =
        lists.into_iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
    required.into_iter().chain(optional).chain(lists).map(|(name, value)| (name, value.as_str()))
}
