//! `adtrail replay --diff`: the rows that other settings would decide differently.
//!
//! Events are read once. Each side has a worker and a store of its own; apps are matched by key, since their pids may
//! differ. Then both stores are scanned in parallel.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::Context;
use attribution::facts::event::{Fact, Pid};
use attribution::rules::policy::{AppPolicy, Policy};
use config::Config;
use export::{Compared, ComparedApp, Totals};

use super::replica::Replica;
use super::{check_bad_lines, intake, table};
use crate::cli::{Replay, Settings};
use crate::commands::{Output, WrongUse, load, require_apps, unknown_app};
use crate::telemetry::write_stderr;

pub fn run(options: &Replay, old: &Config, other: &Path) -> anyhow::Result<()> {
    let new = load_other(options, other)?;
    let apps = apps(&old.policy, &new.policy);
    let written = chosen(apps.clone(), options.app.as_deref())?;
    let out = Output::new(options.out.as_deref())?;
    let totals_out = options.totals.as_deref().map(|path| Output::new(Some(path))).transpose()?;
    let (mut old_side, mut new_side) = (Replica::start(old)?, Replica::start(&new)?);
    let reading = reading_policy(&apps);
    let (old_pids, new_pids) =
        (pids(&apps, |app| app.old.as_ref()), pids(&apps, |app| app.new.as_ref()));
    let records_max = old.ingest.batch_records_max;
    let bad_lines = intake::read(&options.events, &reading, records_max, |facts| {
        new_side.take(numbered(facts.iter().cloned(), &new_pids))?;
        old_side.take(numbered(facts.into_iter(), &old_pids))
    })?;
    old_side.finish()?;
    new_side.finish()?;
    let totals = write(out, &old_side, &new_side, &written)?;
    if let Some(mut out) = totals_out {
        out.write(&totals.csv(&old.policy, &new.policy)).context("the totals cannot be written")?;
        out.finish().context("the totals cannot be written")?;
    }
    write_stderr(format_args!("{}", table::render(&totals, &old.policy, &new.policy)));
    check_bad_lines(bad_lines)
}

fn write(
    out: Output,
    old: &Replica,
    new: &Replica,
    apps: &[ComparedApp],
) -> anyhow::Result<Totals> {
    let [old, new] = [old, new].map(|side| Compared { reader: &side.reader, policy: &side.policy });
    out.fill(|sink| export::write_differences(old, new, apps, sink))
}

/// Loads the other settings file, with the same environment and flags.
fn load_other(options: &Replay, other: &Path) -> Result<Config, WrongUse> {
    let settings = Settings { config: Some(other.into()), set: options.settings.set.clone() };
    let named = |problem: String| WrongUse(format!("--diff {}: {problem}", other.display()));
    let config = load(&settings).map_err(|error| named(error.0))?;
    require_apps(&config, &settings).map_err(|error| named(error.0))?;
    Ok(config)
}

/// Returns the apps of both sides: those of the old side by pid, then those that only the new side has.
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

fn chosen(apps: Vec<ComparedApp>, key: Option<&str>) -> Result<Vec<ComparedApp>, WrongUse> {
    let Some(key) = key else { return Ok(apps) };
    match apps.iter().find(|app| self::key(app) == key) {
        Some(app) => Ok(vec![app.clone()]),
        None => {
            let known = apps.iter().map(self::key).collect();
            Err(unknown_app("no such app is configured on either side", key, known))
        }
    }
}

fn key(app: &ComparedApp) -> &str {
    app.old.as_ref().or(app.new.as_ref()).map_or("", |app| &app.key)
}

/// The policy for decoding: all apps, numbered by position.
fn reading_policy(apps: &[ComparedApp]) -> Policy {
    let app = |(pid, app): (Pid, &ComparedApp)| AppPolicy::new(pid, key(app));
    Policy::new(numbers().zip(apps).map(app).collect(), Vec::new())
}

fn numbers() -> impl Iterator<Item = Pid> {
    (1..).map(Pid)
}

/// Maps the pids of the reading policy to those of one side.
fn pids(
    apps: &[ComparedApp],
    side: impl Fn(&ComparedApp) -> Option<&AppPolicy>,
) -> HashMap<Pid, Pid> {
    let pair = |(pid, app): (Pid, &ComparedApp)| Some((pid, side(app)?.pid));
    numbers().zip(apps).filter_map(pair).collect()
}

/// Returns the facts that one side's apps have, renumbered to its pids.
fn numbered(facts: impl Iterator<Item = Fact>, pids: &HashMap<Pid, Pid>) -> Vec<Fact> {
    facts.filter_map(|fact| pids.get(&fact.pid()).map(|pid| fact.with_pid(*pid))).collect()
}
