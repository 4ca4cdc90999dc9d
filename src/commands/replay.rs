//! `adtrail replay`: the same attribution over files.
//!
//! The facts go through the same worker into a store of the same kind, in a temporary folder, so
//! files may be larger than memory; its rows are then written by the same writer.

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use attribution::event::Fact;
use attribution::policy::AppPolicy;
use attribution::worker::{Batch, Worker};
use config::Config;
use export::ExportQuery;
use ingest::compressed;
use ingest::file::{Events, FileError};
use store::embedded::Embedded;

use super::{Output, WrongUse, load, require_apps};
use crate::cli::Replay;

/// Bad lines that are told one by one; the rest is counted.
const BAD_LINES_TOLD: u64 = 20;

pub fn run(options: &Replay) -> anyhow::Result<()> {
    let mut config = load(&options.settings)?;
    require_apps(&config)?;
    let apps = chosen_apps(&config, options.app.as_deref())?;
    let folder = tempfile::tempdir().context("no temporary folder can be made")?;
    config.store.path = folder.path().join("store");
    config.store.retention_ms = None;
    let embedded = Embedded::open(&config.store, &config.policy)?;
    let reader = embedded.reader();
    let mut worker = Worker::new(embedded, Arc::clone(&config.policy));
    let mut bad_lines = 0;
    for path in &options.events {
        bad_lines += attribute(&mut worker, path, &config)
            .with_context(|| format!("can not be read: {}", path.display()))?;
    }
    let mut out = Output::new(options.out.as_deref())?;
    let mut written = Ok(());
    let apps: Vec<&AppPolicy> = apps.iter().collect();
    export::write_rows(&reader, &apps, &ExportQuery::all_time(), &config.policy, |chunk| {
        written = out.write(&chunk);
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written.context("the rows can not be written")?;
    out.finish().context("the rows can not be written")?;
    if bad_lines > 0 {
        bail!("{bad_lines} lines are no events and were left out; all others are attributed");
    }
    Ok(())
}

/// The apps whose rows are written, by pid.
fn chosen_apps(config: &Config, key: Option<&str>) -> Result<Vec<AppPolicy>, WrongUse> {
    let mut apps: Vec<_> = config.policy.apps().cloned().collect();
    apps.sort_by_key(|app| app.pid);
    if let Some(key) = key {
        apps.retain(|app| *app.key == *key);
        if apps.is_empty() {
            return Err(WrongUse(format!("--app: no such app is configured: {key}")));
        }
    }
    Ok(apps)
}

/// Takes in one file; returns how many of its lines are no events.
fn attribute(worker: &mut Worker<Embedded>, path: &Path, config: &Config) -> anyhow::Result<u64> {
    let file: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path)?)
    };
    let reader = compressed::plain(file)?;
    let mut bad_lines = 0;
    let mut facts: Vec<Fact> = Vec::new();
    for event in Events::new(reader, &config.policy) {
        match event {
            Ok(fact) => facts.push(fact),
            Err(FileError::Read { line_number, error }) => {
                return Err(error).with_context(|| format!("after line {line_number}"));
            }
            Err(FileError::Line { line_number, error }) => {
                bad_lines += 1;
                if bad_lines <= BAD_LINES_TOLD {
                    let code = error.code.name();
                    tracing::warn!("{}:{line_number}: {code}: {error}", path.display());
                }
            }
        }
        if facts.len() >= config.ingest.batch_records_max {
            process(worker, &mut facts)?;
        }
    }
    process(worker, &mut facts)?;
    Ok(bad_lines)
}

fn process(worker: &mut Worker<Embedded>, facts: &mut Vec<Fact>) -> anyhow::Result<()> {
    let facts = std::mem::take(facts);
    worker.process(Batch { facts, positions: Vec::new() })?;
    Ok(())
}
