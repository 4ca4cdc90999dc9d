//! No damage is found in an undamaged store.

use std::fs;

use adtrail_store::maintenance::verify::{Check, Options, Problem};
use attribution::ledger::Ledger as _;
use attribution::rules::policy::HOUR_MS;

use super::files::flip;
use super::fixture::{Case, Fixture};
use super::support::folders::{files, newest_log};
use super::support::rules::rules_with;

#[test]
fn a_store_without_damage_is_found_whole() {
    after_writing();
    while_in_use();
    after_settings_have_changed();
    with_a_truncated_log();
    with_other_files_damaged_or_missing();
}

fn after_writing() {
    let _case = Case::new("after writing");
    let fixture = Fixture::new();
    let report = fixture.verify();
    assert!(report.is_whole(), "{:?}", report.examples);
    assert!(report.checked(Check::Files) >= 5);
    assert!(report.checked(Check::Facts) > 2_000);
    assert!(report.checked(Check::Index) > 8_000, "{}", report.checked(Check::Index));
    assert!(report.checked(Check::Decisions) > 1_000);
    assert!(
        report.final_decisions > 500
            && report.final_decisions < report.checked(Check::Decisions) - 200
    );
    assert!(report.checked(Check::Rows) > 1_000);
    assert!(report.checked(Check::Counts) > 400);
    assert_eq!(report.without_probabilistic, 0);
    let repaired = fixture.repair();
    assert!(repaired.is_whole(), "{:?}", repaired.examples);
    assert!(fixture.verify().is_whole());
}

/// A running store can be verified, but not repaired.
fn while_in_use() {
    let _case = Case::new("while in use");
    let fixture = Fixture::new();
    let mut store = fixture.open();
    assert!(store.positions().is_ok());
    assert!(fixture.verify().is_whole());
    let options = Options { examples_max: 1, have_settings_changed: false };
    let refused = adtrail_store::maintenance::verify::repair(
        &fixture.settings,
        &fixture.policy,
        &options,
        &mut |_| (),
    );
    let refused = refused.expect_err("the store is in use").to_string();
    assert!(refused.contains("in use"), "{refused}");
}

/// Other settings lead to other decisions, unless `have_settings_changed` is set.
fn after_settings_have_changed() {
    let _case = Case::new("after settings have changed");
    let mut fixture = Fixture::new();
    fixture.policy = rules_with(|app| app.windows.click_ms = HOUR_MS);
    let report = fixture.verify();
    let found: Vec<Problem> = report.found.keys().copied().collect();
    assert_eq!(found, [Problem::DecisionDiffers]);
    let changed = Options { examples_max: 1, have_settings_changed: true };
    let report = fixture.verify_with(&changed);
    assert!(report.is_whole() && report.differing > 0, "{:?}", report.examples);
    // Facts from before a feature was switched on have no index entries for it, which is not damage.
    let mut fixture = Fixture::new();
    fixture.policy = rules_with(|app| app.probabilistic = false);
    assert!(fixture.verify_with(&changed).is_whole());
}

/// A killed process may leave half a record at the end of the log.
fn with_a_truncated_log() {
    let _case = Case::new("with a truncated log");
    let fixture = Fixture::new();
    let log = newest_log(fixture.path());
    let bytes = fs::read(&log).expect("the file is readable");
    fs::write(&log, &bytes[..bytes.len() - 7]).expect("the file is written");
    fixture.check_whole();
}

/// No data depends on these files.
fn with_other_files_damaged_or_missing() {
    let others = ["IDENTITY", "OPTIONS-", "LOCK", "LOG"];
    // A short run damages all of them at once, a long run each by itself.
    for names in others.chunks(testbed::length(4, 1)) {
        for is_removed in [true, false] {
            let _case = Case::new(format!("{names:?}, removed: {is_removed}"));
            let fixture = Fixture::new();
            for file in
                files(fixture.path(), |name| names.iter().any(|start| name.starts_with(*start)))
            {
                match is_removed {
                    true => fs::remove_file(&file).expect("the file is removed"),
                    false if fs::metadata(&file).expect("the file exists").len() > 0 => {
                        flip(&file, |bytes| bytes / 2);
                    }
                    false => fs::write(&file, "x").expect("the file is written"),
                }
            }
            fixture.check_whole();
            fixture.check_usable();
        }
    }
}
