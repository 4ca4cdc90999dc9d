//! Facts expire once no decision can depend on them, and no decision changes.

use std::path::Path;
use std::sync::Arc;

use adtrail_store::embedded::Embedded;
use adtrail_store::memory::Memory;
use attribution::explain::collect;
use attribution::facts::event::{EventTime, Fact, TouchKind};
use attribution::facts::match_keys::fact_key;
use attribution::ledger::{Facts as _, Progress};
use attribution::rules::policy::{AppPolicy, DAY_MS, Policy};
use attribution::worker::{Batch, BatchReport, Worker};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::Config;
use rocksdb::{DB, IteratorMode, Options};
use support::facts::{
    A, DAY, Draft, HOUR, MINUTE, a_plus, activation, click, effect, identified, impression,
};
use support::folders::temp_folder;
use support::reference::decisions;
use support::rules::{X, rules_with};
use support::run::{LedgerUnderTest, on_disk, open, settings};
use support::traffic::{
    Message, click_limit, lateness, low_watermark, partitions, sorted_decisions, traffic,
    watermark_at,
};

use crate::support;

/// Processes a batch; `until` is the low watermark after it.
fn process_until(
    worker: &mut Worker<Embedded>,
    facts: Vec<Draft>,
    until: EventTime,
) -> BatchReport {
    process(worker, identified(facts), Some(until))
}

fn process<L: LedgerUnderTest>(
    worker: &mut Worker<L>,
    facts: Vec<Fact>,
    consumed_until: Option<EventTime>,
) -> BatchReport {
    let progress = Progress { positions: Vec::new(), consumed_until };
    worker.process(Batch { facts, progress }).expect("the ledger works")
}

#[track_caller]
fn check(worker: &Worker<Embedded>, expected: &[&str]) {
    let rows: Vec<_> = worker.ledger().row_texts().into_iter().map(|row| row.short).collect();
    assert_eq!(rows, expected);
}

/// Returns the number of entries of a table, read with RocksDB directly. `touches` are the indexes of all tables of
/// touches, and `contents` their contents.
fn entries(path: &Path, table: &str) -> usize {
    let names = DB::list_cf(&Options::default(), path).expect("RocksDB lists the tables");
    let tables = DB::open_cf_for_read_only(&Options::default(), path, &names, false);
    let db = tables.expect("RocksDB opens");
    let is_of = |name: &&String| match name.strip_prefix("touches-") {
        Some(rest) if rest.ends_with("-contents") => table == "contents",
        Some(_) => table == "touches",
        None => *name == table,
    };
    let entries = |name: &String| {
        let table = db.cf_handle(name).expect("the table exists");
        db.iterator_cf(table, IteratorMode::Start).count()
    };
    names.iter().filter(is_of).map(entries).sum()
}

fn on_disk_with(change: impl FnOnce(&mut AppPolicy)) -> (Worker<Embedded>, tempfile::TempDir) {
    let policy = rules_with(change);
    let (store, dir) = on_disk(&policy);
    (Worker::new(store, policy), dir)
}

fn without_click_limit(app: &mut AppPolicy) {
    app.fraud.clicks_per_device_max = 0;
}

#[test]
fn expired_facts_are_deleted_from_disk() {
    // A campaign of app X has windows of 30 days, so the app's touches are kept for 37.
    let (mut worker, dir) = on_disk_with(without_click_limit);
    let facts = || {
        let with_ip_ua = |draft: Draft| draft.ip("203.0.113.9").ua("u");
        vec![
            with_ip_ua(click("c1", A)),
            with_ip_ua(impression("i2", A)),
            with_ip_ua(click("c3", A)).lookback(60 * DAY),
            with_ip_ua(impression("i4", A)).lookback(60 * DAY),
            with_ip_ua(activation("a", a_plus(1))),
            effect("e", a_plus(2)),
        ]
    };
    let mut after = |until: EventTime, facts: Vec<Draft>| {
        process_until(&mut worker, facts, until);
        worker.ledger().compact().unwrap();
        ["touches", "contents", "activations", "effects", "events"]
            .map(|table| entries(dir.path(), table))
    };
    let first = after(a_plus(0), facts());
    // A record, an index entry for each form of the id (1 of a touch, 4 of other events), one for IP and user
    // agent, and a marker for the day of the latter. An effect has a record and the entries for the id.
    assert_eq!(first, [4 * 4, 4, 1 + 4 + 2, 1 + 4, 2]);
    let [full, _, activations, ..] = first;
    assert_eq!(after(a_plus(7 * DAY + 15 * MINUTE + 2), vec![]), first, "a fact expired too early");
    let after_effects = after(a_plus(7 * DAY + 15 * MINUTE + 3), vec![]);
    assert_eq!(after_effects, [full, 4, activations, 1, 2]);
    // The touches with a lookback stay, with their markers. Their table stays too, so compactions remove the others.
    assert_eq!(after(a_plus(40 * DAY), vec![]), [full / 2, 2, activations, 1, 2]);
    assert_eq!(after(a_plus(100 * DAY), vec![])[..2], [0, 0]);
    assert_eq!(after(a_plus(490 * DAY), vec![]), [0, 0, activations, 1, 2]);
    assert_eq!(after(a_plus(500 * DAY), vec![]), [0, 0, 1, 1, 2], "rows or records have expired");
}

#[test]
fn nothing_expires_without_a_low_watermark_or_a_horizon() {
    let (mut worker, dir) = on_disk_with(|app| app.correction_horizon_ms = None);
    process_until(&mut worker, vec![click("c1", A), effect("e", A)], a_plus(DAY));
    process(&mut worker, Vec::new(), None);
    process_until(&mut worker, vec![], a_plus(5_000 * DAY));
    worker.ledger().compact().unwrap();
    // A record, and an entry for each form of the id.
    let expected = (1 + 1, 1 + 4);
    assert_eq!((entries(dir.path(), "touches"), entries(dir.path(), "effects")), expected);
}

#[test]
fn without_a_horizon_facts_are_kept_as_long_as_rows() {
    let policy = rules_with(|app| {
        app.correction_horizon_ms = None;
        without_click_limit(app);
    });
    let (mut worker, dir) = with_retention(100, policy);
    process_until(&mut worker, vec![click("c1", A)], a_plus(129 * DAY));
    worker.ledger().compact().unwrap();
    assert_eq!(entries(dir.path(), "touches"), 2);
    process_until(&mut worker, vec![], a_plus(131 * DAY));
    worker.ledger().compact().unwrap();
    assert_eq!(entries(dir.path(), "touches"), 0);
}

/// Returns a store that keeps rows for `days` days.
fn with_retention(days: u64, policy: Arc<Policy>) -> (Worker<Embedded>, tempfile::TempDir) {
    let dir = temp_folder();
    let mut settings = settings(dir.path());
    settings.retention_ms = Some(days * DAY_MS);
    let store = Embedded::open(&settings, &policy).expect("the store opens");
    (Worker::new(store, policy), dir)
}

/// Facts that arrive after that find the decision as it was.
#[test]
fn a_decision_keeps_the_ads_of_expired_touches() {
    let (mut worker, dir) = on_disk_with(without_click_limit);
    let touches = [
        click("c1", a_plus(-2 * HOUR)).prop("callback", "t1").prop("ad_id", "1"),
        click("c2", a_plus(-HOUR)).prop("callback", "t2").prop("ad_id", "2"),
    ];
    let facts = touches.into_iter().chain([activation("a", A)]).collect();
    process_until(&mut worker, facts, a_plus(0));
    process_until(&mut worker, vec![], a_plus(60 * DAY));
    worker.ledger().compact().unwrap();
    assert_eq!(entries(dir.path(), "touches"), 0);
    drop(worker);
    let policy = rules_with(without_click_limit);
    let mut worker = Worker::new(open(dir.path(), &policy), Arc::clone(&policy));
    let again = activation("again", a_plus(60 * DAY));
    process_until(&mut worker, vec![again, effect("e", a_plus(61 * DAY))], a_plus(61 * DAY));
    let rows: Vec<_> =
        worker.ledger().row_texts().into_iter().map(|row| (row.short, row.ads)).collect();
    let ads = |ads: &[&str]| ads.iter().map(|ad| (*ad).to_owned()).collect::<Vec<_>>();
    let credited = |text: &str| format!("{text} c2 (click by oaid)");
    assert_eq!(
        rows,
        [
            (
                credited("a: install attributed") + " + 1 (click by oaid)",
                ads(&[" {callback=t2 ad_id=2}", " {callback=t1 ad_id=1}"])
            ),
            ("again: reinstall unattributed".to_owned(), ads(&[""])),
            (
                credited("e: reinstall attributed") + " of again + 1 (click by oaid)",
                ads(&[" {ad_id=2}", ""])
            ),
        ]
    );
    let explanation = collect::explain(worker.ledger_mut(), &policy, X, "a");
    let explanation = explanation.expect("the ledger works").expect("the activation exists");
    assert_eq!((explanation.revision, explanation.considered.len()), (1, 0));
    let ad = explanation.decision.credit.touch.and_then(|touch| touch.details.ad);
    assert_eq!(ad.map(|ad| ad.callback), Some("t2".into()));
}

/// If it were not recognised, one id would have two rows.
#[test]
fn a_redelivered_event_is_recognised_as_long_as_its_row_is_kept() {
    let (mut worker, dir) = on_disk_with(without_click_limit);
    process_until(&mut worker, vec![activation("a", A), effect("e", a_plus(1))], a_plus(1));
    let mut check_redelivered = |after: i64, rows: &[&str]| {
        process_until(&mut worker, vec![], a_plus(after));
        worker.ledger().compact().unwrap();
        let again = vec![activation("a", a_plus(after)), effect("e", a_plus(after + 1))];
        let report = process_until(&mut worker, again, a_plus(after));
        let redelivered = (report.activations.redelivered, report.effects.redelivered);
        assert_eq!(redelivered, (1, 1), "{after}");
        check(&worker, rows);
    };
    let rows = ["a: install organic", "e: install organic of a"];
    check_redelivered(9 * DAY, &rows);
    check_redelivered(600 * DAY, &rows);
    assert_eq!(entries(dir.path(), "effects"), 1);
}

#[test]
fn records_of_events_expire_with_their_rows() {
    let (mut worker, dir) = with_retention(600, rules_with(without_click_limit));
    let records = |dir: &Path| ["activations", "effects"].map(|table| entries(dir, table));
    process_until(&mut worker, vec![activation("a", A), effect("e", A)], a_plus(600 * DAY));
    worker.ledger().compact().unwrap();
    assert_eq!(records(dir.path()), [1, 1]);
    process_until(&mut worker, vec![], a_plus(600 * DAY + 1));
    worker.ledger().compact().unwrap();
    assert_eq!(records(dir.path()), [0, 0]);
}

#[test]
fn a_click_redelivered_after_its_expiry_is_a_new_touch() {
    let (mut worker, dir) = on_disk_with(without_click_limit);
    let again = a_plus(38 * DAY);
    process_until(
        &mut worker,
        vec![click("c1", A), activation("a", a_plus(HOUR))],
        a_plus(37 * DAY),
    );
    let report = process_until(&mut worker, vec![click("c1", again)], a_plus(37 * DAY));
    assert_eq!((report.touches.accepted, report.touches.redelivered), (0, 1));
    process_until(&mut worker, vec![], a_plus(37 * DAY + 10 * MINUTE + 1));
    // The touch has expired even without a compaction, also for a new process.
    drop(worker);
    let policy = rules_with(without_click_limit);
    let mut worker = Worker::new(open(dir.path(), &policy), policy);
    let report = process_until(&mut worker, vec![click("c1", again)], again);
    assert_eq!((report.touches.accepted, report.touches.redelivered), (1, 0));
    let b = activation("b", a_plus(38 * DAY + HOUR)).only("imei", "1").click_id("c1");
    process_until(&mut worker, vec![b], again);
    check(
        &worker,
        &[
            "a: install attributed c1 (click by oaid)",
            "b: install attributed c1 (click by click_id)",
        ],
    );
}

#[test]
fn an_effect_at_the_end_of_its_window_inherits_the_credit_of_the_original_install() {
    let (mut worker, _dir) = on_disk_with(|_| {});
    let reinstall = a_plus(89 * DAY);
    process_until(&mut worker, vec![click("c1", a_plus(-HOUR)), activation("a", A)], a_plus(DAY));
    process_until(&mut worker, vec![activation("b", reinstall)], reinstall);
    let last = a_plus(489 * DAY);
    process_until(&mut worker, vec![], a_plus(496 * DAY));
    worker.ledger().compact().unwrap();
    process_until(&mut worker, vec![effect("e", last)], a_plus(496 * DAY));
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
fn the_install_chain_continues_from_the_oldest_kept_activation() {
    let (mut worker, dir) = on_disk_with(|app| app.effect_window_ms = 0);
    let kept = 97 * DAY + 15 * MINUTE;
    process_until(&mut worker, vec![activation("a", A)], a_plus(0));
    process_until(&mut worker, vec![activation("b", a_plus(80 * DAY))], a_plus(kept + 1));
    worker.ledger().compact().unwrap();
    assert_eq!(
        entries(dir.path(), "activations"),
        6,
        "of the first activation, more than the record is left"
    );
    // 91 days after the expired install: b stays its reinstall and does not become an install.
    process_until(&mut worker, vec![activation("c", a_plus(91 * DAY))], a_plus(kept + 1));
    check(&worker, &["a: install organic", "b: reinstall unattributed", "c: install organic"]);
}

/// A record with an old broker timestamp does not count as late, but the state that its decisions need has expired.
#[test]
fn facts_out_of_order_do_not_change_final_decisions() {
    let (mut worker, _dir) = on_disk_with(without_click_limit);
    let facts = vec![
        click("c2", a_plus(-HOUR)),
        activation("a", A),
        activation("b", a_plus(2 * MINUTE)),
        effect("e", a_plus(3 * MINUTE)),
    ];
    process_until(&mut worker, facts, a_plus(HOUR));
    let rows = [
        "a: install attributed c2 (click by oaid)",
        "b: reinstall unattributed",
        "e: reinstall attributed c2 (click by oaid) of b",
    ];
    check(&worker, &rows);
    process_until(&mut worker, vec![], a_plus(40 * DAY));
    worker.ledger().compact().unwrap();
    let record = fact_key(TouchKind::Click, X, "c2");
    assert_eq!(worker.ledger_mut().records(&[record]).expect("the lookup succeeds"), [None]);
    process_until(&mut worker, vec![click("c1", a_plus(-2 * HOUR))], a_plus(40 * DAY));
    check(&worker, &rows);
    // An older activation of the device is classified and does not change the later ones.
    process_until(&mut worker, vec![activation("a0", a_plus(-DAY))], a_plus(40 * DAY));
    let report = process_until(&mut worker, vec![activation("a", a_plus(-1))], a_plus(40 * DAY));
    assert_eq!((report.activations.accepted, report.activations.redelivered), (0, 1));
    check(&worker, &[&["a0: install organic"], &rows[..]].concat());
}

/// Reads the partitions in turns, some far ahead of others, with the low watermark after each batch.
/// `after_batch` may replace the worker.
fn read_all<L: LedgerUnderTest>(
    mut worker: Worker<L>,
    partitions: &[Vec<Message>],
    turns: &[Turn],
    after_batch: impl Fn(Worker<L>, u8) -> Worker<L>,
) -> Worker<L> {
    let mut next = [0; 6];
    let mut facts = Vec::new();
    for Turn { partition, count, ends_batch, action } in turns.iter().cycle() {
        let is_open = |partition: &usize| next[*partition] < partitions[*partition].len();
        let Some(partition) = (*partition..6).chain(0..6).find(is_open) else { break };
        let (messages, next_of) = (&partitions[partition], &mut next[partition]);
        let end = messages.len().min(*next_of + count);
        facts.extend(messages[*next_of..end].iter().map(|message| message.fact.clone()));
        *next_of = end;
        let is_last = partitions.iter().zip(next).all(|(messages, next)| next == messages.len());
        if is_last || *ends_batch {
            process(&mut worker, std::mem::take(&mut facts), low_watermark(partitions, &next));
            worker = after_batch(worker, *action);
        }
    }
    worker
}

/// Reads `count` messages of a partition.
#[derive(Debug, Clone)]
struct Turn {
    partition: usize,
    count: usize,
    ends_batch: bool,
    /// Selects what `after_batch` does.
    action: u8,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = (0..6usize, 1..30usize, any::<bool>(), 0..12u8);
    let turn = turn.prop_map(|(partition, count, ends_batch, action)| Turn {
        partition,
        count,
        ends_batch,
        action,
    });
    vec(turn, 30..60)
}

/// Reads the messages one by one in broker time order, with the greatest possible low watermark, so that state expires
/// as early as it may.
fn read_in_broker_order<L: LedgerUnderTest>(
    mut worker: Worker<L>,
    partitions: Vec<Vec<Message>>,
) -> Worker<L> {
    let mut messages: Vec<Message> = partitions.into_iter().flatten().collect();
    messages.sort_by_key(|message| message.broker_ms);
    for index in 0..messages.len() {
        let next = messages.get(index + 1).map(|next| next.broker_ms);
        process(&mut worker, vec![messages[index].fact.clone()], watermark_at(next));
    }
    worker
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    #[test]
    fn expiry_changes_no_decision(
        facts in traffic(),
        is_limited in any::<bool>(),
        lateness in lateness(),
        turns in turns(),
    ) {
        let policy = click_limit(is_limited);
        let worker = Worker::new(Memory::with_expiry(&policy), Arc::clone(&policy));
        let worker = read_all(worker, &partitions(&facts, &lateness), &turns, |worker, _| worker);
        prop_assert_eq!(sorted_decisions(worker.ledger().row_texts()), decisions(&policy, &facts));
        let worker = Worker::new(Memory::with_expiry(&policy), Arc::clone(&policy));
        let worker = read_in_broker_order(worker, partitions(&facts, &lateness));
        prop_assert_eq!(sorted_decisions(worker.ledger().row_texts()), decisions(&policy, &facts));
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
        let policy = click_limit(false);
        let (store, dir) = on_disk(&policy);
        let worker = Worker::new(store, Arc::clone(&policy));
        let after_batch = |worker: Worker<Embedded>, action| match action {
            0 => {
                drop(worker);
                Worker::new(open(dir.path(), &policy), Arc::clone(&policy))
            }
            1..4 => {
                worker.ledger().compact().unwrap();
                worker
            }
            _ => worker,
        };
        let worker = read_all(worker, &partitions(&facts, &lateness), &turns, after_batch);
        prop_assert_eq!(sorted_decisions(worker.ledger().row_texts()), decisions(&policy, &facts));
    }
}
