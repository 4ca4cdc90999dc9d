//! Altered or lost facts cannot be restored. `verify` finds them by comparing the facts with their rows, and `repair`
//! keeps the rows.

use adtrail_store::layout::codec::fact_record;
use adtrail_store::layout::key::{self, RowKey};
use adtrail_store::maintenance::verify::{Options, Problem, repair};
use attribution::facts::event::{Family, Pid};
use attribution::facts::match_keys;
use attribution::ledger::record::FactRecord;
use attribution::rules::row::{CreditedTouch, EventType, seq};

use super::fixture::{Case, Fixture, Raw, check_made_whole, check_unrepairable};
use super::tables::{credited, records};

/// Checks that `problem` is found, and that a repair neither changes the export nor reports the store as repaired.
fn check(name: &str, problem: Problem, damage: impl FnOnce(&Raw)) -> Fixture {
    let _case = Case::new(name);
    let fixture = Fixture::new();
    fixture.damage(damage);
    let report = fixture.verify();
    assert!(report.found.contains_key(&problem), "{:?}", report.examples);
    check_no_repair(&fixture);
    assert!(fixture.verify().found.contains_key(&problem));
    fixture
}

fn check_no_repair(fixture: &Fixture) {
    for _ in 0..2 {
        let repaired = fixture.repair();
        assert!(!repaired.is_repaired(), "{:?}", repaired.examples);
        fixture.check_export();
    }
}

fn alter(raw: &Raw, (family, table): (Family, &str), is_newest: bool, change: fn(&mut FactRecord)) {
    let mut records = records(raw, family, table).into_iter();
    let found = if is_newest { records.next_back() } else { records.next() };
    let (key, mut record) = found.expect("the store has such an event");
    change(&mut record);
    put(raw, table, &key, &record);
}

fn put(raw: &Raw, table: &str, key: &[u8], record: &FactRecord) {
    let mut value = Vec::new();
    fact_record::encode(record, &mut value);
    raw.put(table, key, &value);
}

fn alter_revenue(record: &mut FactRecord) {
    let FactRecord::Effect(effect) = record else { panic!("not an effect") };
    effect.fact.revenue = "1000000".into();
}

fn alter_app_version(record: &mut FactRecord) {
    let FactRecord::Activation(activation) = record else { panic!("not an activation") };
    activation.fact.app_version = "another".into();
}

/// Changes the campaign of a click, so that the activation credited to it would have another campaign.
fn alter_click(raw: &Raw, pid: Pid, click: &CreditedTouch) {
    let key = key::record(&match_keys::fact_key(click.kind, pid, &click.click_id));
    let (table, number) = raw.contents_of(&key);
    let contents = raw.get(&table, &number);
    let (app, value) = contents.split_at(4);
    let mut record = fact_record::decode(Family::Touch, pid, value).expect("a valid record");
    let FactRecord::Touch(touch) = &mut record else { panic!("not a click") };
    touch.spreadid.0 += 1;
    let mut value = app.to_vec();
    fact_record::encode(&record, &mut value);
    raw.put(&table, &number, &value);
}

#[test]
fn altered_or_lost_facts_are_found_and_not_repaired() {
    altered_events();
    altered_click();
    altered_click_and_decision();
    lost_events();
    lost_click();
    altered_event_without_row();
    altered_install_before_a_reinstall();
}

fn altered_events() {
    for is_newest in [true, false] {
        let effect = format!("the fact of an effect is altered, newest: {is_newest}");
        check(&effect, Problem::FactAltered, |raw| {
            alter(raw, (Family::Effect, "effects"), is_newest, alter_revenue);
        });
        let activation = format!("the fact of an activation is altered, newest: {is_newest}");
        check(&activation, Problem::FactAltered, |raw| {
            alter(raw, (Family::Activation, "activations"), is_newest, alter_app_version);
        });
    }
}

fn altered_click() {
    let fixture = check("a click is altered", Problem::DecisionDiffers, |raw| {
        let (_, activation) = credited(raw, true);
        let touch = activation.decision.and_then(|decision| decision.credit.touch);
        let touch = touch.expect("the activation is attributed to a touch");
        alter_click(raw, activation.fact.pid, &touch);
    });
    // With `have_settings_changed`, rows are accepted as they are.
    let changed = Options { examples_max: 10, have_settings_changed: true };
    let report = repair(&fixture.settings, &fixture.policy, &changed, &mut |_| ())
        .expect("the store can be repaired");
    assert!(report.is_whole() && report.differing > 0, "{:?}", report.examples);
    fixture.check_export();
}

/// The decision is altered too: it is restored from the row, not recomputed.
fn altered_click_and_decision() {
    let fixture = check("a click and the decision are altered", Problem::DecisionDiffers, |raw| {
        let (key, mut activation) = credited(raw, true);
        let credit =
            &mut activation.decision.as_mut().expect("the activation has a decision").credit;
        let touch = credit.touch.as_mut().expect("the activation is attributed to a touch");
        let click = touch.clone();
        touch.click_id = "c-other".into();
        let pid = activation.fact.pid;
        put(raw, "activations", &key, &FactRecord::Activation(Box::new(activation)));
        alter_click(raw, pid, &click);
    });
    assert!(!fixture.verify().found.contains_key(&Problem::DecisionAltered));
}

fn lost_events() {
    let problems = [Problem::EntryToNowhere, Problem::RowWithoutFact];
    let report = check_unrepairable("the record of an activation is deleted", &problems, |raw| {
        let (key, _) = credited(raw, true);
        raw.delete("activations", &key);
    });
    let named = report.examples.iter().any(|example| example.at.contains(" activation a"));
    assert!(named, "{:?}", report.examples);
    check_unrepairable("the record of an activation is cut", &[Problem::FactUnreadable], |raw| {
        let (key, _) = credited(raw, true);
        let value = raw.get("activations", &key);
        raw.put("activations", &key, &value[..40]);
    });
}

/// The decision is kept, because a recomputed one would lack the click.
fn lost_click() {
    let _case = Case::new("a click is lost and keeps its credit");
    let fixture = Fixture::new();
    fixture.damage(|raw| {
        let (_, record) = credited(raw, true);
        let touch = record
            .decision
            .and_then(|decision| decision.credit.touch)
            .expect("the activation is attributed to a touch");
        let click = match_keys::fact_key(touch.kind, record.fact.pid, &touch.click_id);
        let key = key::record(&click);
        let (contents, number) = raw.contents_of(&key);
        raw.delete(&raw.touch_table_of(&key), &key);
        raw.delete(&contents, &number);
    });
    let found = fixture.verify().found;
    for problem in [Problem::TouchMissing, Problem::EntryToNowhere, Problem::DecisionDiffers] {
        assert!(found.contains_key(&problem), "{found:?}");
    }
    check_no_repair(&fixture);
}

/// Without its row, nothing shows that the fact is altered, so it is accepted.
fn altered_event_without_row() {
    let problems = &[Problem::DecisionLost, Problem::RowMissing];
    check_made_whole(&[("a fact is altered and its row is deleted", problems, |raw| {
        alter(raw, (Family::Effect, "effects"), true, alter_revenue);
        let (_, record) =
            records(raw, Family::Effect, "effects").pop().expect("the store has an effect");
        delete_row(raw, EventType::Effect, record.id());
    })]);
}

fn delete_row(raw: &Raw, event_type: EventType, id: &str) {
    let seq = seq(event_type, id);
    let is_its_row = |key: &[u8]| RowKey::decode(key).is_some_and(|key| key.seq == seq);
    let rows = raw.entries("events").into_iter().filter(|(key, _)| is_its_row(key));
    rows.for_each(|(key, _)| raw.delete("events", &key));
}

/// If the install had been just before the reinstall, the latter would be a duplicate.
fn altered_install_before_a_reinstall() {
    let _case = Case::new("an install before a reinstall is altered, and its row is deleted");
    let fixture = Fixture::new();
    let mut install_id = Box::default();
    fixture.damage(|raw| {
        let activations = records(raw, Family::Activation, "activations");
        let class =
            |record: &FactRecord| record.activation()?.decision.clone().map(|it| it.class());
        let reinstall = activations.iter().rev().find_map(|(_, record)| {
            let original = class(record)?.original?;
            Some((record.activation()?.fact.pid, record.time(), original))
        });
        let (pid, time, original) = reinstall.expect("the store has a reinstall");
        let is_install = |record: &FactRecord| {
            record.id() == &*original && record.activation().is_some_and(|it| it.fact.pid == pid)
        };
        let install = activations.into_iter().find(|(_, record)| is_install(record));
        let (key, mut record) = install.expect("the store has the install");
        let FactRecord::Activation(activation) = &mut record else { panic!("not an activation") };
        activation.fact.time = time.minus(30_000);
        put(raw, "activations", &key, &record);
        delete_row(raw, EventType::Activation, &original);
        install_id = original;
    });
    assert!(!fixture.repair().is_repaired());
    let others = |export: &[String]| -> Vec<String> {
        export.iter().filter(|row| !row.contains(&*install_id)).cloned().collect()
    };
    assert!(others(&fixture.export()) == others(Fixture::original_export()));
}
