//! Processes that crash between any two writes of a shared store: each callback is made, and delivered at least once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use adtrail_store::StoreError;
use adtrail_store::hbase::ledger::cells::{Cells, Put, Table, VALUE};
use adtrail_store::hbase::outbox::SharedOutbox;
use adtrail_store::layout::key;
use attribution::facts::event::{EventTime, Fact};
use attribution::facts::keys::FactKey;
use attribution::outbox::interest::Interests;
use attribution::outbox::port::{Outbox, Outcome};
use attribution::outbox::record::{
    CallbackKind, EndpointId, EntryState, OutboxKey, OutboxRecord, Tally,
};
use attribution::worker::{Batch, Worker};
use support::cells::{BeforeStep, HookedClient, Model, SteppedCells, ledger};
use support::facts::{A, Draft, HOUR, MINUTE, a_plus, activation, click, effect, identified};
use support::outbox::{LEASE_MS, interest};
use support::rules::rules;

use crate::support;

type SharedModel = Arc<Mutex<Model>>;

fn later() -> EventTime {
    EventTime::MAX.minus(10 * LEASE_MS)
}

/// Crashes after this number of steps; `None`: never.
fn crash_after(steps: Option<usize>) -> BeforeStep {
    let mut left = steps;
    Box::new(move || match &mut left {
        Some(0) => Err(StoreError::Corrupt { what: "the process crashes here".into() }),
        Some(steps) => {
            *steps -= 1;
            Ok(())
        }
        None => Ok(()),
    })
}

fn process(model: &SharedModel, steps: Option<usize>, facts: &[Fact]) -> Result<(), StoreError> {
    let interests = Interests::new(vec![interest("n"), interest("m")], rules());
    let client = HookedClient::new(model, crash_after(steps));
    let mut worker = Worker::new(ledger(client), rules()).with_interests(Arc::new(interests));
    worker.process(Batch { facts: facts.to_vec(), ..Batch::default() }).map(drop)
}

fn outbox(model: &SharedModel, steps: Option<usize>) -> SharedOutbox<SteppedCells<HookedClient>> {
    SharedOutbox::new(SteppedCells(HookedClient::new(model, crash_after(steps))))
}

/// Returns the records with entries of any endpoint that are due.
fn due(model: &SharedModel) -> Vec<OutboxRecord> {
    due_in(&mut outbox(model, None), later())
}

fn due_in(
    outbox: &mut SharedOutbox<SteppedCells<HookedClient>>,
    now: EventTime,
) -> Vec<OutboxRecord> {
    let mut records = BTreeMap::new();
    for endpoint in ["n", "m"].map(EndpointId::new) {
        let due = outbox.due(&endpoint, now, 100).expect("memory does not fail");
        records.extend(due.into_iter().map(|record| (record.event, record)));
    }
    records.into_values().collect()
}

/// Returns the pending callbacks, with the credits that they report.
fn pending(model: &SharedModel) -> BTreeSet<(FactKey, &'static str, CallbackKind, u64)> {
    let mut pending = BTreeSet::new();
    for record in due(model) {
        for entry in record.entries.iter().filter(|entry| entry.is_pending()) {
            let name = if entry.endpoint.as_str() == "n" { "n" } else { "m" };
            pending.insert((record.event, name, entry.kind, entry.credit.fingerprint));
        }
    }
    pending
}

#[track_caller]
fn check_counts(model: &SharedModel) {
    let counts = outbox(model, None).counts().expect("memory does not fail");
    let mut pending = 0;
    for record in due(model) {
        pending += record.entries.iter().filter(|entry| entry.is_pending()).count() as u64;
    }
    assert_eq!(counts.values().map(Tally::pending).sum::<u64>(), pending);
}

/// Checks that all callbacks of the events are pending after a worker has crashed at any step of the batch and another
/// one has processed it again.
#[track_caller]
fn check(existing: Vec<Draft>, batch: Vec<Draft>, callbacks: usize) {
    let [existing, batch] = [existing, batch].map(identified);
    let start = || {
        let model = SharedModel::default();
        process(&model, None, &existing).expect("memory does not fail");
        model
    };
    let model = start();
    process(&model, None, &batch).expect("memory does not fail");
    let expected = pending(&model);
    assert_eq!(expected.len(), callbacks);
    for steps in 0.. {
        let model = start();
        let has_crashed = process(&model, Some(steps), &batch).is_err();
        process(&model, None, &batch).expect("memory does not fail");
        assert_eq!(pending(&model), expected, "crashed after {steps} steps");
        check_counts(&model);
        if !has_crashed {
            return;
        }
    }
}

#[test]
fn callbacks_of_new_events_are_made() {
    let events = vec![click("c1", a_plus(-HOUR)), activation("a", A), effect("e", a_plus(MINUTE))];
    check(vec![], events, 4);
}

#[test]
fn callbacks_of_corrected_events_are_made() {
    let existing = || vec![activation("a", A), effect("e", a_plus(MINUTE))];
    check(existing(), vec![click("c1", a_plus(-HOUR))], 4);
    let attributed = [existing(), vec![click("c1", a_plus(-HOUR))]].concat();
    check(attributed, vec![click("c2", a_plus(-MINUTE))], 4);
}

#[test]
fn a_redelivery_makes_no_callback_again() {
    let model = SharedModel::default();
    let batch = identified([click("c1", a_plus(-HOUR)), activation("a", A)]);
    process(&model, None, &batch).expect("memory does not fail");
    for record in due(&model) {
        deliver(&model, None, &record).expect("memory does not fail");
    }
    process(&model, None, &batch).expect("memory does not fail");
    assert_eq!(due(&model), []);
    let counts = outbox(&model, None).counts().expect("memory does not fail");
    let sent = Tally { made: 1, sent: 1, ..Tally::default() };
    assert!(counts.len() == 2 && counts.values().all(|tally| *tally == sent), "{counts:?}");
}

/// Claims and sends all entries of a record that are due. Returns how many were sent.
fn deliver(
    model: &SharedModel,
    steps: Option<usize>,
    record: &OutboxRecord,
) -> Result<usize, StoreError> {
    let mut outbox = outbox(model, steps);
    let keys: Vec<OutboxKey> = record.entries.iter().map(|entry| record.key_of(entry)).collect();
    let claims = outbox.claim(&keys, later(), LEASE_MS)?;
    let sent = |claim| (claim, Outcome::Sent { note: "200".into() });
    let finished: Vec<_> = claims.into_iter().map(sent).collect();
    outbox.finish(&finished, later())?;
    Ok(finished.len())
}

#[test]
fn delivery_that_crashes_at_any_step_is_repeated() {
    let batch = identified([click("c1", a_plus(-HOUR)), activation("a", A)]);
    for steps in 0.. {
        let model = SharedModel::default();
        process(&model, None, &batch).expect("memory does not fail");
        let record = due(&model).pop().expect("a callback is due");
        let delivered = deliver(&model, Some(steps), &record);
        // Another process continues after the lease.
        let mut other = outbox(&model, None);
        let now = later().plus(LEASE_MS);
        for record in due_in(&mut other, now) {
            let keys = record.entries.iter().map(|entry| record.key_of(entry));
            let keys: Vec<OutboxKey> = keys.collect();
            let claims = other.claim(&keys, now, LEASE_MS).expect("memory does not fail");
            let sent = |claim| (claim, Outcome::Sent { note: "200".into() });
            let finished: Vec<_> = claims.into_iter().map(sent).collect();
            other.finish(&finished, now).expect("memory does not fail");
        }
        let event = record.event;
        let record = other.records_of(&[event]).expect("memory does not fail").remove(0);
        let entries = record.expect("the record is kept").entries;
        assert!(entries.iter().all(|entry| entry.state == EntryState::Sent), "{entries:?}");
        let counts = other.counts().expect("memory does not fail");
        let sent = Tally { made: 1, sent: 1, ..Tally::default() };
        assert!(counts.len() == 2 && counts.values().all(|tally| *tally == sent), "{counts:?}");
        if delivered.is_ok() {
            assert_eq!(delivered.ok(), Some(2));
            return;
        }
    }
}

#[test]
fn a_record_that_cannot_be_read_delays_no_others() {
    let model = SharedModel::default();
    let batch = [click("c1", a_plus(-HOUR)), activation("a", A), effect("e", a_plus(MINUTE))];
    process(&model, None, &identified(batch)).expect("memory does not fail");
    let records = due(&model);
    assert_eq!(records.len(), 2);
    let damaged = key::record(&records[0].event);
    let (column, value) = (VALUE.to_vec(), b"x".to_vec());
    let put = Put { row: damaged.to_vec(), column, value, time: None, ttl_ms: None };
    let mut cells = SteppedCells(HookedClient::new(&model, crash_after(None)));
    cells.put(Table::Outbox, vec![put]).expect("memory does not fail");
    let (mut outbox, endpoint) = (outbox(&model, None), EndpointId::new("n"));
    assert!(outbox.due(&endpoint, later(), 10).is_err());
    let due = outbox.due(&endpoint, later(), 10).expect("it is not due any more");
    assert_eq!(due, records[1..]);
    assert_eq!(outbox.next_records(None, 10).expect("it is left out"), records[1..]);
}

/// Otherwise each claim would read what has been pending since an endpoint failed.
#[test]
fn no_more_records_are_read_than_are_needed() {
    let model = SharedModel::default();
    let mut events = vec![click("c1", a_plus(-HOUR)), activation("a", A)];
    events.extend((0..600).map(|number| effect(&format!("e{number}"), a_plus(MINUTE))));
    process(&model, None, &identified(events)).expect("memory does not fail");
    let steps = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&steps);
    let count: BeforeStep = Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let mut outbox = SharedOutbox::new(SteppedCells(HookedClient::new(&model, count)));
    let due = outbox.due(&EndpointId::new("n"), later(), 10).expect("memory does not fail");
    assert_eq!(due.len(), 10);
    let steps = steps.load(Ordering::Relaxed);
    assert!(steps < 300, "{steps}");
}
