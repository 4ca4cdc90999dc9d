//! A store without damage has none.

use adtrail_store::verify::{Check, Options, Problem};
use attribution::ledger::Ledger as _;
use attribution::policy::HOUR_MS;

use super::bed::Bed;
use super::support::rules::rules_with;

#[test]
fn a_store_that_is_whole_is_found_so() {
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

#[test]
fn a_running_store_is_looked_at_and_not_repaired() {
    let bed = Bed::new();
    let mut store = bed.open();
    assert!(store.positions().is_ok());
    assert!(bed.verify().is_whole());
    let options = Options { examples_max: 1, have_settings_changed: false };
    let refused = adtrail_store::verify::repair(&bed.settings, &bed.policy, &options, &mut |_| ());
    let refused = refused.expect_err("somebody writes").to_string();
    assert!(refused.contains("in use"), "{refused}");
}

#[test]
fn other_settings_decide_otherwise_and_that_can_be_said() {
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
