//! `adtrail replay`: the same attribution over files.
//!
//! The facts go through the same worker into a store of the same kind, in a temporary folder, so
//! files may be larger than memory; its rows are then written by the same writer.

mod intake;
mod progress;

use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::{Context, bail};
use attribution::policy::AppPolicy;
use attribution::worker::{Batch, Worker};
use config::Config;
use export::ExportQuery;
use store::embedded::Embedded;

use super::{Output, WrongUse, load, require_apps};
use crate::cli::Replay;

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
    let records_max = config.ingest.batch_records_max;
    let bad_lines = intake::read(&options.events, &config.policy, records_max, |facts| {
        worker.process(Batch { facts, positions: Vec::new() })?;
        Ok(())
    })?;
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
