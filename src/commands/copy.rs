//! `adtrail copy`: a store moved from files into HBase, or the other way round.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, bail};
use attribution::ledger::Position;
use config::Config;
use indicatif::HumanCount;
use store::maintenance::copy_store::{Amounts, Source, Target};
use store::maintenance::verify::{Options, repair, verify};

use super::{WrongUse, load_for_kafka, print, require_apps};
use crate::cli::{Copy, Settings};
use crate::telemetry;

const PIECES: &str = "copying {spinner} {msg}";

pub fn run(options: &Copy) -> anyhow::Result<()> {
    let [from, to] = [settings(&options.from)?, settings(&options.to)?];
    require_alike(&from, &to)?;
    let source = Source::open(&from.store)?;
    let positions = match source.positions()? {
        Some(positions) => positions,
        None => ingest::kafka::group_offsets::read(&from.kafka)?,
    };
    let mut target = Target::open(&to.store)?;
    let bar = telemetry::bar(None, PIECES);
    let filled = target.fill(&source, |done| bar.set_message(HumanCount(done).to_string()));
    bar.finish_and_clear();
    let amounts = filled?;
    drop(source);
    if to.store.hbase.is_some() {
        ingest::kafka::group_offsets::write(&to.kafka, &positions)?;
    }
    target.finish(&positions, &to.policy)?;
    if to.store.hbase.is_none() {
        make_right(&to)?;
    }
    print(shown(&amounts, &positions).as_bytes())
}

fn settings(path: &Path) -> Result<Config, WrongUse> {
    let settings = Settings { config: Some(path.to_owned()), set: Vec::new() };
    let config = load_for_kafka(&settings)?;
    require_apps(&config, &settings)?;
    Ok(config)
}

/// What both settings have to say the same of.
fn require_alike(from: &Config, to: &Config) -> Result<(), WrongUse> {
    let wrong = |problem: &str| Err(WrongUse(problem.to_owned()));
    if from.store.hbase.is_none() && to.store.hbase.is_none() {
        return wrong(
            "both stores are embedded: adtrail backup and adtrail restore move one of those, or copy its \
             directory while adtrail is stopped",
        );
    }
    if from.store.partitions != to.store.partitions {
        return wrong("store.partitions differs, and keys of rows have it in them: set the same");
    }
    if from.kafka.topics != to.kafka.topics {
        return wrong("the topics of [kafka] differ, and positions are theirs: set the same");
    }
    Ok(())
}

/// What a worker had in hand when it was killed may be half decided where each row is written by itself.
fn make_right(to: &Config) -> anyhow::Result<()> {
    let asked = Options { examples_max: 0, have_settings_changed: false };
    let report = verify(&to.store, &to.policy, &asked, &mut |_| {})?;
    if report.is_whole() {
        return Ok(());
    }
    let report = repair(&to.store, &to.policy, &asked, &mut |_| {}).context("the copy is whole")?;
    if !report.is_repaired() {
        bail!("the copy is whole, but not all of it is right: adtrail verify tells what");
    }
    tracing::info!("what was half decided in the source was decided in the copy");
    Ok(())
}

fn shown(amounts: &Amounts, positions: &[Position]) -> String {
    let mut out = String::new();
    for (table, amount) in amounts {
        let _ =
            writeln!(out, "{table}: {} entries, {} bytes, the same", amount.count, amount.bytes);
    }
    let _ = writeln!(out, "positions: {}", positions.len());
    out
}
