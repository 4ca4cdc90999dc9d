//! `adtrail replay`: attribution of the events of files.
//!
//! The facts go through the service's worker into a store of the same kind, in a temporary folder, so that files may
//! be larger than memory; the export writes its rows. With `--diff` they go through two, and differences are written.

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

use super::{Output, WrongUse, known_app, load, require_apps, settled};
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
    let apps = chosen_apps(config, options)?;
    let out = Output::new(options.out.as_deref())?;
    let (replica, bad_lines) = Replica::of_files(config, &options.events)?;
    let apps: Vec<&AppPolicy> = apps.iter().collect();
    let query = ExportQuery::all_time();
    out.fill(|sink| export::write_rows(&replica.reader, &apps, &query, &config.policy, sink))?;
    check_bad_lines(bad_lines)
}

/// An output file must not replace an input file, or the other output.
fn require_distinct_files(options: &Replay) -> Result<(), WrongUse> {
    let Replay { settings, events, out, diff, totals, .. } = options;
    let read = events.iter().chain(diff).map(PathBuf::as_path);
    let default = Some(Path::new(config::DEFAULT_FILE)).filter(|default| default.exists());
    let mut taken: Vec<&Path> = read.chain(settings.config.as_deref().or(default)).collect();
    for (option, file) in [("--out", out), ("--totals", totals)] {
        let Some(file) = file else { continue };
        if let Some(other) = taken.iter().find(|other| is_one_file(file, other)) {
            let (file, other) = (file.display(), other.display());
            return Err(WrongUse(format!("{option} {file}: expected another file than {other}")));
        }
        taken.push(file);
    }
    Ok(())
}

/// True if two paths are one file, existing or not.
fn is_one_file(one: &Path, other: &Path) -> bool {
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => {
            one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
        }
        _ => settled(one).is_some_and(|one| Some(one) == settled(other)),
    }
}

/// Bad lines are an error once all others are attributed.
fn check_bad_lines(bad_lines: u64) -> anyhow::Result<()> {
    if bad_lines > 0 {
        bail!("left out lines that are not events: {bad_lines}; all others are attributed");
    }
    Ok(())
}

/// The apps whose rows are written, by pid.
fn chosen_apps(config: &Config, options: &Replay) -> Result<Vec<AppPolicy>, WrongUse> {
    if let Some(key) = &options.app {
        return Ok(vec![known_app(config, &options.settings, key)?.clone()]);
    }
    let mut apps: Vec<_> = config.policy.apps().cloned().collect();
    apps.sort_by_key(|app| app.pid);
    Ok(apps)
}
