//! Facts that nothing can depend on any more go, and no decision changes.

use std::path::Path;
use std::sync::Arc;

use adtrail_store::embedded::Embedded;
use adtrail_store::memory::Memory;
use attribution::facts::event::{EventTime, Fact, Family};
use attribution::facts::match_keys::fact_key;
use attribution::ledger::{Facts as _, Progress};
use attribution::rules::policy::{AppPolicy, DAY_MS, Policy};
use attribution::worker::{Batch, Report, Worker};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::Config;
use rocksdb::{DB, IteratorMode, Options};
use support::facts::{
    A, DAY, Draft, HOUR, MINUTE, a_and, activation, click, effect, identified, impression,
};
use support::reference::decisions;
use support::rules::{X, rules_with};
use support::run::{Shelf, on_disk, open, settings};
use support::traffic::{
    Message, consumed, counting, decided, lateness, partitions, traffic, until,
};

use crate::support;

/// Gives a batch with which all is consumed up to a time.
fn give(worker: &mut Worker<Embedded>, facts: Vec<Draft>, until: EventTime) -> Report {
    process(worker, identified(facts), Some(until))
}

fn process<L: Shelf>(
    worker: &mut Worker<L>,
    facts: Vec<Fact>,
    consumed_until: Option<EventTime>,
) -> Report {
    let progress = Progress { positions: Vec::new(), consumed_until };
    worker.process(Batch { facts, progress }).expect("the ledger works")
}

#[track_caller]
fn check(worker: &Worker<Embedded>, expected: &[&str]) {
    let rows: Vec<_> = worker.ledger().shown().into_iter().map(|row| row.short).collect();
    assert_eq!(rows, expected);
}

/// How many entries a table has, without adtrail.
fn entries(path: &Path, table: &str) -> usize {
    let tables = DB::list_cf(&Options::default(), path).expect("a RocksDB");
    let tables = DB::open_cf_for_read_only(&Options::default(), path, tables, false);
    let db = tables.expect("a RocksDB");
    db.iterator_cf(db.cf_handle(table).expect("a table"), IteratorMode::Start).count()
}

fn on_disk_with(change: impl FnOnce(&mut AppPolicy)) -> (Worker<Embedded>, tempfile::TempDir) {
    let policy = rules_with(change);
    let (store, dir) = on_disk(&policy);
    (Worker::new(store, policy), dir)
}

fn without_counting(app: &mut AppPolicy) {
    app.fraud.clicks_per_device_max = 0;
}

#[test]
fn what_has_expired_is_gone_from_the_disk() {
    // A campaign of app X has windows of 30 days, so its touches are kept for 37.
    let (mut worker, dir) = on_disk_with(without_counting);
    let facts = || {
        let place = |draft: Draft| draft.ip("203.0.113.9").ua("u");
        vec![
            place(click("c1", A)),
            place(impression("i2", A)),
            place(click("c3", A)).lookback(60 * DAY),
            place(impression("i4", A)).lookback(60 * DAY),
            place(activation("a", a_and(1))),
            effect("e", a_and(2)),
        ]
    };
    let mut after = |until: EventTime, facts: Vec<Draft>| {
        give(&mut worker, facts, until);
        worker.ledger().compact();
        ["touches", "activations", "effects", "events"].map(|table| entries(dir.path(), table))
    };
    let first = after(a_and(0), facts());
    // A home, and entries for the id, the place and the day of the place.
    assert_eq!(first, [4 * 4, 4, 2, 2]);
    let full = first[0];
    assert_eq!(after(a_and(7 * DAY + 15 * MINUTE + 2), vec![]), first, "the last moment");
    let [touches, activations, effects, events] = after(a_and(7 * DAY + 15 * MINUTE + 3), vec![]);
    assert_eq!((touches, activations, effects, events), (full, first[1], 1, 2));
    // Of the touches those with a lookback stay, with their marks.
    let [touches, activations, ..] = after(a_and(40 * DAY), vec![]);
    assert!(touches < full && touches >= full / 2, "{touches} of {full}");
    assert_eq!(activations, first[1]);
    assert_eq!(after(a_and(100 * DAY), vec![])[0], 0);
    assert_eq!(after(a_and(490 * DAY), vec![]), [0, first[1], 1, 2]);
    assert_eq!(after(a_and(500 * DAY), vec![]), [0, 1, 1, 2], "rows and homes are kept");
}

#[test]
fn nothing_goes_before_all_is_consumed_and_nothing_without_a_horizon() {
    let (mut worker, dir) = on_disk_with(|app| app.correction_horizon_ms = None);
    give(&mut worker, vec![click("c1", A), effect("e", A)], a_and(DAY));
    process(&mut worker, Vec::new(), None);
    give(&mut worker, vec![], a_and(5_000 * DAY));
    worker.ledger().compact();
    assert_eq!((entries(dir.path(), "touches"), entries(dir.path(), "effects")), (2, 2));
}

#[test]
fn without_a_horizon_facts_are_kept_as_long_as_rows() {
    let policy = rules_with(|app| {
        app.correction_horizon_ms = None;
        without_counting(app);
    });
    let (mut worker, dir) = retaining(100, policy);
    give(&mut worker, vec![click("c1", A)], a_and(129 * DAY));
    worker.ledger().compact();
    assert_eq!(entries(dir.path(), "touches"), 2);
    give(&mut worker, vec![], a_and(131 * DAY));
    worker.ledger().compact();
    assert_eq!(entries(dir.path(), "touches"), 0);
}

/// Keeps rows for so many days.
fn retaining(days: u64, policy: Arc<Policy>) -> (Worker<Embedded>, tempfile::TempDir) {
    let dir = tempfile::TempDir::with_prefix("adtrail-store-").expect("a temporary folder");
    let mut settings = settings(dir.path());
    settings.retention_ms = Some(days * DAY_MS);
    let store = Embedded::open(&settings, &policy).expect("the store opens");
    (Worker::new(store, policy), dir)
}

/// Else one id would have two rows.
#[test]
fn an_event_id_that_returns_is_known_as_long_as_its_row_is_kept() {
    let (mut worker, dir) = on_disk_with(without_counting);
    give(&mut worker, vec![activation("a", A), effect("e", a_and(1))], a_and(1));
    let mut check_again = |after: i64, report: &[&str]| {
        give(&mut worker, vec![], a_and(after));
        worker.ledger().compact();
        let again = vec![activation("a", a_and(after)), effect("e", a_and(after + 1))];
        let found = give(&mut worker, again, a_and(after));
        assert_eq!((found.activations.redelivered, found.effects.redelivered), (1, 1), "{after}");
        check(&worker, report);
    };
    let rows = ["a: install organic", "e: install organic of a"];
    check_again(9 * DAY, &rows);
    check_again(600 * DAY, &rows);
    assert_eq!(entries(dir.path(), "effects"), 1);
}

#[test]
fn homes_of_events_go_when_their_rows_do() {
    let (mut worker, dir) = retaining(600, rules_with(without_counting));
    let records = |dir: &Path| ["activations", "effects"].map(|table| entries(dir, table));
    give(&mut worker, vec![activation("a", A), effect("e", A)], a_and(600 * DAY));
    worker.ledger().compact();
    assert_eq!(records(dir.path()), [1, 1]);
    give(&mut worker, vec![], a_and(600 * DAY + 1));
    worker.ledger().compact();
    assert_eq!(records(dir.path()), [0, 0]);
}

#[test]
fn a_click_id_that_returns_is_a_new_touch_once_its_state_has_expired() {
    let (mut worker, dir) = on_disk_with(without_counting);
    let again = a_and(38 * DAY);
    give(&mut worker, vec![click("c1", A), activation("a", a_and(HOUR))], a_and(37 * DAY));
    let report = give(&mut worker, vec![click("c1", again)], a_and(37 * DAY));
    assert_eq!((report.touches.accepted, report.touches.redelivered), (0, 1));
    give(&mut worker, vec![], a_and(37 * DAY + 10 * MINUTE + 1));
    // It is gone whether or not a compaction came by, and for another process too.
    drop(worker);
    let policy = rules_with(without_counting);
    let mut worker = Worker::new(open(dir.path(), &policy), policy);
    let report = give(&mut worker, vec![click("c1", again)], again);
    assert_eq!((report.touches.accepted, report.touches.redelivered), (1, 0));
    let b = activation("b", a_and(38 * DAY + HOUR)).only("imei", "1").names("c1");
    give(&mut worker, vec![b], again);
    check(
        &worker,
        &[
            "a: install attributed c1 (click by oaid)",
            "b: install attributed c1 (click by click_id)",
        ],
    );
}

#[test]
fn an_effect_at_the_windows_end_carries_the_credit_of_an_install_before_the_reinstall() {
    let (mut worker, _dir) = on_disk_with(|_| {});
    let reinstall = a_and(89 * DAY);
    give(&mut worker, vec![click("c1", a_and(-HOUR)), activation("a", A)], a_and(DAY));
    give(&mut worker, vec![activation("b", reinstall)], reinstall);
    let last = a_and(489 * DAY);
    give(&mut worker, vec![], a_and(496 * DAY));
    worker.ledger().compact();
    give(&mut worker, vec![effect("e", last)], a_and(496 * DAY));
    check(
        &worker,
        &[
            "a: install attributed c1 (click by oaid)",
            "b: reinstall unattributed",
            "e: reinstall attributed c1 (click by oaid) of b",
        ],
    );
}

#[test]
fn the_walk_goes_on_from_the_oldest_kept_with_the_class_that_it_had() {
    let (mut worker, dir) = on_disk_with(|app| app.effect_window_ms = 0);
    let kept = 97 * DAY + 15 * MINUTE;
    give(&mut worker, vec![activation("a", A)], a_and(0));
    give(&mut worker, vec![activation("b", a_and(80 * DAY))], a_and(kept + 1));
    worker.ledger().compact();
    assert_eq!(entries(dir.path(), "activations"), 3, "of the first its home is left alone");
    // 91 days after the install that is gone: b was its reinstall and is no install now.
    give(&mut worker, vec![activation("c", a_and(91 * DAY))], a_and(kept + 1));
    check(&worker, &["a: install organic", "b: reinstall unattributed", "c: install organic"]);
}

/// A record with a broker timestamp of long ago passes for a fact that is not late. What its
/// decisions would have needed is gone.
#[test]
fn facts_out_of_order_do_not_take_back_what_is_decided() {
    let (mut worker, _dir) = on_disk_with(without_counting);
    let facts = vec![
        click("c2", a_and(-HOUR)),
        activation("a", A),
        activation("b", a_and(2 * MINUTE)),
        effect("e", a_and(3 * MINUTE)),
    ];
    give(&mut worker, facts, a_and(HOUR));
    let rows = [
        "a: install attributed c2 (click by oaid)",
        "b: reinstall unattributed",
        "e: reinstall attributed c2 (click by oaid) of b",
    ];
    check(&worker, &rows);
    give(&mut worker, vec![], a_and(40 * DAY));
    worker.ledger().compact();
    let record = fact_key(Family::Touch, X, "c2");
    assert_eq!(worker.ledger_mut().records(&[record]).expect("homes"), [None]);
    give(&mut worker, vec![click("c1", a_and(-2 * HOUR))], a_and(40 * DAY));
    check(&worker, &rows);
    // An older one of the device is classified, and takes nothing from those after it.
    give(&mut worker, vec![activation("0", a_and(-DAY))], a_and(40 * DAY));
    let report = give(&mut worker, vec![activation("a", a_and(-1))], a_and(40 * DAY));
    assert_eq!((report.activations.accepted, report.activations.redelivered), (0, 1));
    check(&worker, &[&["0: install organic"], &rows[..]].concat());
}

/// Reads some of the partitions, some far ahead of others, and tells after each batch how far all
/// are consumed. What `between` makes of the worker goes on.
fn read_all<L: Shelf>(
    mut worker: Worker<L>,
    partitions: &[Vec<Message>],
    turns: &[Turn],
    between: impl Fn(Worker<L>, u8) -> Worker<L>,
) -> Worker<L> {
    let mut next = [0; 6];
    let mut facts = Vec::new();
    for Turn { partition, count, is_whole, act } in turns.iter().cycle() {
        let is_open = |partition: &usize| next[*partition] < partitions[*partition].len();
        let Some(partition) = (*partition..6).chain(0..6).find(is_open) else { break };
        let (messages, next_of) = (&partitions[partition], &mut next[partition]);
        let end = messages.len().min(*next_of + count);
        facts.extend(messages[*next_of..end].iter().map(|message| message.fact.clone()));
        *next_of = end;
        let is_over = partitions.iter().zip(next).all(|(messages, next)| next == messages.len());
        if is_over || *is_whole {
            process(&mut worker, std::mem::take(&mut facts), consumed(partitions, &next));
            worker = between(worker, *act);
        }
    }
    worker
}

/// Reads so many messages of a partition.
#[derive(Debug, Clone)]
struct Turn {
    partition: usize,
    count: usize,
    /// With them the batch is whole.
    is_whole: bool,
    /// What happens then.
    act: u8,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = (0..6usize, 1..30usize, any::<bool>(), 0..12u8);
    let turn =
        turn.prop_map(|(partition, count, is_whole, act)| Turn { partition, count, is_whole, act });
    vec(turn, 30..60)
}

/// Reads one message after the other as the broker took them, each when everything before it is
/// consumed: state is gone at the first moment at which it may.
fn read_in_step<L: Shelf>(mut worker: Worker<L>, partitions: Vec<Vec<Message>>) -> Worker<L> {
    let mut messages: Vec<Message> = partitions.into_iter().flatten().collect();
    messages.sort_by_key(|message| message.broker_ms);
    for place in 0..messages.len() {
        let next = messages.get(place + 1).map(|next| next.broker_ms);
        process(&mut worker, vec![messages[place].fact.clone()], until(next));
    }
    worker
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    #[test]
    fn expiry_changes_no_decision(
        facts in traffic(),
        counts in any::<bool>(),
        lateness in lateness(),
        turns in turns(),
    ) {
        let policy = counting(counts);
        let worker = Worker::new(Memory::with_expiry(&policy), Arc::clone(&policy));
        let worker = read_all(worker, &partitions(&facts, &lateness), &turns, |same, _| same);
        prop_assert_eq!(decided(worker.ledger().shown()), decisions(&policy, &facts));
        let worker = Worker::new(Memory::with_expiry(&policy), Arc::clone(&policy));
        let worker = read_in_step(worker, partitions(&facts, &lateness));
        prop_assert_eq!(decided(worker.ledger().shown()), decisions(&policy, &facts));
    }
}

proptest! {
    #![proptest_config(Config {
        failure_persistence: None,
        cases: Config::default().cases / 32,
        ..Config::default()
    })]

    #[test]
    fn expiry_on_disk_changes_no_decision(
        facts in traffic(),
        lateness in lateness(),
        turns in turns(),
    ) {
        let policy = counting(false);
        let (store, dir) = on_disk(&policy);
        let worker = Worker::new(store, Arc::clone(&policy));
        let between = |worker: Worker<Embedded>, act| match act {
            0 => {
                drop(worker);
                Worker::new(open(dir.path(), &policy), Arc::clone(&policy))
            }
            1..4 => {
                worker.ledger().compact();
                worker
            }
            _ => worker,
        };
        let worker = read_all(worker, &partitions(&facts, &lateness), &turns, between);
        prop_assert_eq!(decided(worker.ledger().shown()), decisions(&policy, &facts));
    }
}
