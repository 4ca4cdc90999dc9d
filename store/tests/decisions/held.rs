//! What has expired stays expired: settings that keep state for longer bring nothing back, whatever
//! compactions have left.

use std::sync::Arc;

use adtrail_store::RetainedFloor;
use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::maintenance::copy_store::{Source, Target};
use adtrail_store::maintenance::verify::{Options, Report, verify};
use attribution::explain::collect;
use attribution::facts::event::{EventTime, Fact};
use attribution::ledger::{Facts as _, Progress};
use attribution::rules::policy::{AppPolicy, DAY_MS, HOUR_MS, Policy};
use attribution::worker::{Batch, Worker};
use config::Store;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::Config;
use support::facts::{DAY, Draft, HOUR, MINUTE, a_and, activation, click, effect, identified};
use support::rules::{WIDE, X, rules_with};
use support::run::{read, settings};
use support::show::Shown;
use support::traffic::{self, Message, until};
use tempfile::TempDir;

use crate::support;

/// So long ago that all is over by now.
fn day(day: i64) -> EventTime {
    at(day * DAY)
}

fn at(ms: i64) -> EventTime {
    a_and(ms - 1_000 * DAY)
}

/// A horizon of 7 days, and clicks with windows of 7 and 30: touches are kept for 37.
fn short(app: &mut AppPolicy) {
    app.fraud.clicks_per_device_max = 0;
    app.effect_window_ms = 0;
}

fn off(app: &mut AppPolicy) {
    short(app);
    app.correction_horizon_ms = None;
}

fn horizon(days: u64) -> impl Fn(&mut AppPolicy) {
    move |app| {
        short(app);
        app.correction_horizon_ms = Some(days * DAY_MS);
    }
}

/// A click whose window is 30 days.
fn wide(id: &str, time: EventTime) -> Draft {
    click(id, time).campaign(WIDE)
}

/// A store whose settings change, and that is compacted after each batch, or never.
struct Bed {
    dir: TempDir,
    settings: Store,
    policy: Arc<Policy>,
    compacts: bool,
}

impl Bed {
    fn new(compacts: bool, retention_days: Option<u64>) -> Self {
        let dir = TempDir::with_prefix("adtrail-store-").expect("a temporary folder");
        let mut settings = settings(&dir.path().join("store"));
        settings.retention_ms = retention_days.map(|days| days * DAY_MS);
        Self { dir, settings, policy: rules_with(short), compacts }
    }

    fn set(&mut self, change: impl Fn(&mut AppPolicy)) {
        self.policy = rules_with(change);
    }

    fn open(&self) -> Embedded {
        Embedded::open(&self.settings, &self.policy).expect("the store opens")
    }

    /// Starts, takes a batch with which all is consumed up to a time, and stops.
    fn give(&self, facts: Vec<Draft>, until: EventTime) {
        self.process(identified(facts), Some(until));
    }

    fn process(&self, facts: Vec<Fact>, consumed_until: Option<EventTime>) {
        let mut worker = Worker::new(self.open(), Arc::clone(&self.policy));
        let progress = Progress { positions: Vec::new(), consumed_until };
        worker.process(Batch { facts, progress }).expect("the ledger works");
        self.settle(worker.ledger());
    }

    /// Starts and stops.
    fn start(&self) {
        self.settle(&self.open());
    }

    fn settle(&self, store: &Embedded) {
        if self.compacts {
            store.compact();
        }
    }

    fn held_back(&self) -> Vec<RetainedFloor> {
        self.open().held_back(&self.policy)
    }

    #[track_caller]
    fn check_whole(&self) {
        let options = Options { examples_max: 10, have_settings_changed: false };
        let report = self.verify(&options);
        assert!(report.is_whole(), "{:?}", report.examples);
    }

    fn verify(&self, options: &Options) -> Report {
        verify(&self.settings, &self.policy, options, &mut |_| ()).expect("a store to look at")
    }

    fn shown(&self) -> Vec<Shown> {
        read(&open_for_reading(&self.settings).expect("the store opens"))
    }

    fn rows(&self) -> Vec<String> {
        self.shown().into_iter().map(|row| row.short).collect()
    }

    fn whole_rows(&self) -> Vec<String> {
        self.shown().into_iter().map(|row| row.whole).collect()
    }
}

/// The rows after all that was done, with and without compactions.
#[track_caller]
fn check(retention_days: Option<u64>, act: impl Fn(&mut Bed), expected: &[&str]) {
    for compacts in [false, true] {
        let mut bed = Bed::new(compacts, retention_days);
        act(&mut bed);
        assert_eq!(bed.rows(), expected, "compacts: {compacts}");
        bed.check_whole();
    }
}

/// What all went by before the settings change: a click that has just expired with them, and an effect
/// of which only the id is known.
fn give_what_expires(bed: &Bed) {
    bed.give(vec![wide("c", day(0)), effect("e", day(0))], day(0));
    bed.give(Vec::new(), day(38));
    bed.check_whole();
}

/// The effect's, and that of an activation for which the click would have been in its window.
const NOT_BROUGHT_BACK: [&str; 2] = ["e: orphan", "a: install organic"];

#[track_caller]
fn check_lengthened(change: impl Fn(&mut AppPolicy)) {
    let act = |bed: &mut Bed| {
        give_what_expires(bed);
        bed.set(&change);
        bed.check_whole();
        bed.start();
        bed.check_whole();
        bed.give(vec![activation("a", day(29))], day(38));
    };
    check(None, act, &NOT_BROUGHT_BACK);
}

#[test]
fn settings_that_keep_state_for_longer_bring_nothing_back() {
    check_lengthened(horizon(30));
    check_lengthened(off);
    check_lengthened(|app| {
        short(app);
        app.windows.click_ms = 60 * DAY_MS;
        app.effect_window_ms = 60 * DAY_MS;
    });
    check_lengthened(|app| {
        short(app);
        app.fraud.clicks_per_device_max = 50;
    });
}

#[test]
fn a_longer_retention_brings_nothing_back_where_the_horizon_is_off() {
    let act = |bed: &mut Bed| {
        bed.set(off);
        bed.give(vec![wide("c", day(0)), activation("b", day(0)).only("imei", "1")], day(0));
        bed.give(Vec::new(), day(131));
        bed.check_whole();
        bed.settings.retention_ms = Some(400 * DAY_MS);
        bed.check_whole();
        bed.give(vec![activation("a", day(29))], day(131));
        assert_eq!(bed.held_back()[0].settings, ["store.retention"]);
    };
    for compacts in [false, true] {
        let mut bed = Bed::new(compacts, Some(100));
        act(&mut bed);
        bed.check_whole();
        let rows = bed.rows();
        assert!(rows.contains(&"a: install organic".to_owned()), "{compacts}: {rows:?}");
        // Of rows that had gone those are shown again that are there.
        let shown = rows.contains(&"b: install organic".to_owned());
        assert_eq!((shown, rows.len()), (!compacts, 2 - usize::from(compacts)));
    }
}

/// For less than a moment: it is on the disk before anything can go by it.
#[test]
fn a_horizon_that_was_shorter_for_one_start_is_not_forgotten() {
    let act = |bed: &mut Bed| {
        bed.give(vec![wide("c", day(0)), effect("e", day(0))], day(35));
        bed.set(horizon(1));
        bed.start();
        bed.set(short);
        bed.check_whole();
        bed.give(vec![activation("a", day(29))], day(35));
        let held = bed.held_back();
        assert_eq!(held[0].settings, ["correction_horizon"]);
        assert_eq!(held[0].ends, Some(day(41)));
    };
    check(None, act, &NOT_BROUGHT_BACK);
}

/// What it was decided from has expired, and another one before it would make a reinstall of it.
#[test]
fn what_is_decided_stands_where_its_state_has_expired() {
    let act = |bed: &mut Bed| {
        let c = wide("c", at(-HOUR));
        bed.give(vec![c, activation("a", day(0)), effect("e", day(0))], day(0));
        bed.give(Vec::new(), day(38));
        bed.set(off);
        let before = activation("0", day(-1));
        let again = activation("a", at(-MINUTE));
        bed.give(vec![before, again, click("c1", at(-2 * HOUR))], day(38));
    };
    let rows = [
        "0: install organic",
        "e: install attributed c (click by oaid) of a",
        "a: install attributed c (click by oaid)",
    ];
    check(None, act, &rows);
}

#[test]
fn what_has_not_expired_is_kept_for_longer() {
    let act = |bed: &mut Bed| {
        bed.give(vec![wide("c", day(0))], day(36));
        bed.set(horizon(30));
        bed.give(Vec::new(), day(58));
        bed.give(vec![activation("a", day(29))], day(58));
    };
    check(None, act, &["a: install attributed c (click by oaid)"]);
}

#[test]
fn nothing_is_held_once_the_settings_have_come_as_far() {
    for compacts in [false, true] {
        let mut bed = Bed::new(compacts, None);
        give_what_expires(&bed);
        assert_eq!(bed.held_back(), []);
        bed.set(horizon(10));
        let [held] = &bed.held_back()[..] else { panic!("nothing is held") };
        assert_eq!((held.pid, &held.settings[..]), (X, &["correction_horizon"][..]));
        let ten_minutes = 10 * MINUTE;
        assert_eq!(held.before, at(31 * DAY - ten_minutes));
        assert_eq!(held.ends, Some(day(41)));
        bed.give(Vec::new(), at(41 * DAY - 1));
        assert_eq!(bed.held_back().len(), 1);
        bed.give(Vec::new(), day(41));
        assert_eq!(bed.held_back(), []);
        // And is not held again by what is the same.
        bed.give(vec![wide("c2", day(2))], day(41));
        bed.give(vec![activation("a", day(31))], day(41));
        assert_eq!(bed.rows(), ["e: orphan", "a: install attributed c2 (click by oaid)"]);
        bed.check_whole();
    }
}

#[test]
fn an_explanation_tells_of_it() {
    for compacts in [false, true] {
        let mut bed = Bed::new(compacts, None);
        bed.give(vec![wide("c", at(-HOUR)), activation("a", day(0))], day(38));
        bed.set(off);
        for is_started in [false, true] {
            if is_started {
                bed.start();
            }
            let mut reader = open_for_reading(&bed.settings).expect("the store opens");
            let told = collect::explain(&mut reader, &bed.policy, X, "a").expect("the store reads");
            let expired_before = told.expect("an activation").expired_before;
            assert_eq!(expired_before, Some(at(DAY - 10 * MINUTE)), "{compacts} {is_started}");
        }
    }
}

#[test]
fn a_store_that_is_moved_brings_nothing_back() {
    for compacts in [false, true] {
        let mut bed = Bed::new(compacts, None);
        give_what_expires(&bed);
        bed.set(off);
        let there = settings(&bed.dir.path().join("there"));
        {
            let source = Source::open(&bed.settings).expect("a store");
            let mut target = Target::open(&there).expect("an empty place");
            target.fill(&source, |_| ()).expect("it moves");
            target.finish(&[], &bed.policy).expect("a store");
        }
        bed.settings = there;
        bed.give(vec![activation("a", day(29))], day(38));
        assert_eq!(bed.rows(), NOT_BROUGHT_BACK);
        bed.check_whole();
        assert!(bed.open().consumed_until().is_some());
        assert_eq!(bed.held_back().len(), 1);
    }
}

/// Settings by which state is kept for shorter and longer, in everything.
fn drawn(number: u8) -> Arc<Policy> {
    let times = |number: u8| [1, 3, 12][usize::from(number % 3)] * HOUR_MS;
    traffic::short(|app| {
        app.correction_horizon_ms = (!number.is_multiple_of(5)).then(|| times(number));
        app.windows.click_ms = times(number / 3);
        app.effect_window_ms = times(number / 9);
        app.reattribution_window_ms = times(number / 27);
        app.fraud.clicks_per_device_max = u32::from(number / 81);
    })
}

/// Reads the traffic as the broker took it, so many messages by each of the settings.
fn read_under(bed: &mut Bed, messages: &[Message], settings: &[(usize, u8)]) {
    let mut rest = messages;
    for (count, number) in settings.iter().cycle() {
        if rest.is_empty() {
            return;
        }
        let (some, after) = rest.split_at(rest.len().min(*count));
        rest = after;
        bed.policy = drawn(*number);
        let facts = some.iter().map(|message| message.fact.clone()).collect();
        let next = rest.first().or(some.last()).map(|message| message.broker_ms);
        bed.process(facts, until(next));
    }
}

proptest! {
    #![proptest_config(Config {
        failure_persistence: None,
        cases: Config::default().cases / testbed::length(64, 16),
        ..Config::default()
    })]

    #[test]
    fn compactions_change_nothing_whatever_the_settings_were(
        facts in traffic::traffic(),
        lateness in traffic::lateness(),
        settings in vec((1..40usize, any::<u8>()), 3..8),
    ) {
        let mut messages: Vec<Message> =
            traffic::partitions(&facts, &lateness).into_iter().flatten().collect();
        messages.sort_by_key(|message| message.broker_ms);
        let rows = [false, true].map(|compacts| {
            let mut bed = Bed::new(compacts, None);
            read_under(&mut bed, &messages, &settings);
            let options = Options { examples_max: 10, have_settings_changed: true };
            let report = bed.verify(&options);
            assert!(report.is_whole(), "{compacts}: {:?}", report.examples);
            bed.whole_rows()
        });
        prop_assert_eq!(&rows[0], &rows[1]);
    }
}
