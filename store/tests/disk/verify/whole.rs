//! A store without damage has none.

use std::fs;

use adtrail_store::maintenance::verify::{Check, Options, Problem};
use attribution::ledger::Ledger as _;
use attribution::rules::policy::HOUR_MS;

use super::bed::{Bed, Case};
use super::files::{files, flip};
use super::support::rules::rules_with;

#[test]
fn a_store_without_damage_is_found_whole() {
    as_it_was_written();
    while_it_runs();
    after_settings_have_changed();
    where_its_log_ends_early();
    where_other_files_are_damaged_or_missing();
}

fn as_it_was_written() {
    let _case = Case::new("as it was written");
    let bed = Bed::new();
    let report = bed.verify();
    assert!(report.is_whole(), "{:?}", report.examples);
    assert!(report.looked_at(Check::Files) >= 5);
    assert!(report.looked_at(Check::Facts) > 2_000);
    assert!(report.looked_at(Check::Index) > 8_000, "{}", report.looked_at(Check::Index));
    assert!(report.looked_at(Check::Decisions) > 1_000);
    assert!(report.finals > 500 && report.finals < report.looked_at(Check::Decisions) - 200);
    assert!(report.looked_at(Check::Rows) > 1_000);
    assert!(report.looked_at(Check::Counts) > 400);
    assert_eq!(report.without_place, 0);
    let repaired = bed.repair();
    assert!(repaired.is_whole(), "{:?}", repaired.examples);
    assert!(bed.verify().is_whole());
}

/// It is looked at, and not repaired.
fn while_it_runs() {
    let _case = Case::new("while it runs");
    let bed = Bed::new();
    let mut store = bed.open();
    assert!(store.positions().is_ok());
    assert!(bed.verify().is_whole());
    let options = Options { examples_max: 1, have_settings_changed: false };
    let refused = adtrail_store::maintenance::verify::repair(
        &bed.settings,
        &bed.policy,
        &options,
        &mut |_| (),
    );
    let refused = refused.expect_err("another process writes").to_string();
    assert!(refused.contains("in use"), "{refused}");
}

/// Others decide otherwise, and that can be said.
fn after_settings_have_changed() {
    let _case = Case::new("after settings have changed");
    let mut bed = Bed::new();
    bed.policy = rules_with(|app| app.windows.click_ms = HOUR_MS);
    let report = bed.verify();
    let found: Vec<Problem> = report.found.keys().copied().collect();
    assert_eq!(found, [Problem::DecisionDiffers]);
    let changed = Options { examples_max: 1, have_settings_changed: true };
    let report = bed.verify_with(&changed);
    assert!(report.is_whole() && report.otherwise > 0, "{:?}", report.examples);
    // What was switched on later has no entries for what came before, and that is no damage.
    let mut bed = Bed::new();
    bed.policy = rules_with(|app| app.probabilistic = false);
    assert!(bed.verify_with(&changed).is_whole());
}

/// A process that was killed leaves half a record.
fn where_its_log_ends_early() {
    let _case = Case::new("where its log ends early");
    let bed = Bed::new();
    let log = files(bed.path(), |name| name.ends_with(".log")).pop().expect("a log");
    let bytes = fs::read(&log).expect("a file");
    fs::write(&log, &bytes[..bytes.len() - 7]).expect("a file");
    bed.check_whole();
}

/// Nothing that is served depends on them.
fn where_other_files_are_damaged_or_missing() {
    let others = ["IDENTITY", "OPTIONS-", "LOCK", "LOG"];
    // All at once, or each by itself.
    for some in others.chunks(testbed::length(4, 1)) {
        for is_removed in [true, false] {
            let _case = Case::new(format!("{some:?}, removed: {is_removed}"));
            let bed = Bed::new();
            for file in files(bed.path(), |name| some.iter().any(|one| name.starts_with(*one))) {
                match is_removed {
                    true => fs::remove_file(&file).expect("a file"),
                    false if fs::metadata(&file).expect("a file").len() > 0 => {
                        flip(&file, |bytes| bytes / 2);
                    }
                    false => fs::write(&file, "x").expect("a file"),
                }
            }
            bed.check_whole();
            bed.check_goes_on();
        }
    }
}
