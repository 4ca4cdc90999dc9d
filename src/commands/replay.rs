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

use anyhow::bail;
use attribution::policy::AppPolicy;
use config::Config;
use export::ExportQuery;

use super::{Output, WrongUse, known_app, load, require_apps};
use crate::cli::Replay;
pub use replica::Replica;

pub fn run(options: &Replay) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    require_apps(&config, &options.settings)?;
    match &options.diff {
        Some(other) => diff::run(options, &config, other),
        None => write_rows(options, &config),
    }
}

fn write_rows(options: &Replay, config: &Config) -> anyhow::Result<()> {
    let apps = chosen_apps(config, options)?;
    let (replica, bad_lines) = Replica::of_files(config, &options.events)?;
    let apps: Vec<&AppPolicy> = apps.iter().collect();
    let query = ExportQuery::all_time();
    Output::new(options.out.as_deref())?
        .fill(|sink| export::write_rows(&replica.reader, &apps, &query, &config.policy, sink))?;
    tell_bad_lines(bad_lines)
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
