//! `adtrail hbase`: the tables of a store that processes share.

use std::fmt::Write as _;

use anyhow::bail;
use config::HBase;
use store::hbase::{Difference, Made, check, init, shell};

use super::{WrongUse, counted, load, print, require_apps};
use crate::cli::InitHBase;

pub fn run(options: &InitHBase) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    require_apps(&config, &options.settings)?;
    let Some(hbase) = &config.store.hbase else {
        let problem = "the settings have an embedded store: set store.kind = \"hbase\"";
        return Err(WrongUse(problem.to_owned()).into());
    };
    let act = if options.dry_run { check } else { init };
    let tables = act(&config.store, hbase, &config.policy)?;
    let (mut shown, mut differences) = (String::new(), 0);
    for table in &tables {
        differences += show(&mut shown, table, options.dry_run);
    }
    print(shown.as_bytes())?;
    if differences > 0 {
        let HBase { prefix, .. } = hbase;
        let count = counted(differences, "difference");
        bail!(
            "{count} in the tables {prefix}_…: rows and results are the same, but space or speed is lost"
        );
    }
    Ok(())
}

/// Gives how many differences there are.
fn show(out: &mut String, made: &Made, is_dry: bool) -> usize {
    let (table, differences) = match made {
        Made::Created { table, regions } => {
            let made = if is_dry { "would be made" } else { "made" };
            let _ = writeln!(out, "{table}: {made}, {}", counted(*regions, "region"));
            return 0;
        }
        Made::Stood { table, differences } => (table, differences),
    };
    if differences.is_empty() {
        let _ = writeln!(out, "{table}: as it should be");
    }
    for difference in differences {
        let _ = writeln!(
            out,
            "{table}: {difference}; in the hbase shell: {}",
            remedy(table, difference)
        );
    }
    differences.len()
}

fn remedy(table: &str, difference: &Difference) -> String {
    match difference {
        Difference::Attribute { name, expected, .. } => {
            // What HBase has where nothing is said.
            let value = expected.as_deref().unwrap_or("2147483647");
            format!("alter '{table}', {{NAME => 'd', {name} => '{value}'}}")
        }
        Difference::Split { row } => format!("split '{table}', \"{}\"", shell(row)),
    }
}
