//! `adtrail replay`: attributes events from files.
//!
//! The facts go through the service's worker into an embedded store in a temporary folder, so that files may be larger
//! than memory, and the export code writes the rows. With `--diff` each of the two configurations gets its own worker
//! and store, and the rows that differ are written.

mod diff;
pub(super) mod intake;
mod replica;
mod table;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use attribution::rules::policy::AppPolicy;
use config::Config;
use export::ExportQuery;

use super::{Output, UsageError, canonical_path, known_app, load, require_apps};
use crate::cli::Replay;
pub use replica::ReplayRun;

pub fn run(options: &Replay) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    require_apps(&config, &options.settings)?;
    require_distinct_files(options)?;
    match &options.diff {
        Some(new_file) => diff::run(options, &config, new_file),
        None => write_rows(options, &config),
    }
}

fn write_rows(options: &Replay, config: &Config) -> anyhow::Result<()> {
    let apps = selected_apps(config, options)?;
    let out = Output::new(options.out.as_deref())?;
    let (run, bad_lines) = ReplayRun::from_files(config, &options.events)?;
    let apps: Vec<&AppPolicy> = apps.iter().collect();
    let query = ExportQuery::all_time();
    out.write_with(|sink| export::write_rows(&run.reader, &apps, &query, &config.policy, sink))?;
    check_bad_lines(bad_lines)
}

/// Rejects an output file that would replace an input file or the other output.
fn require_distinct_files(options: &Replay) -> Result<(), UsageError> {
    let Replay { settings, events, out, diff, totals, .. } = options;
    let inputs = events.iter().chain(diff).map(PathBuf::as_path);
    let default = Some(Path::new(config::DEFAULT_FILE)).filter(|default| default.exists());
    let mut used: Vec<&Path> = inputs.chain(settings.config.as_deref().or(default)).collect();
    for (option, file) in [("--out", out), ("--totals", totals)] {
        let Some(file) = file else { continue };
        if let Some(other) = used.iter().find(|other| is_same_file(file, other)) {
            let (file, other) = (file.display(), other.display());
            return Err(UsageError(format!(
                "{option} {file}: must not be the same file as {other}"
            )));
        }
        used.push(file);
    }
    Ok(())
}

/// Checks whether two paths name the same file. It need not exist.
fn is_same_file(a: &Path, b: &Path) -> bool {
    match (a.metadata(), b.metadata()) {
        (Ok(a), Ok(b)) => a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => canonical_path(a).is_some_and(|a| Some(a) == canonical_path(b)),
    }
}

/// Returns an error if lines were skipped.
fn check_bad_lines(bad_lines: u64) -> anyhow::Result<()> {
    if bad_lines > 0 {
        bail!(
            "skipped {bad_lines} lines that are not valid events; all other lines were attributed"
        );
    }
    Ok(())
}

/// Returns the apps whose rows are written, sorted by pid.
fn selected_apps(config: &Config, options: &Replay) -> Result<Vec<AppPolicy>, UsageError> {
    if let Some(key) = &options.app {
        return Ok(vec![known_app(config, &options.settings, key)?.clone()]);
    }
    let mut apps: Vec<_> = config.policy.apps().cloned().collect();
    apps.sort_by_key(|app| app.pid);
    Ok(apps)
}
