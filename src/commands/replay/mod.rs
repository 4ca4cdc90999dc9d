//! `adtrail replay`: attributes events from files.
//!
//! The facts go through the service's worker into an embedded store in a temporary folder, so that files may be larger
//! than memory; the export writes its rows. With `--diff` each side has a worker and a store, and the differences
//! between them are written.

mod diff;
mod intake;
mod replica;
mod table;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use attribution::rules::policy::AppPolicy;
use config::Config;
use export::ExportQuery;

use super::{Output, WrongUse, canonical_path, known_app, load, require_apps};
use crate::cli::Replay;
pub use replica::Replica;

pub fn run(options: &Replay) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    require_apps(&config, &options.settings)?;
    require_distinct_files(options)?;
    match &options.diff {
        Some(other) => diff::run(options, &config, other),
        None => write_rows(options, &config),
    }
}

fn write_rows(options: &Replay, config: &Config) -> anyhow::Result<()> {
    let apps = selected_apps(config, options)?;
    let out = Output::new(options.out.as_deref())?;
    let (replica, bad_lines) = Replica::of_files(config, &options.events)?;
    let apps: Vec<&AppPolicy> = apps.iter().collect();
    let query = ExportQuery::all_time();
    out.fill(|sink| export::write_rows(&replica.reader, &apps, &query, &config.policy, sink))?;
    check_bad_lines(bad_lines)
}

/// Refuses an output file that would replace an input file or the other output.
fn require_distinct_files(options: &Replay) -> Result<(), WrongUse> {
    let Replay { settings, events, out, diff, totals, .. } = options;
    let read = events.iter().chain(diff).map(PathBuf::as_path);
    let default = Some(Path::new(config::DEFAULT_FILE)).filter(|default| default.exists());
    let mut used: Vec<&Path> = read.chain(settings.config.as_deref().or(default)).collect();
    for (option, file) in [("--out", out), ("--totals", totals)] {
        let Some(file) = file else { continue };
        if let Some(other) = used.iter().find(|other| is_same_file(file, other)) {
            let (file, other) = (file.display(), other.display());
            return Err(WrongUse(format!("{option} {file}: must not be the same file as {other}")));
        }
        used.push(file);
    }
    Ok(())
}

/// Checks whether two paths name the same file, which need not exist.
fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => {
            one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
        }
        _ => canonical_path(one).is_some_and(|one| Some(one) == canonical_path(other)),
    }
}

/// Returns an error if there were bad lines; all others are attributed by then.
fn check_bad_lines(bad_lines: u64) -> anyhow::Result<()> {
    if bad_lines > 0 {
        bail!("skipped lines that are not events: {bad_lines}; all others are attributed");
    }
    Ok(())
}

/// The apps whose rows are written, by pid.
fn selected_apps(config: &Config, options: &Replay) -> Result<Vec<AppPolicy>, WrongUse> {
    if let Some(key) = &options.app {
        return Ok(vec![known_app(config, &options.settings, key)?.clone()]);
    }
    let mut apps: Vec<_> = config.policy.apps().cloned().collect();
    apps.sort_by_key(|app| app.pid);
    Ok(apps)
}
