//! Tests of entries, by scenarios and by random sequences of changes.

mod plans;
mod port;
mod random;

use super::interest::{LateCredit, PlannedCallback};
use super::port::{Claim, Outcome};
use super::record::{CallbackKind, CreditMark, EndpointId, EntryState, OutboxRecord, Tally};
use super::settle::{Settlement, settle};
use super::{KEPT_MS, MAX_AGE_MS_MAX};
use crate::facts::event::{EventTime, Family, Pid, SpreadId};
use crate::facts::keys::{FactKey, MatchKey};
use crate::rules::row::Status;

const SETTLE_MS: u64 = 60_000;
const MAX_AGE_MS: u64 = 86_400_000;
const LEASE_MS: u64 = 30_000;

fn at(ms: u64) -> EventTime {
    EventTime::default().plus(1_000_000_000 + ms)
}

fn event() -> FactKey {
    FactKey { family: Family::Activation, id: MatchKey(1), pid: Pid(1), tag: 1 }
}

fn endpoint(name: &str) -> EndpointId {
    EndpointId::new(name)
}

fn credit(fingerprint: u64) -> CreditMark {
    CreditMark { fingerprint, status: Status::Attributed, spreadid: SpreadId(7) }
}

fn planned(name: &str, kind: CallbackKind, fingerprint: u64, revision: u32) -> PlannedCallback {
    PlannedCallback {
        endpoint: endpoint(name),
        kind,
        credit: credit(fingerprint),
        revision,
        event_time: at(0),
        settle_ms: SETTLE_MS,
        max_age_ms: MAX_AGE_MS,
    }
}

fn activation(name: &str, fingerprint: u64, revision: u32) -> PlannedCallback {
    planned(name, CallbackKind::Activation, fingerprint, revision)
}

fn record_with(plans: &[PlannedCallback]) -> OutboxRecord {
    let mut record = OutboxRecord::new(event());
    plans.iter().for_each(|planned| record.plan(planned, at(0)));
    record
}

fn state(record: &OutboxRecord, name: &str, kind: CallbackKind) -> (EntryState, Tally) {
    let entry = record.entry(&endpoint(name), kind).unwrap();
    (entry.state, entry.tally)
}

/// Settles an entry, and sends it if that is to be done.
#[track_caller]
fn deliver(
    record: &mut OutboxRecord,
    name: &str,
    kind: CallbackKind,
    present: u64,
    late_credit: LateCredit,
    now: EventTime,
) -> Settlement {
    let entry = record.entry(&endpoint(name), kind).unwrap();
    let settlement = settle(record, entry, Some(credit(present)), late_credit, now);
    let claim = record.claim_of(entry);
    let outcome = match settlement {
        Settlement::Wait => return settlement,
        Settlement::Later { due } => Outcome::Later { due },
        Settlement::Send => {
            let claim = record.claim(&endpoint(name), kind, now, LEASE_MS).unwrap();
            assert!(record.finish(&claim, &Outcome::Sent { note: "200".into() }, now));
            return settlement;
        }
        Settlement::Drop => Outcome::Dropped { note: "".into() },
        Settlement::Withhold => Outcome::Withheld,
        Settlement::TooOld => Outcome::TooOld,
    };
    assert!(record.finish(&claim, &outcome, now));
    settlement
}

fn withholding(record: &mut OutboxRecord, name: &str, present: u64, ms: u64) -> Settlement {
    deliver(record, name, CallbackKind::Activation, present, LateCredit::Withhold, at(ms))
}

#[test]
fn an_entry_is_sent_once_it_is_due() {
    let mut record = record_with(&[activation("a", 1, 1)]);
    assert_eq!(record.due(), Some(at(SETTLE_MS)));
    assert_eq!(withholding(&mut record, "a", 1, SETTLE_MS - 1), Settlement::Wait);
    assert_eq!(withholding(&mut record, "a", 1, SETTLE_MS), Settlement::Send);
    let tally = Tally { made: 1, sent: 1, ..Tally::default() };
    assert_eq!(state(&record, "a", CallbackKind::Activation), (EntryState::Sent, tally));
    assert_eq!((record.due(), record.kept_until()), (None, Some(at(SETTLE_MS + KEPT_MS))));
    // The decision is written again.
    record.plan(&activation("a", 1, 2), at(SETTLE_MS));
    assert_eq!(state(&record, "a", CallbackKind::Activation), (EntryState::Sent, tally));
}

#[test]
fn an_entry_waits_for_an_event_of_a_later_time() {
    let mut record = OutboxRecord::new(event());
    let later = PlannedCallback { event_time: at(5_000), ..activation("a", 1, 1) };
    record.plan(&later, at(0));
    assert_eq!(record.due(), Some(at(5_000 + SETTLE_MS)));
}

#[test]
fn credit_that_moves_before_it_is_sent_is_dropped_there_and_made_here() {
    let mut record = record_with(&[activation("a", 1, 1)]);
    record.plan(&activation("b", 2, 2), at(1_000));
    assert_eq!(withholding(&mut record, "a", 2, SETTLE_MS), Settlement::Drop);
    assert_eq!(withholding(&mut record, "b", 2, SETTLE_MS + 1_000), Settlement::Send);
    // It moves back: what was dropped is made again, and withheld because of the other one.
    record.plan(&activation("a", 1, 3), at(100_000));
    assert_eq!(withholding(&mut record, "a", 1, 100_000 + SETTLE_MS), Settlement::Withhold);
    let tally = Tally { made: 2, dropped: 1, withheld: 1, ..Tally::default() };
    assert_eq!(state(&record, "a", CallbackKind::Activation), (EntryState::Withheld, tally));
}

#[test]
fn late_credit_is_sent_if_the_endpoint_wants_it() {
    for (late_credit, expected) in
        [(LateCredit::Withhold, Settlement::Withhold), (LateCredit::Send, Settlement::Send)]
    {
        let mut record = record_with(&[activation("a", 1, 1)]);
        assert_eq!(withholding(&mut record, "a", 1, SETTLE_MS), Settlement::Send);
        record.plan(&activation("b", 2, 2), at(100_000));
        let (kind, now) = (CallbackKind::Activation, at(100_000 + SETTLE_MS));
        assert_eq!(deliver(&mut record, "b", kind, 2, late_credit, now), expected);
        // Within one network.
        let mut record = record_with(&[activation("a", 1, 1)]);
        assert_eq!(withholding(&mut record, "a", 1, SETTLE_MS), Settlement::Send);
        record.plan(&activation("a", 2, 2), at(100_000));
        assert_eq!(deliver(&mut record, "a", kind, 2, late_credit, now), expected);
        // Back to what was sent first.
        record.plan(&activation("a", 1, 3), at(200_000));
        let back = withholding(&mut record, "a", 1, 200_000 + SETTLE_MS);
        assert_eq!(back == Settlement::Drop, expected == Settlement::Withhold, "{back:?}");
    }
}

#[test]
fn credit_that_moves_within_an_endpoint_before_it_is_sent_stays_one_callback() {
    let mut record = record_with(&[activation("a", 1, 1)]);
    record.plan(&activation("a", 2, 2), at(50_000));
    assert_eq!(record.due(), Some(at(50_000 + SETTLE_MS)));
    assert_eq!(withholding(&mut record, "a", 2, 50_000 + SETTLE_MS), Settlement::Send);
    let tally = Tally { made: 1, sent: 1, ..Tally::default() };
    assert_eq!(state(&record, "a", CallbackKind::Activation), (EntryState::Sent, tally));
}

#[test]
fn the_decision_of_a_paused_worker_changes_nothing() {
    let mut record = record_with(&[activation("a", 2, 2)]);
    record.plan(&activation("a", 1, 1), at(50_000));
    assert_eq!(withholding(&mut record, "a", 2, SETTLE_MS), Settlement::Send);
}

#[test]
fn credit_that_has_moved_back_meanwhile_is_not_dropped() {
    let mut record = record_with(&[activation("a", 1, 1)]);
    // Delivery has read that another endpoint has the credit, by revision 2.
    let entry = record.entry(&endpoint("a"), CallbackKind::Activation).unwrap();
    let claim = record.claim_of(entry);
    record.plan(&activation("a", 1, 3), at(SETTLE_MS));
    assert!(!record.finish(&claim, &Outcome::Dropped { note: "".into() }, at(SETTLE_MS)));
    assert_eq!(withholding(&mut record, "a", 1, SETTLE_MS), Settlement::Send);
}

#[test]
fn an_event_that_is_gone_is_dropped() {
    let record = record_with(&[activation("a", 1, 1)]);
    let entry = record.entry(&endpoint("a"), CallbackKind::Activation).unwrap();
    let settled = settle(&record, entry, None, LateCredit::Send, at(SETTLE_MS));
    assert_eq!(settled, Settlement::Drop);
}

#[test]
fn old_events_are_not_sent_but_later_attempts_are_made() {
    let mut record = OutboxRecord::new(event());
    record.plan(&activation("a", 1, 1), at(MAX_AGE_MS + 1));
    let tally = Tally { made: 1, too_old: 1, ..Tally::default() };
    assert_eq!(state(&record, "a", CallbackKind::Activation), (EntryState::TooOld, tally));
    // Delivery was down for a day.
    let mut record = record_with(&[activation("a", 1, 1)]);
    assert_eq!(withholding(&mut record.clone(), "a", 1, MAX_AGE_MS + 1), Settlement::TooOld);
    let now = at(SETTLE_MS);
    let claim = record.claim(&endpoint("a"), CallbackKind::Activation, now, LEASE_MS).unwrap();
    let failed = Outcome::Retry { due: at(MAX_AGE_MS + 1), note: "500".into(), maybe_sent: false };
    assert!(record.finish(&claim, &failed, now));
    assert_eq!(withholding(&mut record, "a", 1, MAX_AGE_MS + 1), Settlement::Send);
}

#[test]
fn what_is_not_sent_has_a_reason() {
    let (name, kind, now) = (endpoint("a"), CallbackKind::Activation, at(SETTLE_MS));
    let note = |record: &OutboxRecord| record.entry(&name, kind).unwrap().note.to_string();
    let mut record = record_with(&[activation("a", 1, 1)]);
    assert_eq!(withholding(&mut record, "a", 1, MAX_AGE_MS + 1), Settlement::TooOld);
    assert_eq!(note(&record), "too old to be sent");
    let mut record = record_with(&[activation("a", 1, 1)]);
    let claim = record.claim(&name, kind, now, LEASE_MS).unwrap();
    assert!(record.finish(&claim, &Outcome::Sent { note: "taken".into() }, now));
    record.plan(&activation("a", 2, 2), now);
    assert_eq!(withholding(&mut record, "a", 2, 2 * SETTLE_MS), Settlement::Withhold);
    assert_eq!(note(&record), "another credit of the event was sent before\ntaken");
}

#[test]
fn a_claim_that_is_not_finished_ends_with_its_lease() {
    let (name, kind) = (endpoint("a"), CallbackKind::Activation);
    let mut record = record_with(&[activation("a", 1, 1)]);
    assert_eq!(record.claim(&name, kind, at(SETTLE_MS - 1), LEASE_MS), None);
    let first = record.claim(&name, kind, at(SETTLE_MS), LEASE_MS).unwrap();
    assert_eq!(record.claim(&name, kind, at(SETTLE_MS + LEASE_MS - 1), LEASE_MS), None);
    let second = record.claim(&name, kind, at(SETTLE_MS + LEASE_MS), LEASE_MS).unwrap();
    assert_eq!((first.attempt, second.attempt), (1, 2));
    let failed = Outcome::Dead { note: "400".into(), maybe_sent: false };
    assert!(!record.finish(&first, &failed, at(0)), "another attempt is in progress");
    let sent = Outcome::Sent { note: "200".into() };
    assert!(record.finish(&first, &sent, at(0)));
    assert!(!record.finish(&second, &sent, at(0)), "it is sent already");
    assert!(!record.finish(&second, &failed, at(0)));
    let tally = Tally { made: 1, sent: 1, ..Tally::default() };
    assert_eq!(state(&record, "a", kind), (EntryState::Sent, tally));
}

#[test]
fn attempts_of_a_callback_have_one_id() {
    let (name, kind) = (endpoint("a"), CallbackKind::Activation);
    let mut record = record_with(&[activation("a", 1, 1)]);
    let ids = |record: &mut OutboxRecord, ms| -> [String; 2] {
        [0, LEASE_MS].map(|lease| record.claim(&name, kind, at(ms + lease), LEASE_MS).unwrap().id())
    };
    let [first, second] = ids(&mut record, SETTLE_MS);
    assert_eq!(first, "1-0000000000000001000000000001-0-0000000000000001-0");
    assert_eq!(first, second);
    // A decision with the same credit.
    record.plan(&activation("a", 1, 2), at(SETTLE_MS));
    assert_eq!(ids(&mut record, 10 * SETTLE_MS), [first.clone(), first.clone()]);
    let claim = record.claim(&name, kind, at(20 * SETTLE_MS), LEASE_MS).unwrap();
    assert!(record.finish(&claim, &Outcome::Sent { note: "".into() }, at(0)));
    record.plan(&activation("a", 2, 3), at(0));
    let [other, _] = ids(&mut record, 30 * SETTLE_MS);
    assert!(other != first && other.ends_with("0002-1"), "{other}");
}

#[test]
fn an_id_does_not_change_if_an_earlier_credit_is_noted_meanwhile() {
    let (name, kind) = (endpoint("a"), CallbackKind::Activation);
    let mut record = record_with(&[activation("a", 1, 1)]);
    let earlier = record.claim(&name, kind, at(SETTLE_MS), LEASE_MS).unwrap();
    record.plan(&activation("a", 2, 2), at(SETTLE_MS));
    let first = record.claim(&name, kind, at(2 * SETTLE_MS), LEASE_MS).unwrap();
    assert!(record.finish(&earlier, &Outcome::Sent { note: "".into() }, at(2 * SETTLE_MS)));
    let again = record.claim(&name, kind, at(2 * SETTLE_MS + LEASE_MS), LEASE_MS).unwrap();
    assert_eq!(first.id(), again.id());
    assert_ne!(first.id(), earlier.id());
}

#[test]
fn what_was_sent_counts_even_if_the_credit_has_moved_meanwhile() {
    let (name, kind, now) = (endpoint("a"), CallbackKind::Activation, at(SETTLE_MS));
    let mut record = record_with(&[activation("a", 1, 1)]);
    let claim = record.claim(&name, kind, now, LEASE_MS).unwrap();
    record.plan(&activation("a", 2, 2), now);
    assert!(record.finish(&claim, &Outcome::Sent { note: "200".into() }, now));
    let tally = Tally { made: 2, sent: 1, ..Tally::default() };
    assert_eq!(state(&record, "a", kind), (EntryState::Pending, tally));
    assert_eq!(withholding(&mut record, "a", 2, 2 * SETTLE_MS), Settlement::Withhold);
}

/// Returns a record whose credit has moved from network a to b while an attempt of a is in progress, and its claim.
fn moved_during_an_attempt() -> (OutboxRecord, Claim) {
    let mut record = record_with(&[activation("a", 1, 1)]);
    let (name, kind) = (endpoint("a"), CallbackKind::Activation);
    let claim = record.claim(&name, kind, at(SETTLE_MS), LEASE_MS).unwrap();
    record.plan(&PlannedCallback { settle_ms: 0, ..activation("b", 2, 2) }, at(SETTLE_MS));
    (record, claim)
}

#[test]
fn a_credit_waits_while_another_one_is_sent() {
    let (mut record, claim) = moved_during_an_attempt();
    let until = at(SETTLE_MS + LEASE_MS);
    let waiting = withholding(&mut record, "b", 2, SETTLE_MS);
    assert_eq!(waiting, Settlement::Later { due: until });
    assert_eq!(record.due_of(&endpoint("b")), Some(until));
    let refused = Outcome::Dead { note: "400".into(), maybe_sent: false };
    assert!(record.finish(&claim, &refused, at(SETTLE_MS)));
    assert_eq!(withholding(&mut record, "b", 2, SETTLE_MS + LEASE_MS), Settlement::Send);
}

#[test]
fn a_credit_that_may_have_been_sent_counts_as_sent() {
    // The process has ended.
    let (record, claim) = moved_during_an_attempt();
    let (note, due) = (Box::<str>::from("no response"), at(10 * SETTLE_MS));
    let mut retried = record.clone();
    let unknown = Outcome::Retry { due, note: note.clone(), maybe_sent: true };
    assert!(retried.finish(&claim, &unknown, at(SETTLE_MS)));
    let mut dead = record.clone();
    assert!(dead.finish(&claim, &Outcome::Dead { note, maybe_sent: true }, at(SETTLE_MS)));
    for mut record in [record, retried, dead] {
        let now_ms = 10 * SETTLE_MS;
        let entry = record.entry(&endpoint("b"), CallbackKind::Activation).unwrap();
        let sent = settle(&record, entry, Some(credit(2)), LateCredit::Send, at(now_ms));
        assert_eq!(sent, Settlement::Send);
        assert_eq!(withholding(&mut record, "b", 2, now_ms), Settlement::Withhold);
    }
}

#[test]
fn an_attempt_that_has_sent_nothing_leaves_what_is_known_of_earlier_ones() {
    let (mut record, _) = moved_during_an_attempt();
    let (name, kind) = (endpoint("a"), CallbackKind::Activation);
    record.plan(&activation("a", 1, 3), at(SETTLE_MS));
    let again = record.claim(&name, kind, at(SETTLE_MS + LEASE_MS), LEASE_MS).unwrap();
    let (due, now) = (at(3 * SETTLE_MS), at(2 * SETTLE_MS));
    assert!(record.finish(&again, &Outcome::Postponed { due }, now));
    record.plan(&activation("b", 2, 4), now);
    assert_eq!(withholding(&mut record, "b", 2, 3 * SETTLE_MS), Settlement::Withhold);
}

#[test]
fn a_webhook_may_get_two_credits() {
    let kind = CallbackKind::ActivationAttributed;
    let mut record = record_with(&[planned("hook", kind, 1, 1)]);
    record.claim(&endpoint("hook"), kind, at(SETTLE_MS), LEASE_MS).unwrap();
    record.plan(&planned("hook", kind, 2, 2), at(SETTLE_MS));
    let now = at(2 * SETTLE_MS);
    let sent = deliver(&mut record, "hook", kind, 2, LateCredit::Withhold, now);
    assert_eq!(sent, Settlement::Send);
}

#[test]
fn a_credit_waits_for_the_attempt_of_another_one_of_its_endpoint() {
    let until_ms = SETTLE_MS + 2 * 60_000;
    let until = at(until_ms);
    let moved = || {
        let mut record = record_with(&[activation("a", 1, 1)]);
        let (name, kind) = (endpoint("a"), CallbackKind::Activation);
        let claim = record.claim(&name, kind, at(SETTLE_MS), LEASE_MS).unwrap();
        record.plan(&activation("a", 2, 2), at(SETTLE_MS - 50_000));
        (record, claim)
    };
    let (mut record, claim) = moved();
    let now_ms = 2 * SETTLE_MS - 50_000;
    let waiting = withholding(&mut record, "a", 2, now_ms);
    assert_eq!(waiting, Settlement::Later { due: until });
    let failed = Outcome::Retry { due: until, note: "503".into(), maybe_sent: false };
    record.finish(&claim, &failed, at(now_ms));
    assert_eq!(withholding(&mut record, "a", 2, until_ms), Settlement::Send);
    // Nobody knows what has become of the attempt.
    let (mut record, _) = moved();
    assert_eq!(withholding(&mut record, "a", 2, until_ms), Settlement::Withhold);
}

#[test]
fn a_credit_that_is_noted_late_does_not_replace_a_later_one() {
    let kind = CallbackKind::ActivationAttributed;
    let mut record = record_with(&[planned("hook", kind, 1, 1)]);
    let first = record.claim(&endpoint("hook"), kind, at(SETTLE_MS), LEASE_MS).unwrap();
    record.plan(&planned("hook", kind, 2, 2), at(SETTLE_MS));
    let now = at(2 * SETTLE_MS);
    let sent = deliver(&mut record, "hook", kind, 2, LateCredit::Withhold, now);
    assert_eq!(sent, Settlement::Send);
    assert!(!record.finish(&first, &Outcome::Sent { note: "200".into() }, at(3 * SETTLE_MS)));
    assert_eq!(record.last_sent(&endpoint("hook")).unwrap().credit, credit(2));
    let tally = Tally { made: 1, sent: 1, ..Tally::default() };
    assert_eq!(state(&record, "hook", kind), (EntryState::Sent, tally));
}

#[test]
fn an_entry_has_changed_when_it_reports_another_credit() {
    let mut record = record_with(&[activation("a", 1, 1)]);
    record.plan(&activation("a", 2, 2), at(500_000));
    let entry = record.entry(&endpoint("a"), CallbackKind::Activation).unwrap();
    assert_eq!((entry.changed, entry.tally.made), (at(500_000), 1));
}

#[test]
fn a_postponed_attempt_does_not_count() {
    let (name, kind, now) = (endpoint("a"), CallbackKind::Activation, at(SETTLE_MS));
    let mut record = record_with(&[activation("a", 1, 1)]);
    let claim = record.claim(&name, kind, now, LEASE_MS).unwrap();
    assert!(record.finish(&claim, &Outcome::Postponed { due: at(100_000) }, now));
    assert_eq!(record.due(), Some(at(100_000)));
    assert_eq!(record.claim(&name, kind, at(100_000), LEASE_MS).unwrap().attempt, 1);
}

#[test]
fn dead_entries_are_made_again() {
    let (name, kind, now) = (endpoint("a"), CallbackKind::Activation, at(SETTLE_MS));
    let mut record = record_with(&[activation("a", 1, 1), activation("b", 1, 1)]);
    let claim = record.claim(&name, kind, now, LEASE_MS).unwrap();
    let note = "é".repeat(5_000).into();
    assert!(record.finish(&claim, &Outcome::Dead { note, maybe_sent: false }, now));
    assert_eq!(record.entry(&name, kind).unwrap().note.chars().count(), 2_000);
    assert_eq!(record.retry(|entry| entry.endpoint == endpoint("b"), now), 0);
    assert_eq!(record.retry(|_| true, now), 1);
    // Its age does not matter.
    assert_eq!(withholding(&mut record, "a", 1, MAX_AGE_MS_MAX), Settlement::Send);
    let tally = Tally { made: 2, dead: 1, sent: 1, ..Tally::default() };
    assert_eq!(state(&record, "a", kind), (EntryState::Sent, tally));
}

#[test]
fn pending_entries_are_hastened() {
    let (name, kind, now) = (endpoint("a"), CallbackKind::Activation, at(SETTLE_MS));
    let failed = |ms: u64| {
        let mut record = record_with(&[activation("a", 1, 1)]);
        let claim = record.claim(&name, kind, now, LEASE_MS).unwrap();
        let (due, note) = (now.plus(ms), "500".into());
        assert!(record.finish(&claim, &Outcome::Retry { due, note, maybe_sent: false }, now));
        record
    };
    let mut record = failed(36_000_000);
    assert_eq!(record.retry(|entry| entry.endpoint == endpoint("b"), now), 0);
    assert_eq!(record.retry(|_| true, now), 1);
    assert_eq!(record.due(), Some(now));
    let next = record.claim(&name, kind, now, LEASE_MS).unwrap();
    assert_eq!(next.attempt, 2, "the attempt before counts");
    assert_eq!(record.retry(|_| true, now), 0, "the attempt is in progress");
    assert_eq!(record.due(), Some(now.plus(LEASE_MS)));
    assert!(record.finish(&next, &Outcome::Sent { note: "200".into() }, now));
    assert_eq!(record.retry(|_| true, now), 0, "it is sent");
    let tally = Tally { made: 1, sent: 1, ..Tally::default() };
    assert_eq!(state(&record, "a", kind), (EntryState::Sent, tally));
    // Soon due.
    let mut record = failed(60_000);
    assert_eq!(record.retry(|_| true, now), 0);
    assert_eq!(record.due(), Some(now.plus(60_000)));
}

#[test]
fn a_webhook_learns_of_changes_of_what_it_was_sent() {
    let (attributed, changed) =
        (CallbackKind::ActivationAttributed, CallbackKind::ActivationChanged);
    let send = |record: &mut OutboxRecord, kind, present, ms| {
        deliver(record, "hook", kind, present, LateCredit::Withhold, at(ms))
    };
    let mut record = record_with(&[planned("hook", attributed, 1, 1)]);
    record.plan(&planned("hook", attributed, 2, 2), at(0));
    record.plan(&planned("hook", changed, 2, 2), at(0));
    // Nothing was sent before, so the first callback says everything.
    assert_eq!(send(&mut record, changed, 2, SETTLE_MS), Settlement::Drop);
    assert_eq!(send(&mut record, attributed, 2, SETTLE_MS), Settlement::Send);
    let later = 100_000;
    record.plan(&planned("hook", attributed, 3, 3), at(later));
    record.plan(&planned("hook", changed, 3, 3), at(later));
    assert_eq!(send(&mut record, attributed, 3, later + SETTLE_MS), Settlement::Withhold);
    assert_eq!(record.last_sent(&endpoint("hook")).unwrap().credit, credit(2));
    assert_eq!(send(&mut record, changed, 3, later + SETTLE_MS), Settlement::Send);
    assert_eq!(record.last_sent(&endpoint("hook")).unwrap().credit, credit(3));
    // An ad network is independent of it.
    record.plan(&activation("a", 3, 3), at(later));
    assert_eq!(withholding(&mut record, "a", 3, later + SETTLE_MS), Settlement::Send);
}

#[test]
fn a_webhook_learns_of_changes_of_what_it_may_have_been_sent() {
    let (attributed, changed) =
        (CallbackKind::ActivationAttributed, CallbackKind::ActivationChanged);
    let (hook, later) = (endpoint("hook"), 10 * SETTLE_MS);
    let unknown = Outcome::Retry { due: at(later), note: "no response".into(), maybe_sent: true };
    let mut record = record_with(&[planned("hook", attributed, 1, 1)]);
    let claim = record.claim(&hook, attributed, at(SETTLE_MS), LEASE_MS).unwrap();
    // The event is no longer attributed.
    record.plan(&planned("hook", changed, 2, 2), at(0));
    let settled = |record: &mut OutboxRecord, present, ms| {
        deliver(record, "hook", changed, present, LateCredit::Withhold, at(ms))
    };
    let until = at(SETTLE_MS + LEASE_MS);
    assert_eq!(settled(&mut record.clone(), 2, SETTLE_MS), Settlement::Later { due: until });
    record.finish(&claim, &unknown, at(SETTLE_MS));
    assert_eq!(record.reported_before(&hook, credit(2)).unwrap().credit, credit(1));
    // It does not wait for the next attempt, at which the credit is no longer sent.
    assert_eq!(settled(&mut record.clone(), 2, 3 * SETTLE_MS), Settlement::Send);
    assert_eq!(settled(&mut record, 2, later), Settlement::Send);
    // A change that it may know is changed back.
    record.plan(&planned("hook", changed, 3, 3), at(later));
    let claim = record.claim(&hook, changed, at(later + SETTLE_MS), LEASE_MS).unwrap();
    record.plan(&planned("hook", changed, 2, 4), at(later + SETTLE_MS));
    record.finish(&claim, &unknown, at(later + SETTLE_MS));
    assert_eq!(record.reported_before(&hook, credit(2)).unwrap().credit, credit(3));
    assert_eq!(settled(&mut record, 2, 2 * later), Settlement::Send);
}

#[test]
fn changes_of_old_events_are_reported_if_the_event_was() {
    let (attributed, changed) =
        (CallbackKind::ActivationAttributed, CallbackKind::ActivationChanged);
    let days = 3 * MAX_AGE_MS;
    let change = planned("hook", changed, 2, 2);
    let mut record = record_with(&[planned("hook", attributed, 1, 1)]);
    let now = at(SETTLE_MS);
    let sent = deliver(&mut record, "hook", attributed, 1, LateCredit::Withhold, now);
    assert_eq!(sent, Settlement::Send);
    let mut unsent = OutboxRecord::new(event());
    for (record, expected) in [(&mut record, Settlement::Send), (&mut unsent, Settlement::Drop)] {
        record.plan(&change, at(days));
        let now = at(days + SETTLE_MS);
        let settled = deliver(record, "hook", changed, 2, LateCredit::Withhold, now);
        assert_eq!(settled, expected);
    }
}

#[test]
fn a_claim_of_an_unknown_entry_changes_nothing() {
    let mut record = record_with(&[activation("a", 1, 1)]);
    let claim = record.claim(&endpoint("a"), CallbackKind::Activation, at(SETTLE_MS), 1).unwrap();
    let mut empty = OutboxRecord::new(event());
    assert!(!empty.finish(&claim, &Outcome::Dropped { note: "".into() }, at(0)));
    let other = Claim { credit: credit(9), ..claim };
    assert!(!record.finish(&other, &Outcome::Dropped { note: "".into() }, at(0)));
}
