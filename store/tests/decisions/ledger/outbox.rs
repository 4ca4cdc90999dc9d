//! Callbacks about decisions, from the commit to delivery.

mod copied;

use std::collections::BTreeMap;
use std::sync::mpsc::channel;

use attribution::facts::event::EventTime;
use attribution::facts::keys::FactKey;
use attribution::ledger::{DecisionWrite, Ledger, Progress};
use attribution::outbox::KEPT_MS;
use attribution::outbox::interest::PlannedCallback;
use attribution::outbox::port::{Claim, Filter, Outbox, Outcome};
use attribution::outbox::record::{
    CallbackKind, Counts, EndpointId, EntryState, OutboxKey, OutboxRecord, Tally,
};

use super::rows::decision_write;
use super::support::facts::{A, activation};
use super::support::outbox::{LEASE_MS, LedgerWithOutbox, credit, planned};
use super::support::rules::rules;
use super::support::run::{on_disk, open};
use super::{commit, record_facts, record_of, write};

suite! { with_hbase:
    a_callback_is_made_with_the_decision_and_sent_once
    a_claim_ends_with_its_lease
    a_decision_without_callbacks_makes_none
    a_changed_decision_moves_its_callbacks
    the_earliest_callbacks_are_delivered_first
    endpoints_do_not_delay_each_other
    entries_are_listed_in_parts
    dead_callbacks_are_retried
    pending_callbacks_are_hastened
}

const KIND: CallbackKind = CallbackKind::Activation;

/// A time after all due times, except those of claims of tests.
fn later() -> EventTime {
    EventTime::MAX.minus(10 * LEASE_MS)
}

fn key(id: &str) -> FactKey {
    write(activation(id, A), &[]).key
}

/// Returns a decision on an activation with callbacks, made from the stored record.
fn decision(
    ledger: &mut impl LedgerWithOutbox,
    id: &str,
    callbacks: Vec<PlannedCallback>,
) -> DecisionWrite {
    if record_of(ledger, key(id)).is_none() {
        record_facts(ledger, [write(activation(id, A), &[])]);
    }
    let stored = record_of(ledger, key(id)).expect("the fact is recorded");
    let mut decision = decision_write(activation(id, A), 1, stored.current_row().copied());
    let revision = decision.row.revision;
    decision.callbacks =
        callbacks.into_iter().map(|planned| PlannedCallback { revision, ..planned }).collect();
    decision
}

fn decide(ledger: &mut impl LedgerWithOutbox, id: &str, callbacks: Vec<PlannedCallback>) {
    let decision = decision(ledger, id, callbacks);
    let conflicts = ledger.commit(vec![decision], &Progress::default()).expect("it is committed");
    assert!(conflicts.is_empty(), "conflicts without another writer");
    commit(ledger);
}

fn due_of(
    ledger: &mut impl LedgerWithOutbox,
    name: &str,
    now: EventTime,
    limit: usize,
) -> Vec<OutboxRecord> {
    let due = ledger.with_outbox(|outbox| outbox.due(&EndpointId::new(name), now, limit));
    due.expect("the outbox is readable")
}

/// Returns the records with entries of any endpoint that are due.
fn due(ledger: &mut impl LedgerWithOutbox) -> Vec<OutboxRecord> {
    let mut records = BTreeMap::new();
    for name in ["m", "n"] {
        let due = due_of(ledger, name, later(), 100);
        records.extend(due.into_iter().map(|record| (record.event, record)));
    }
    records.into_values().collect()
}

fn due_events(ledger: &mut impl LedgerWithOutbox, limit: usize) -> Vec<FactKey> {
    due_of(ledger, "n", later(), limit).iter().map(|record| record.event).collect()
}

/// Returns the number of entries of each part of a list.
fn list(ledger: &mut impl LedgerWithOutbox, filter: &Filter) -> Vec<usize> {
    let (mut after, mut parts) = (None, Vec::new());
    loop {
        let part = ledger.with_outbox(|outbox| outbox.list(filter, after, 4));
        let part = part.expect("the outbox is readable");
        parts.push(part.entries.len());
        match part.next {
            Some(next) => after = Some(next),
            None => return parts,
        }
    }
}

fn retry(ledger: &mut impl LedgerWithOutbox, filter: &Filter) -> u64 {
    let retried = ledger.with_outbox(|outbox| outbox.retry(filter, later()));
    retried.expect("the outbox is writable")
}

fn record(ledger: &mut impl LedgerWithOutbox, id: &str) -> Option<OutboxRecord> {
    let found = ledger.with_outbox(|outbox| outbox.records_of(&[key(id)]));
    found.expect("the outbox is readable").remove(0)
}

fn state(ledger: &mut impl LedgerWithOutbox, id: &str, name: &str) -> EntryState {
    let record = record(ledger, id).expect("the event has callbacks");
    record.entry(&EndpointId::new(name), KIND).expect("the endpoint has a callback").state
}

fn claim(ledger: &mut impl LedgerWithOutbox, id: &str, name: &str, now: EventTime) -> Vec<Claim> {
    let key = OutboxKey { endpoint: EndpointId::new(name), event: key(id), kind: KIND };
    let claims = ledger.with_outbox(|outbox| outbox.claim(&[key], now, LEASE_MS));
    claims.expect("the outbox is writable")
}

fn finish(ledger: &mut impl LedgerWithOutbox, id: &str, name: &str, outcome: Outcome) {
    let claim = claim(ledger, id, name, later()).pop().expect("it is due");
    let finished = ledger.with_outbox(|outbox| outbox.finish(&[(claim, outcome)], later()));
    finished.expect("the outbox is writable");
}

fn sent() -> Outcome {
    Outcome::Sent { note: "200".into() }
}

fn dead() -> Outcome {
    Outcome::Dead { note: "400".into(), maybe_sent: false }
}

#[track_caller]
fn check_counts<const N: usize>(ledger: &mut impl LedgerWithOutbox, expected: [(&str, Tally); N]) {
    let counts = ledger.with_outbox(|outbox| outbox.counts()).expect("the outbox is readable");
    let expected: Counts =
        expected.into_iter().map(|(name, tally)| (EndpointId::new(name), tally)).collect();
    assert_eq!(counts, expected);
}

fn a_callback_is_made_with_the_decision_and_sent_once(ledger: &mut impl LedgerWithOutbox) {
    decide(ledger, "a", vec![planned("n", 1), planned("m", 1)]);
    assert_eq!(due(ledger).len(), 1);
    let made = Tally { made: 1, ..Tally::default() };
    check_counts(ledger, [("m", made), ("n", made)]);
    finish(ledger, "a", "n", sent());
    assert_eq!(state(ledger, "a", "n"), EntryState::Sent);
    assert_eq!(due(ledger).len(), 1, "the other one is pending");
    finish(ledger, "a", "m", dead());
    assert_eq!(due(ledger), []);
    // The decision is written again.
    decide(ledger, "a", vec![planned("n", 1), planned("m", 1)]);
    assert_eq!(due(ledger), []);
    check_counts(ledger, [("m", Tally { dead: 1, ..made }), ("n", Tally { sent: 1, ..made })]);
}

fn a_claim_ends_with_its_lease(ledger: &mut impl LedgerWithOutbox) {
    decide(ledger, "a", vec![planned("n", 1)]);
    let first = claim(ledger, "a", "n", later()).pop().expect("it is due");
    assert_eq!(claim(ledger, "a", "n", later()), []);
    assert_eq!(due(ledger), []);
    let second = claim(ledger, "a", "n", later().plus(LEASE_MS)).pop().expect("it is due again");
    assert_eq!((first.attempt, second.attempt), (1, 2));
    let outcomes = [(first, dead()), (second, sent())];
    let finished = ledger.with_outbox(|outbox| outbox.finish(&outcomes, later()));
    finished.expect("the outbox is writable");
    check_counts(ledger, [("n", Tally { made: 1, sent: 1, ..Tally::default() })]);
    assert_eq!(claim(ledger, "unknown", "n", later()), []);
}

fn a_decision_without_callbacks_makes_none(ledger: &mut impl LedgerWithOutbox) {
    decide(ledger, "a", Vec::new());
    assert_eq!(record(ledger, "a"), None);
    assert_eq!(due(ledger), []);
    check_counts(ledger, []);
}

fn a_changed_decision_moves_its_callbacks(ledger: &mut impl LedgerWithOutbox) {
    decide(ledger, "a", vec![planned("n", 1)]);
    decide(ledger, "a", vec![planned("n", 2)]);
    let pending = record(ledger, "a").expect("the event has callbacks");
    assert_eq!(pending.entries.first().map(|entry| entry.credit), Some(credit(2)));
    decide(ledger, "a", vec![planned("m", 3)]);
    finish(ledger, "a", "n", Outcome::Dropped { note: "".into() });
    finish(ledger, "a", "m", sent());
    let made = Tally { made: 1, ..Tally::default() };
    check_counts(ledger, [("m", Tally { sent: 1, ..made }), ("n", Tally { dropped: 1, ..made })]);
    decide(ledger, "a", vec![planned("n", 2)]);
    assert_eq!(state(ledger, "a", "n"), EntryState::Pending);
    let moved_back = Tally { made: 2, dropped: 1, ..Tally::default() };
    check_counts(ledger, [("m", Tally { sent: 1, ..made }), ("n", moved_back)]);
}

fn the_earliest_callbacks_are_delivered_first(ledger: &mut impl LedgerWithOutbox) {
    let at = |hours: u64| PlannedCallback {
        // Later than any clock, so the time of the decision makes no difference.
        event_time: EventTime::MAX.minus((1_000 - hours) * 3_600_000),
        ..planned("n", 1)
    };
    for (id, hours) in [("c", 3), ("a", 1), ("d", 4), ("b", 2)] {
        decide(ledger, id, vec![at(hours)]);
    }
    assert_eq!(due_events(ledger, 10), ["a", "b", "c", "d"].map(key));
    assert_eq!(due_events(ledger, 2), ["a", "b"].map(key));
    finish(ledger, "a", "n", sent());
    assert_eq!(due_events(ledger, 2), ["b", "c"].map(key));
    assert_eq!(due_of(ledger, "n", EventTime::default(), 10), []);
}

fn endpoints_do_not_delay_each_other(ledger: &mut impl LedgerWithOutbox) {
    for index in 0..10 {
        decide(ledger, &index.to_string(), vec![planned("m", 1)]);
    }
    decide(ledger, "both", vec![planned("m", 1), planned("n", 1)]);
    assert_eq!(due_events(ledger, 1), [key("both")]);
    finish(ledger, "both", "n", sent());
    assert_eq!(due_events(ledger, 1), []);
    assert_eq!(due_of(ledger, "m", later(), 100).len(), 11);
}

fn entries_are_listed_in_parts(ledger: &mut impl LedgerWithOutbox) {
    for index in 0..10 {
        decide(ledger, &index.to_string(), vec![planned("m", 1), planned("n", 1)]);
    }
    finish(ledger, "3", "n", sent());
    assert_eq!(list(ledger, &Filter::default()).iter().sum::<usize>(), 20);
    let endpoint = Some(EndpointId::new("n"));
    let pending = Filter { endpoint, state: Some(EntryState::Pending), ..Filter::default() };
    assert_eq!(list(ledger, &pending).iter().sum::<usize>(), 9);
    let of_event = Filter { event: Some(key("3")), ..Filter::default() };
    assert_eq!(list(ledger, &of_event).iter().sum::<usize>(), 2);
    let none = Filter { kind: Some(CallbackKind::Effect), ..Filter::default() };
    assert_eq!(list(ledger, &none), [0]);
}

fn dead_callbacks_are_retried(ledger: &mut impl LedgerWithOutbox) {
    decide(ledger, "a", vec![planned("n", 1)]);
    decide(ledger, "b", vec![planned("n", 1)]);
    finish(ledger, "a", "n", dead());
    finish(ledger, "b", "n", sent());
    let other = Filter { endpoint: Some(EndpointId::new("m")), ..Filter::default() };
    assert_eq!(retry(ledger, &other), 0);
    assert_eq!(retry(ledger, &Filter::default()), 1);
    assert_eq!(retry(ledger, &Filter::default()), 0);
    finish(ledger, "a", "n", sent());
    check_counts(ledger, [("n", Tally { made: 3, sent: 2, dead: 1, ..Tally::default() })]);
}

fn pending_callbacks_are_hastened(ledger: &mut impl LedgerWithOutbox) {
    for id in ["a", "b"] {
        decide(ledger, id, vec![planned("n", 1)]);
        let (due, note) = (later().plus(200_000), "500".into());
        finish(ledger, id, "n", Outcome::Retry { due, note, maybe_sent: false });
    }
    assert_eq!(due(ledger), []);
    assert_eq!(retry(ledger, &Filter::default()), 0, "none is dead");
    let pending = Filter { state: Some(EntryState::Pending), ..Filter::default() };
    let other = Filter { endpoint: Some(EndpointId::new("m")), ..pending.clone() };
    assert_eq!(retry(ledger, &other), 0);
    let of_event = Filter { event: Some(key("b")), ..pending.clone() };
    assert_eq!(retry(ledger, &of_event), 1);
    assert_eq!(due_events(ledger, 10), [key("b")]);
    assert_eq!(retry(ledger, &pending), 1);
    finish(ledger, "a", "n", sent());
    check_counts(ledger, [("n", Tally { made: 2, sent: 1, ..Tally::default() })]);
}

#[test]
fn callbacks_survive_a_restart() {
    let (mut store, dir) = on_disk(&rules());
    decide(&mut store, "a", vec![planned("n", 1)]);
    finish(&mut store, "a", "n", Outcome::Withheld);
    decide(&mut store, "b", vec![planned("n", 1)]);
    drop(store);
    let mut store = open(dir.path(), &rules());
    assert_eq!(due(&mut store).iter().map(|record| record.event).collect::<Vec<_>>(), [key("b")]);
    check_counts(&mut store, [("n", Tally { made: 2, withheld: 1, ..Tally::default() })]);
}

#[test]
fn finished_callbacks_are_removed_after_some_days_but_still_count() {
    let (mut store, _dir) = on_disk(&rules());
    decide(&mut store, "old", vec![planned("n", 1)]);
    decide(&mut store, "new", vec![planned("n", 1)]);
    decide(&mut store, "pending", vec![planned("n", 1)]);
    finish(&mut store, "new", "n", sent());
    let long_ago = EventTime::default();
    let claim = claim(&mut store, "old", "n", later()).pop().expect("it is due");
    let finished = store.with_outbox(|outbox| outbox.finish(&[(claim, sent())], long_ago));
    finished.expect("the outbox is writable");
    // The clock could be ahead of the low watermark.
    store.compact().expect("the log is synced");
    assert!(record(&mut store, "old").is_some());
    let consumed_until = Some(EventTime::default().plus(KEPT_MS + 1));
    let progress = Progress { positions: Vec::new(), consumed_until };
    store.commit(Vec::new(), &progress).expect("the commit succeeds");
    store.wait_for_commit().expect("the commit succeeds");
    store.compact().expect("the log is synced");
    assert_eq!(record(&mut store, "old"), None);
    assert!(record(&mut store, "new").is_some() && record(&mut store, "pending").is_some());
    check_counts(&mut store, [("n", Tally { made: 3, sent: 2, ..Tally::default() })]);
}

#[test]
fn delivery_waits_for_the_commit_that_changes_a_decision() {
    let (mut store, _dir) = on_disk(&rules());
    decide(&mut store, "a", vec![planned("n", 1)]);
    let claim = claim(&mut store, "a", "n", later()).pop().expect("it is due");
    store.defer_writes();
    let changed = decision(&mut store, "a", vec![planned("n", 2)]);
    store.commit(vec![changed], &Progress::default()).expect("the commit begins");
    let mut outbox = store.outbox();
    let (started, has_started) = channel();
    std::thread::scope(|scope| {
        let finish = scope.spawn(move || {
            started.send(()).expect("the test waits");
            outbox.finish(&[(claim, sent())], later())
        });
        has_started.recv().expect("the thread starts");
        store.wait_for_commit().expect("the commit succeeds");
        finish.join().expect("no panic").expect("the outbox is writable");
    });
    // Both changes took effect.
    let record = record(&mut store, "a").expect("the event has callbacks");
    let entry = record.entries.first().expect("the endpoint has a callback");
    assert_eq!((entry.state, entry.credit), (EntryState::Pending, credit(2)));
    assert_eq!(entry.sent.map(|sent| sent.credit), Some(credit(1)));
    check_counts(&mut store, [("n", Tally { made: 2, sent: 1, ..Tally::default() })]);
}

#[test]
fn a_reader_of_the_writing_process_changes_the_same_outbox() {
    let (mut store, _dir) = on_disk(&rules());
    decide(&mut store, "a", vec![planned("n", 1)]);
    let key = OutboxKey { endpoint: EndpointId::new("n"), event: key("a"), kind: KIND };
    let mut outbox = store.reader().outbox();
    let claims = outbox.claim(&[key], later(), LEASE_MS).expect("the outbox is writable");
    assert_eq!(claims.len(), 1);
    assert_eq!(due(&mut store), []);
}
