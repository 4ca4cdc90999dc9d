//! `adtrail replay --diff`: the rows whose decisions differ under two configurations, old and new.
//!
//! Events are read once. Each configuration has its own worker and store; apps are matched by key, since their pids
//! may differ. Afterwards both stores are scanned in parallel.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::Context;
use attribution::facts::event::{Fact, Pid};
use attribution::rules::policy::{AppPolicy, Policy};
use config::Config;
use export::{Compared, ComparedApp, Totals};

use super::replica::ReplayRun;
use super::{check_bad_lines, intake, table};
use crate::cli::{Replay, Settings};
use crate::commands::{Output, UsageError, load, require_apps, unknown_app};
use crate::telemetry::write_stderr;

pub fn run(options: &Replay, old: &Config, new_file: &Path) -> anyhow::Result<()> {
    let new = load_new(options, new_file)?;
    let apps = apps(&old.policy, &new.policy);
    let selected_apps = select_apps(apps.clone(), options.app.as_deref())?;
    let out = Output::new(options.out.as_deref())?;
    let totals_out = options.totals.as_deref().map(|path| Output::new(Some(path))).transpose()?;
    let (mut old_run, mut new_run) = (ReplayRun::start(old)?, ReplayRun::start(&new)?);
    let decoding = decoding_policy(&apps);
    let (old_pids, new_pids) =
        (pids(&apps, |app| app.old.as_ref()), pids(&apps, |app| app.new.as_ref()));
    let bad_lines = intake::read(&options.events, &decoding, &old.ingest, |facts| {
        new_run.send(renumber(facts.iter().cloned(), &new_pids))?;
        old_run.send(renumber(facts.into_iter(), &old_pids))
    })?;
    old_run.finish()?;
    new_run.finish()?;
    let totals = write(out, &old_run, &new_run, &selected_apps)?;
    if let Some(mut out) = totals_out {
        out.write(&totals.csv(&old.policy, &new.policy)).context("the totals cannot be written")?;
        out.finish().context("the totals cannot be written")?;
    }
    write_stderr(format_args!("{}", table::render(&totals, &old.policy, &new.policy)));
    check_bad_lines(bad_lines)
}

fn write(
    out: Output,
    old: &ReplayRun,
    new: &ReplayRun,
    apps: &[ComparedApp],
) -> anyhow::Result<Totals> {
    let [old, new] = [old, new].map(|run| Compared { reader: &run.reader, policy: &run.policy });
    out.write_with(|sink| export::write_differences(old, new, apps, sink))
}

/// Loads the settings file of `--diff`, with the same environment and flags.
fn load_new(options: &Replay, file: &Path) -> Result<Config, UsageError> {
    let settings = Settings { config: Some(file.into()), set: options.settings.set.clone() };
    let usage_error = |problem: String| UsageError(format!("--diff {}: {problem}", file.display()));
    let config = load(&settings).map_err(|error| usage_error(error.0))?;
    require_apps(&config, &settings).map_err(|error| usage_error(error.0))?;
    Ok(config)
}

/// Returns the apps of both configurations: those of the old one by pid, followed by those that only the new one has.
fn apps(old: &Policy, new: &Policy) -> Vec<ComparedApp> {
    let by_pid = |policy: &Policy| -> BTreeMap<Pid, AppPolicy> {
        policy.apps().map(|app| (app.pid, app.clone())).collect()
    };
    let old_apps = by_pid(old).into_values().map(|app| {
        let new = new.app_by_key(&app.key).cloned();
        ComparedApp { old: Some(app), new }
    });
    let added = by_pid(new).into_values().filter(|app| old.app_by_key(&app.key).is_none());
    old_apps.chain(added.map(|app| ComparedApp { old: None, new: Some(app) })).collect()
}

fn select_apps(apps: Vec<ComparedApp>, key: Option<&str>) -> Result<Vec<ComparedApp>, UsageError> {
    let Some(key) = key else { return Ok(apps) };
    match apps.iter().find(|app| self::key(app) == key) {
        Some(app) => Ok(vec![app.clone()]),
        None => {
            let known = apps.iter().map(self::key).collect();
            Err(unknown_app("neither configuration has such an app", key, known))
        }
    }
}

fn key(app: &ComparedApp) -> &str {
    app.old.as_ref().or(app.new.as_ref()).map_or("", |app| &app.key)
}

/// Returns the policy for decoding: all apps, numbered by position.
fn decoding_policy(apps: &[ComparedApp]) -> Policy {
    let app = |(pid, app): (Pid, &ComparedApp)| AppPolicy::new(pid, key(app));
    Policy::new(numbers().zip(apps).map(app).collect(), Vec::new())
}

fn numbers() -> impl Iterator<Item = Pid> {
    (1..).map(Pid)
}

/// Maps the pids of the decoding policy to those of one configuration.
fn pids(
    apps: &[ComparedApp],
    side: impl Fn(&ComparedApp) -> Option<&AppPolicy>,
) -> HashMap<Pid, Pid> {
    let pair = |(pid, app): (Pid, &ComparedApp)| Some((pid, side(app)?.pid));
    numbers().zip(apps).filter_map(pair).collect()
}

/// Returns the facts of the apps that one configuration has, renumbered to its pids.
fn renumber(facts: impl Iterator<Item = Fact>, pids: &HashMap<Pid, Pid>) -> Vec<Fact> {
    facts.filter_map(|fact| pids.get(&fact.pid()).map(|pid| fact.with_pid(*pid))).collect()
}
