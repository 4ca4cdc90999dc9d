//! `adtrail copy`: copies an embedded store into HBase, or a store in HBase into an embedded one.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, bail};
use attribution::ledger::Position;
use config::Config;
use indicatif::HumanCount;
use store::maintenance::copy_store::{Amounts, Source, Target};
use store::maintenance::verify::{Options, repair, verify};

use crate::cli::{Copy, Settings};
use crate::commands::{UsageError, load_for_kafka, print, require_apps};
use crate::telemetry;

const BAR: &str = "copying {spinner} {msg}";

pub fn run(options: &Copy) -> anyhow::Result<()> {
    let [from, to] = [settings(&options.from)?, settings(&options.to)?];
    require_compatible(&from, &to)?;
    let source = Source::open(&from.store)?;
    let positions = match source.positions()? {
        Some(positions) => positions,
        None => ingest::kafka::group_offsets::read(&from)?,
    };
    let mut target = Target::open(&to.store)?;
    let bar = telemetry::bar(None, BAR);
    let amounts = target.fill(&source, |done| bar.set_message(HumanCount(done).to_string()))?;
    drop(bar);
    drop(source);
    if to.store.hbase.is_some() {
        ingest::kafka::group_offsets::write(&from, &to, &positions)?;
    }
    target.finish(&positions, &to.policy)?;
    if to.store.hbase.is_none() {
        complete_decisions(&to)?;
    }
    print(shown(&amounts, &positions).as_bytes())
}

fn settings(path: &Path) -> Result<Config, UsageError> {
    let settings = Settings { config: Some(path.to_owned()), set: Vec::new() };
    let config = load_for_kafka(&settings)?;
    require_apps(&config, &settings)?;
    Ok(config)
}

fn require_compatible(from: &Config, to: &Config) -> Result<(), UsageError> {
    let usage_error = |problem: &str| Err(UsageError(problem.to_owned()));
    if from.store.hbase.is_none() && to.store.hbase.is_none() {
        return usage_error(
            "both stores are embedded: use adtrail backup and adtrail restore, or copy the directory while \
             adtrail is stopped",
        );
    }
    let [source, target] = [from.store.partitions, to.store.partitions];
    if source != target {
        return usage_error(&format!(
            "store.partitions is {source} in --from and {target} in --to, and row keys depend on it: set the \
             same number",
        ));
    }
    if from.kafka.topics != to.kafka.topics {
        return usage_error(
            "the topics of [kafka] differ, and positions belong to them: set the same topics",
        );
    }
    Ok(())
}

/// Completes decisions of which a killed worker wrote only some rows: HBase writes each row separately.
fn complete_decisions(to: &Config) -> anyhow::Result<()> {
    let options = Options { examples_max: 0, have_settings_changed: false };
    let report = verify(&to.store, &to.policy, &options, &mut |_| {})?;
    if report.is_whole() {
        return Ok(());
    }
    let report = repair(&to.store, &to.policy, &options, &mut |_| {})
        .context("the copy is complete, but pending decisions are not")?;
    if !report.is_repaired() {
        bail!("the copy is complete, but it has errors: run adtrail verify");
    }
    tracing::info!("completed pending decisions in the copy");
    Ok(())
}

fn shown(amounts: &Amounts, positions: &[Position]) -> String {
    let mut out = String::new();
    for (table, amount) in amounts {
        let _ =
            writeln!(out, "{table}: {} entries, {} bytes, identical", amount.count, amount.bytes);
    }
    let _ = writeln!(out, "positions: {}", positions.len());
    out
}
