//! Expired state stays expired: longer settings do not revive it, with or without compactions.

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
use support::facts::{DAY, Draft, HOUR, MINUTE, a_plus, activation, click, effect, identified};
use support::folders::temp_folder;
use support::row_text::RowText;
use support::rules::{WIDE, X, rules_with};
use support::run::{read, settings};
use support::traffic::{self, Message, watermark_at};
use tempfile::TempDir;

use crate::support;

/// Returns the start of a day. Day 0 is 1,000 days before A, so that all times are in the past.
fn day(day: i64) -> EventTime {
    at(day * DAY)
}

fn at(ms: i64) -> EventTime {
    a_plus(ms - 1_000 * DAY)
}

/// Keeps touches for 37 days: click windows of up to 30 days, and a correction horizon of 7 days.
fn keep_37_days(app: &mut AppPolicy) {
    app.fraud.clicks_per_device_max = 0;
    app.effect_window_ms = 0;
}

fn without_horizon(app: &mut AppPolicy) {
    keep_37_days(app);
    app.correction_horizon_ms = None;
}

fn with_horizon(days: u64) -> impl Fn(&mut AppPolicy) {
    move |app| {
        keep_37_days(app);
        app.correction_horizon_ms = Some(days * DAY_MS);
    }
}

/// Returns a click with a window of 30 days.
fn wide_click(id: &str, time: EventTime) -> Draft {
    click(id, time).campaign(WIDE)
}

/// A store whose settings change; compacted after each batch, or never.
struct Fixture {
    dir: TempDir,
    settings: Store,
    policy: Arc<Policy>,
    compacts: bool,
}

impl Fixture {
    fn new(compacts: bool, retention_days: Option<u64>) -> Self {
        let dir = temp_folder();
        let mut settings = settings(&dir.path().join("store"));
        settings.retention_ms = retention_days.map(|days| days * DAY_MS);
        Self { dir, settings, policy: rules_with(keep_37_days), compacts }
    }

    fn set(&mut self, change: impl Fn(&mut AppPolicy)) {
        self.policy = rules_with(change);
    }

    fn open(&self) -> Embedded {
        Embedded::open(&self.settings, &self.policy).expect("the store opens")
    }

    /// Opens the store, processes a batch with the low watermark `until`, and closes it.
    fn process_until(&self, facts: Vec<Draft>, until: EventTime) {
        self.process(identified(facts), Some(until));
    }

    fn process(&self, facts: Vec<Fact>, consumed_until: Option<EventTime>) {
        let mut worker = Worker::new(self.open(), Arc::clone(&self.policy));
        let progress = Progress { positions: Vec::new(), consumed_until };
        worker.process(Batch { facts, progress }).expect("the ledger works");
        self.compact(worker.ledger());
    }

    /// Opens and closes the store.
    fn restart(&self) {
        self.compact(&self.open());
    }

    fn compact(&self, store: &Embedded) {
        if self.compacts {
            store.compact().unwrap();
        }
    }

    fn retained_floors(&self) -> Vec<RetainedFloor> {
        self.open().retained_floors(&self.policy)
    }

    #[track_caller]
    fn check_whole(&self) {
        let options = Options { examples_max: 10, have_settings_changed: false };
        let report = self.verify(&options);
        assert!(report.is_whole(), "{:?}", report.examples);
    }

    fn verify(&self, options: &Options) -> Report {
        verify(&self.settings, &self.policy, options, &mut |_| ())
            .expect("the store can be verified")
    }

    fn row_texts(&self) -> Vec<RowText> {
        read(&open_for_reading(&self.settings).expect("the store opens"))
    }

    fn rows(&self) -> Vec<String> {
        self.row_texts().into_iter().map(|row| row.short).collect()
    }

    fn whole_rows(&self) -> Vec<String> {
        self.row_texts().into_iter().map(|row| row.whole).collect()
    }
}

/// Checks the rows after `scenario`, with and without compactions.
#[track_caller]
fn check(retention_days: Option<u64>, scenario: impl Fn(&mut Fixture), expected: &[&str]) {
    for compacts in [false, true] {
        let mut fixture = Fixture::new(compacts, retention_days);
        scenario(&mut fixture);
        assert_eq!(fixture.rows(), expected, "compacts: {compacts}");
        fixture.check_whole();
    }
}

/// Creates state that has expired under the first settings: a click, and an effect of which only the id remains.
fn expire_state(fixture: &Fixture) {
    fixture.process_until(vec![wide_click("c", day(0)), effect("e", day(0))], day(0));
    fixture.process_until(Vec::new(), day(38));
    fixture.check_whole();
}

/// The rows of the effect, and of an activation that a revived click would be credited with.
const NOT_REVIVED: [&str; 2] = ["e: orphan", "a: install organic"];

#[track_caller]
fn check_lengthened(change: impl Fn(&mut AppPolicy)) {
    let scenario = |fixture: &mut Fixture| {
        expire_state(fixture);
        fixture.set(&change);
        fixture.check_whole();
        fixture.restart();
        fixture.check_whole();
        fixture.process_until(vec![activation("a", day(29))], day(38));
    };
    check(None, scenario, &NOT_REVIVED);
}

#[test]
fn longer_settings_of_an_open_store_do_not_revive_expired_state() {
    for compacts in [false, true] {
        let mut fixture = Fixture::new(compacts, None);
        let mut worker = Worker::new(fixture.open(), Arc::clone(&fixture.policy));
        let process = |worker: &mut Worker<Embedded>, facts: Vec<Draft>, until| {
            let (facts, consumed_until) = (identified(facts), Some(until));
            let progress = Progress { positions: Vec::new(), consumed_until };
            worker.process(Batch { facts, progress }).unwrap();
        };
        process(&mut worker, vec![wide_click("c", day(0)), effect("e", day(0))], day(0));
        // The click has expired, but not all of its day, so that it is still stored.
        let until = at(37 * DAY + 12 * HOUR);
        process(&mut worker, Vec::new(), until);
        fixture.compact(worker.ledger());
        fixture.set(with_horizon(30));
        worker.ledger_mut().set_apps(&fixture.settings, &fixture.policy).unwrap();
        worker.set_policy(Arc::clone(&fixture.policy), Arc::default());
        process(&mut worker, vec![activation("a", day(29))], until);
        fixture.compact(worker.ledger());
        drop(worker);
        assert_eq!(fixture.rows(), NOT_REVIVED, "compacts: {compacts}");
        fixture.check_whole();
    }
}

#[test]
fn longer_settings_do_not_revive_expired_state() {
    check_lengthened(with_horizon(30));
    check_lengthened(without_horizon);
    check_lengthened(|app| {
        keep_37_days(app);
        app.windows.click_ms = 60 * DAY_MS;
        app.effect_window_ms = 60 * DAY_MS;
    });
    check_lengthened(|app| {
        keep_37_days(app);
        app.fraud.clicks_per_device_max = 50;
    });
}

#[test]
fn without_a_horizon_a_longer_retention_does_not_revive_expired_state() {
    let scenario = |fixture: &mut Fixture| {
        fixture.set(without_horizon);
        fixture.process_until(
            vec![wide_click("c", day(0)), activation("b", day(0)).only("imei", "1")],
            day(0),
        );
        fixture.process_until(Vec::new(), day(131));
        fixture.check_whole();
        fixture.settings.retention_ms = Some(400 * DAY_MS);
        fixture.check_whole();
        fixture.process_until(vec![activation("a", day(29))], day(131));
        assert_eq!(fixture.retained_floors()[0].settings, ["store.retention"]);
    };
    for compacts in [false, true] {
        let mut fixture = Fixture::new(compacts, Some(100));
        scenario(&mut fixture);
        fixture.check_whole();
        let rows = fixture.rows();
        assert!(rows.contains(&"a: install organic".to_owned()), "{compacts}: {rows:?}");
        // Rows past their retention reappear if they were not compacted.
        let shown = rows.contains(&"b: install organic".to_owned());
        assert_eq!((shown, rows.len()), (!compacts, 2 - usize::from(compacts)));
    }
}

/// A shorter horizon is written to disk before anything can expire by it, even if it was set for one start only.
#[test]
fn a_horizon_that_was_shorter_for_one_start_has_a_lasting_effect() {
    let scenario = |fixture: &mut Fixture| {
        fixture.process_until(vec![wide_click("c", day(0)), effect("e", day(0))], day(35));
        fixture.set(with_horizon(1));
        fixture.restart();
        fixture.set(keep_37_days);
        fixture.check_whole();
        fixture.process_until(vec![activation("a", day(29))], day(35));
        let floors = fixture.retained_floors();
        assert_eq!(floors[0].settings, ["correction_horizon"]);
        assert_eq!(floors[0].ends, Some(day(41)));
    };
    check(None, scenario, &NOT_REVIVED);
}

/// The credited click has expired, and an earlier activation would turn `a` into a reinstall.
#[test]
fn decisions_stay_after_their_state_has_expired() {
    let scenario = |fixture: &mut Fixture| {
        let c = wide_click("c", at(-HOUR));
        fixture.process_until(vec![c, activation("a", day(0)), effect("e", day(0))], day(0));
        fixture.process_until(Vec::new(), day(38));
        fixture.set(without_horizon);
        let before = activation("a0", day(-1));
        let again = activation("a", at(-MINUTE));
        fixture.process_until(vec![before, again, click("c1", at(-2 * HOUR))], day(38));
    };
    let rows = [
        "a0: install organic",
        "e: install attributed c (click by oaid) of a",
        "a: install attributed c (click by oaid)",
    ];
    check(None, scenario, &rows);
}

#[test]
fn state_that_has_not_expired_is_kept_for_longer() {
    let scenario = |fixture: &mut Fixture| {
        fixture.process_until(vec![wide_click("c", day(0))], day(36));
        fixture.set(with_horizon(30));
        fixture.process_until(Vec::new(), day(58));
        fixture.process_until(vec![activation("a", day(29))], day(58));
    };
    check(None, scenario, &["a: install attributed c (click by oaid)"]);
}

#[test]
fn no_floor_remains_once_the_settings_have_passed_it() {
    for compacts in [false, true] {
        let mut fixture = Fixture::new(compacts, None);
        expire_state(&fixture);
        assert_eq!(fixture.retained_floors(), []);
        fixture.set(with_horizon(10));
        let [floor] = &fixture.retained_floors()[..] else { panic!("no floor is retained") };
        assert_eq!((floor.pid, &floor.settings[..]), (X, &["correction_horizon"][..]));
        let ten_minutes = 10 * MINUTE;
        assert_eq!(floor.before, at(31 * DAY - ten_minutes));
        assert_eq!(floor.ends, Some(day(41)));
        fixture.process_until(Vec::new(), at(41 * DAY - 1));
        assert_eq!(fixture.retained_floors().len(), 1);
        fixture.process_until(Vec::new(), day(41));
        assert_eq!(fixture.retained_floors(), []);
        // Unchanged settings do not create another floor.
        fixture.process_until(vec![wide_click("c2", day(2))], day(41));
        fixture.process_until(vec![activation("a", day(31))], day(41));
        assert_eq!(fixture.rows(), ["e: orphan", "a: install attributed c2 (click by oaid)"]);
        fixture.check_whole();
    }
}

#[test]
fn an_explanation_shows_the_expiry_floor() {
    for compacts in [false, true] {
        let mut fixture = Fixture::new(compacts, None);
        fixture.process_until(vec![wide_click("c", at(-HOUR)), activation("a", day(0))], day(38));
        fixture.set(without_horizon);
        for is_restarted in [false, true] {
            if is_restarted {
                fixture.restart();
            }
            let mut reader = open_for_reading(&fixture.settings).expect("the store opens");
            let explanation = collect::explain(&mut reader, &fixture.policy, X, "a");
            let explanation =
                explanation.expect("the store can be read").expect("the activation exists");
            let expired_before = explanation.expired_before;
            assert_eq!(expired_before, Some(at(DAY - 10 * MINUTE)), "{compacts} {is_restarted}");
        }
    }
}

#[test]
fn a_copied_store_does_not_revive_expired_state() {
    for compacts in [false, true] {
        let mut fixture = Fixture::new(compacts, None);
        expire_state(&fixture);
        fixture.set(without_horizon);
        let copy = settings(&fixture.dir.path().join("copy"));
        {
            let source = Source::open(&fixture.settings).expect("the source opens");
            let mut target = Target::open(&copy).expect("the target folder is empty");
            target.fill(&source, |_| ()).expect("the copy succeeds");
            target.finish(&[], &fixture.policy).expect("the copy is completed");
        }
        fixture.settings = copy;
        fixture.process_until(vec![activation("a", day(29))], day(38));
        assert_eq!(fixture.rows(), NOT_REVIVED);
        fixture.check_whole();
        assert!(fixture.open().consumed_until().is_some());
        assert_eq!(fixture.retained_floors().len(), 1);
    }
}

/// Returns a policy with windows and horizons that depend on a number.
fn policy_of(number: u8) -> Arc<Policy> {
    let times = |number: u8| [1, 3, 12][usize::from(number % 3)] * HOUR_MS;
    traffic::short_windows(|app| {
        app.correction_horizon_ms = (!number.is_multiple_of(5)).then(|| times(number));
        app.windows.click_ms = times(number / 3);
        app.effect_window_ms = times(number / 9);
        app.reattribution_window_ms = times(number / 27);
        app.fraud.clicks_per_device_max = u32::from(number / 81);
    })
}

/// Processes the messages in order; each entry of `settings` applies to a number of messages.
fn process_under(fixture: &mut Fixture, messages: &[Message], settings: &[(usize, u8)]) {
    let mut rest = messages;
    for (count, number) in settings.iter().cycle() {
        if rest.is_empty() {
            return;
        }
        let (batch, after) = rest.split_at(rest.len().min(*count));
        rest = after;
        fixture.policy = policy_of(*number);
        let facts = batch.iter().map(|message| message.fact.clone()).collect();
        let next = rest.first().or(batch.last()).map(|message| message.broker_ms);
        fixture.process(facts, watermark_at(next));
    }
}

proptest! {
    #![proptest_config(Config {
        failure_persistence: None,
        cases: Config::default().cases / testbed::length(64, 16),
        ..Config::default()
    })]

    #[test]
    fn compactions_never_change_rows(
        facts in traffic::traffic(),
        lateness in traffic::lateness(),
        settings in vec((1..40usize, any::<u8>()), 3..8),
    ) {
        let mut messages: Vec<Message> =
            traffic::partitions(&facts, &lateness).into_iter().flatten().collect();
        messages.sort_by_key(|message| message.broker_ms);
        let rows = [false, true].map(|compacts| {
            let mut fixture = Fixture::new(compacts, None);
            process_under(&mut fixture, &messages, &settings);
            let options = Options { examples_max: 10, have_settings_changed: true };
            let report = fixture.verify(&options);
            assert!(report.is_whole(), "{compacts}: {:?}", report.examples);
            fixture.whole_rows()
        });
        prop_assert_eq!(&rows[0], &rows[1]);
    }
}
