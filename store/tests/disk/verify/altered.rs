//! Facts that are altered: the row that was made from them says so, and stays.

use adtrail_store::codec::home;
use adtrail_store::key::{self, RowKey};
use adtrail_store::verify::{Options, Problem, repair};
use attribution::event::Family;
use attribution::ledger::Home;
use attribution::matching;
use attribution::row::{EventType, seq};

use super::bed::{Bed, Raw};
use super::tables::{credited, homes};

/// The damage is found so, and no repair changes what is exported, or calls the store whole.
#[track_caller]
fn check(problem: Problem, damage: impl FnOnce(&Raw)) -> Bed {
    let bed = Bed::new();
    let before = bed.export();
    bed.damage(damage);
    let report = bed.verify();
    assert!(report.found.contains_key(&problem), "{:?}", report.examples);
    for _ in 0..2 {
        let repaired = bed.repair();
        assert!(!repaired.is_repaired(), "{:?}", repaired.examples);
        assert!(before == bed.export(), "the export is another one");
    }
    assert!(bed.verify().found.contains_key(&problem));
    bed
}

fn alter(raw: &Raw, (family, table): (Family, &str), is_newest: bool, change: fn(&mut Home)) {
    let mut homes = homes(raw, family, table).into_iter();
    let found = if is_newest { homes.next_back() } else { homes.next() };
    let (key, mut home) = found.expect("an event");
    change(&mut home);
    put(raw, table, &key, &home);
}

fn put(raw: &Raw, table: &str, key: &[u8], home: &Home) {
    let mut value = Vec::new();
    home::encode(home, &mut value);
    raw.put(table, key, &value);
}

fn revenue(home: &mut Home) {
    let Home::Effect(effect) = home else { panic!("no effect") };
    effect.fact.revenue = "1000000".into();
}

fn app_version(home: &mut Home) {
    let Home::Activation(activation) = home else { panic!("no activation") };
    activation.fact.app_version = "another".into();
}

#[test]
fn the_fact_of_an_event_is_altered_and_its_row_stays() {
    for is_newest in [true, false] {
        check(Problem::FactAltered, |raw| {
            alter(raw, (Family::Effect, "effects"), is_newest, revenue);
        });
        check(Problem::FactAltered, |raw| {
            alter(raw, (Family::Activation, "activations"), is_newest, app_version);
        });
    }
}

#[test]
fn a_click_is_altered_and_its_credit_stays() {
    let bed = check(Problem::DecisionDiffers, |raw| {
        let (_, activation) = credited(raw, true);
        let touch = activation.decision.and_then(|decision| decision.credit.touch);
        let pid = activation.fact.pid;
        let click = touch.expect("a touch").click_id;
        let key = key::home(&matching::fact_key(Family::Touch, pid, &click));
        let mut home =
            home::decode(Family::Touch, pid, &raw.get("touches", &key)).expect("a click");
        let Home::Touch(touch) = &mut home else { panic!("no click") };
        touch.spreadid.0 += 1;
        put(raw, "touches", &key, &home);
    });
    // Whoever says that settings have changed takes the rows as they are.
    let before = bed.export();
    let changed = Options { examples_max: 10, have_settings_changed: true };
    let report =
        repair(&bed.settings, &bed.policy, &changed, &mut |_| ()).expect("a store to repair");
    assert!(report.is_whole() && report.otherwise > 0, "{:?}", report.examples);
    assert!(before == bed.export(), "the export is another one");
}

/// The decision is altered too: it is read from the row again, and not made anew.
#[test]
fn a_click_and_the_decision_are_altered() {
    let bed = check(Problem::DecisionDiffers, |raw| {
        let (key, mut activation) = credited(raw, true);
        let credit = &mut activation.decision.as_mut().expect("a decision").credit;
        let click = credit.touch.as_ref().expect("a touch").click_id.clone();
        credit.touch.as_mut().expect("a touch").click_id = "c-other".into();
        let pid = activation.fact.pid;
        put(raw, "activations", &key, &Home::Activation(Box::new(activation)));
        let key = key::home(&matching::fact_key(Family::Touch, pid, &click));
        let mut home =
            home::decode(Family::Touch, pid, &raw.get("touches", &key)).expect("a click");
        let Home::Touch(touch) = &mut home else { panic!("no click") };
        touch.spreadid.0 += 1;
        put(raw, "touches", &key, &home);
    });
    assert!(!bed.verify().found.contains_key(&Problem::DecisionAltered));
}

/// Nothing is left that says what was true.
#[test]
fn without_its_row_an_event_is_decided_anew() {
    let bed = Bed::new();
    bed.damage(|raw| {
        alter(raw, (Family::Effect, "effects"), true, revenue);
        let (_, home) = homes(raw, Family::Effect, "effects").pop().expect("an effect");
        let seq = seq(EventType::Effect, home.id());
        let of_it = |key: &[u8]| RowKey::decode(key).is_some_and(|key| key.seq == seq);
        let rows = raw.entries("events").into_iter().filter(|(key, _)| of_it(key));
        rows.for_each(|(key, _)| raw.delete("events", &key));
    });
    let found = bed.verify().found;
    for problem in [Problem::DecisionLost, Problem::RowMissing] {
        assert!(found.contains_key(&problem), "{found:?}");
    }
    assert!(bed.repair().is_repaired());
    assert!(bed.verify().is_whole());
}
