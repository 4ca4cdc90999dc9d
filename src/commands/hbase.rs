//! `adtrail hbase`: creates and checks the tables of a store in HBase.

use std::fmt::Write as _;

use anyhow::bail;
use config::HBase;
use store::hbase::{Difference, TableStatus, check, init};

use super::{UsageError, load, print, require_apps};
use crate::cli::InitHBase;
use crate::counted::counted;

pub fn run(options: &InitHBase) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    require_apps(&config, &options.settings)?;
    let Some(hbase) = &config.store.hbase else {
        let problem = "the settings have an embedded store: set store.kind = \"hbase\"";
        return Err(UsageError(problem.to_owned()).into());
    };
    let check_or_init = if options.dry_run { check } else { init };
    let tables = check_or_init(&config.store, hbase, &config.policy)?;
    let mut shown = String::new();
    tables.iter().for_each(|table| show(&mut shown, table, options.dry_run));
    print(shown.as_bytes())?;
    let differences = || tables.iter().flat_map(differences);
    let HBase { prefix, .. } = hbase;
    let count = counted(differences().count(), "difference");
    if differences().any(Difference::loses) {
        bail!(
            "{count} in the tables {prefix}_…: with a TTL that is too short, HBase deletes data that exports need; \
             no worker starts until it is corrected"
        );
    }
    if differences().any(|difference| *difference == Difference::Disabled) {
        bail!("{count} in the tables {prefix}_…: a disabled table can be neither read nor written");
    }
    if differences().next().is_some() {
        bail!(
            "{count} in the tables {prefix}_…: results are not affected, but space or speed is lost"
        );
    }
    Ok(())
}

fn differences(status: &TableStatus) -> &[Difference] {
    match status {
        TableStatus::Created { .. } => &[],
        TableStatus::Existing { differences, .. } => differences,
    }
}

fn show(out: &mut String, status: &TableStatus, is_dry: bool) {
    let (table, differences) = match status {
        TableStatus::Created { table, regions } => {
            let verb = if is_dry { "would be created" } else { "created" };
            let _ = writeln!(out, "{table}: {verb}, {}", counted(*regions, "region"));
            return;
        }
        TableStatus::Existing { table, differences } => (table, differences),
    };
    if differences.is_empty() {
        let _ = writeln!(out, "{table}: matches the settings");
    }
    for difference in differences {
        let remedy = difference.remedy(table);
        let _ = writeln!(out, "{table}: {difference}; in the hbase shell: {remedy}");
    }
}
