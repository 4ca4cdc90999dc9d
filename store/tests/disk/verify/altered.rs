//! Facts that are altered or lost: nothing says what they were. The rows that were made from them
//! show it, and stay.

use adtrail_store::layout::codec::fact_record;
use adtrail_store::layout::key::{self, RowKey};
use adtrail_store::maintenance::verify::{Options, Problem, repair};
use attribution::facts::event::{Family, Pid};
use attribution::facts::match_keys;
use attribution::ledger::record::FactRecord;
use attribution::rules::row::{EventType, seq};

use super::bed::{Bed, Case, Raw, check_left, check_made_whole};
use super::tables::{credited, records};

/// The damage is found so, and no repair changes what is exported, or calls the store whole.
fn check(name: &str, problem: Problem, damage: impl FnOnce(&Raw)) -> Bed {
    let _case = Case::new(name);
    let bed = Bed::new();
    bed.damage(damage);
    let report = bed.verify();
    assert!(report.found.contains_key(&problem), "{:?}", report.examples);
    check_no_repair(&bed);
    assert!(bed.verify().found.contains_key(&problem));
    bed
}

fn check_no_repair(bed: &Bed) {
    for _ in 0..2 {
        let repaired = bed.repair();
        assert!(!repaired.is_repaired(), "{:?}", repaired.examples);
        bed.check_export();
    }
}

fn alter(raw: &Raw, (family, table): (Family, &str), is_newest: bool, change: fn(&mut FactRecord)) {
    let mut records = records(raw, family, table).into_iter();
    let found = if is_newest { records.next_back() } else { records.next() };
    let (key, mut record) = found.expect("an event");
    change(&mut record);
    put(raw, table, &key, &record);
}

fn put(raw: &Raw, table: &str, key: &[u8], record: &FactRecord) {
    let mut value = Vec::new();
    fact_record::encode(record, &mut value);
    raw.put(table, key, &value);
}

fn revenue(record: &mut FactRecord) {
    let FactRecord::Effect(effect) = record else { panic!("no effect") };
    effect.fact.revenue = "1000000".into();
}

fn app_version(record: &mut FactRecord) {
    let FactRecord::Activation(activation) = record else { panic!("no activation") };
    activation.fact.app_version = "another".into();
}

/// By it the activation that is credited to the click would be another campaign's.
fn alter_click(raw: &Raw, pid: Pid, id: &str) {
    let key = key::record(&match_keys::fact_key(Family::Touch, pid, id));
    let mut record =
        fact_record::decode(Family::Touch, pid, &raw.get("touches", &key)).expect("a click");
    let FactRecord::Touch(touch) = &mut record else { panic!("no click") };
    touch.spreadid.0 += 1;
    put(raw, "touches", &key, &record);
}

#[test]
fn facts_that_are_altered_or_lost_are_found_and_stay_so() {
    facts_of_events_are_altered();
    a_click_is_altered();
    a_click_and_the_decision_are_altered();
    facts_are_lost();
    a_click_is_lost();
    without_its_row_an_event_is_decided_again();
}

fn facts_of_events_are_altered() {
    for is_newest in [true, false] {
        let effect = format!("the fact of an effect is altered, newest: {is_newest}");
        check(&effect, Problem::FactAltered, |raw| {
            alter(raw, (Family::Effect, "effects"), is_newest, revenue);
        });
        let activation = format!("the fact of an activation is altered, newest: {is_newest}");
        check(&activation, Problem::FactAltered, |raw| {
            alter(raw, (Family::Activation, "activations"), is_newest, app_version);
        });
    }
}

fn a_click_is_altered() {
    let bed = check("a click is altered", Problem::DecisionDiffers, |raw| {
        let (_, activation) = credited(raw, true);
        let touch = activation.decision.and_then(|decision| decision.credit.touch);
        alter_click(raw, activation.fact.pid, &touch.expect("a touch").click_id);
    });
    // Where settings are said to have changed, rows are taken as they are.
    let changed = Options { examples_max: 10, have_settings_changed: true };
    let report =
        repair(&bed.settings, &bed.policy, &changed, &mut |_| ()).expect("a store to repair");
    assert!(report.is_whole() && report.otherwise > 0, "{:?}", report.examples);
    bed.check_export();
}

/// The decision is altered too: it is read from the row again, and not made a second time.
fn a_click_and_the_decision_are_altered() {
    let bed = check("a click and the decision are altered", Problem::DecisionDiffers, |raw| {
        let (key, mut activation) = credited(raw, true);
        let credit = &mut activation.decision.as_mut().expect("a decision").credit;
        let click = credit.touch.as_ref().expect("a touch").click_id.clone();
        credit.touch.as_mut().expect("a touch").click_id = "c-other".into();
        let pid = activation.fact.pid;
        put(raw, "activations", &key, &FactRecord::Activation(Box::new(activation)));
        alter_click(raw, pid, &click);
    });
    assert!(!bed.verify().found.contains_key(&Problem::DecisionAltered));
}

fn facts_are_lost() {
    let problems = [Problem::EntryToNowhere, Problem::RowWithoutFact];
    let report = check_left("the home of an activation is deleted", &problems, |raw| {
        let (key, _) = credited(raw, true);
        raw.delete("activations", &key);
    });
    let named = report.examples.iter().any(|one| one.at.contains(" activation a"));
    assert!(named, "{:?}", report.examples);
    check_left("the home of an activation is cut", &[Problem::FactUnreadable], |raw| {
        let (key, _) = credited(raw, true);
        let value = raw.get("activations", &key);
        raw.put("activations", &key, &value[..40]);
    });
}

/// The decision is better than one without the click: it stays.
fn a_click_is_lost() {
    let _case = Case::new("a click is lost and keeps its credit");
    let bed = Bed::new();
    bed.damage(|raw| {
        let (_, record) = credited(raw, true);
        let touch = record.decision.and_then(|decision| decision.credit.touch).expect("a touch");
        let click = match_keys::fact_key(Family::Touch, record.fact.pid, &touch.click_id);
        raw.get("touches", &key::record(&click));
        raw.delete("touches", &key::record(&click));
    });
    let found = bed.verify().found;
    for problem in [Problem::TouchMissing, Problem::EntryToNowhere, Problem::DecisionDiffers] {
        assert!(found.contains_key(&problem), "{found:?}");
    }
    check_no_repair(&bed);
}

/// Nothing is left that says what was true.
fn without_its_row_an_event_is_decided_again() {
    let problems = &[Problem::DecisionLost, Problem::RowMissing];
    check_made_whole(&[("a fact is altered and its row is deleted", problems, |raw| {
        alter(raw, (Family::Effect, "effects"), true, revenue);
        let (_, record) = records(raw, Family::Effect, "effects").pop().expect("an effect");
        let seq = seq(EventType::Effect, record.id());
        let of_it = |key: &[u8]| RowKey::decode(key).is_some_and(|key| key.seq == seq);
        let rows = raw.entries("events").into_iter().filter(|(key, _)| of_it(key));
        rows.for_each(|(key, _)| raw.delete("events", &key));
    })]);
}
