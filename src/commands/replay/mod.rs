//! `adtrail replay`: the same attribution over files.
//!
//! The facts go through the same worker into a store of the same kind, in a temporary folder, so
//! files may be larger than memory; its rows are then written by the same writer. With `--diff`
//! they go through two, and what differs is written.

mod diff;
mod intake;
mod progress;
mod replica;
mod table;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use attribution::rules::policy::AppPolicy;
use config::Config;
use export::ExportQuery;

use super::{Output, WrongUse, known_app, load, require_apps};
use crate::cli::Replay;
pub use replica::Replica;

pub fn run(options: &Replay) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    require_apps(&config, &options.settings)?;
    require_files_of_their_own(options)?;
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
    tell_bad_lines(bad_lines)
}

/// A file that is written would take the place of one that is read, or of the other.
fn require_files_of_their_own(options: &Replay) -> Result<(), WrongUse> {
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

/// Whether two paths lead to one file of a disk, or would.
fn is_one_file(one: &Path, other: &Path) -> bool {
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => {
            one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
        }
        _ => place(one) == place(other),
    }
}

/// Where a file is that may not be there yet: folders can be links.
fn place(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match (folder.unwrap_or(Path::new(".")).canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// The command has done what it could, and has not done all.
fn tell_bad_lines(bad_lines: u64) -> anyhow::Result<()> {
    match bad_lines {
        0 => Ok(()),
        1 => bail!("1 line is no event and was left out; all others are attributed"),
        _ => bail!("{bad_lines} lines are no events and were left out; all others are attributed"),
    }
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
