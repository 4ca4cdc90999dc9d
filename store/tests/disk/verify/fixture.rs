//! A store with some thousand facts, created once per process and copied for every damage.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::layout::{hourly_counts, outbox, summary_counts};
use adtrail_store::maintenance::verify::{Check, Options, Problem, Report, repair, verify};
use attribution::facts::event::EventTime;
use attribution::ledger::{Ledger, Progress};
use attribution::outbox::interest::Interests;
use attribution::rules::policy::Policy;
use attribution::worker::{Batch, Worker};
use config::{AppStore, Store};
use rocksdb::{ColumnFamily, ColumnFamilyDescriptor, DB, IteratorMode};
use tempfile::TempDir;

use super::support::facts::{
    DAY, Draft, HOUR, MINUTE, a_plus, activation, click, effect, identified, impression,
};
use super::support::folders::{copied, temp_folder};
use super::support::outbox::interest;
use super::support::rules::{X, Y, rules};
use super::support::run::{position, read, settings};

pub const DAYS: i64 = 30;

static TEMPLATE: OnceLock<TempDir> = OnceLock::new();

/// A store that a test may damage.
pub struct Fixture {
    dir: TempDir,
    pub settings: Store,
    pub policy: Arc<Policy>,
}

impl Fixture {
    pub fn new() -> Self {
        let template = TEMPLATE.get_or_init(|| {
            let dir = temp_folder();
            create(dir.path());
            dir
        });
        let dir = copied(template.path());
        Self { settings: with_fanout(dir.path()), policy: rules(), dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn open(&self) -> Embedded {
        Embedded::open(&self.settings, &self.policy).expect("the store opens")
    }

    pub fn verify(&self) -> Report {
        self.verify_with(&Options { examples_max: 10, have_settings_changed: false })
    }

    pub fn verify_with(&self, options: &Options) -> Report {
        verify(&self.settings, &self.policy, options, &mut |_| ())
            .expect("the store can be verified")
    }

    pub fn repair(&self) -> Report {
        let options = Options { examples_max: 10, have_settings_changed: false };
        repair(&self.settings, &self.policy, &options, &mut |_| ())
            .expect("the store can be repaired")
    }

    /// Returns all rows with all columns of an export.
    pub fn export(&self) -> Vec<String> {
        let reader = open_for_reading(&self.settings).expect("the store opens");
        read(&reader).into_iter().map(|row| row.whole).collect()
    }

    /// Returns the export of the undamaged store.
    pub fn original_export() -> &'static [String] {
        static ORIGINAL: OnceLock<Vec<String>> = OnceLock::new();
        ORIGINAL.get_or_init(|| Self::new().export())
    }

    #[track_caller]
    pub fn check_export(&self) {
        assert!(self.export() == Self::original_export(), "the export has changed");
    }

    #[track_caller]
    pub fn check_whole(&self) {
        let report = self.verify();
        assert!(report.is_whole(), "{:?}", report.examples);
    }

    /// Checks that the store can be opened for writing and stays whole.
    #[track_caller]
    pub fn check_usable(&self) {
        drop(self.open());
        self.check_whole();
        self.check_export();
    }

    /// Changes the tables with RocksDB directly.
    pub fn damage(&self, damage: impl FnOnce(&Raw)) {
        damage(&Raw::open(self.path()));
    }
}

/// A key and its value.
pub type Entry = (Box<[u8]>, Box<[u8]>);

/// The store as a plain RocksDB.
pub struct Raw(pub DB);

impl Raw {
    pub fn open(path: &Path) -> Self {
        let names =
            DB::list_cf(&rocksdb::Options::default(), path).expect("RocksDB lists the tables");
        let tables = names.iter().map(|name| {
            let mut options = rocksdb::Options::default();
            match name.as_str() {
                "cells" => options.set_merge_operator_associative("add", hourly_counts::merge),
                "outbox" => options.set_merge_operator_associative("add", outbox::merge),
                "counts" => options.set_merge_operator_associative("add", summary_counts::merge),
                _ => {}
            }
            ColumnFamilyDescriptor::new(name, options)
        });
        let tables: Vec<_> = tables.collect();
        let engine = rocksdb::Options::default();
        Self(DB::open_cf_descriptors(&engine, path, tables).expect("RocksDB opens"))
    }

    pub fn table(&self, name: &str) -> &ColumnFamily {
        self.0.cf_handle(name).expect("the table exists")
    }

    pub fn entries(&self, table: &str) -> Vec<Entry> {
        let entries = self.0.iterator_cf(self.table(table), IteratorMode::Start);
        entries.map(|entry| entry.expect("the entry is readable")).collect()
    }

    pub fn get(&self, table: &str, key: &[u8]) -> Vec<u8> {
        self.0
            .get_cf(self.table(table), key)
            .expect("the lookup succeeds")
            .expect("the entry exists")
    }

    pub fn put(&self, table: &str, key: &[u8], value: &[u8]) {
        self.0.put_cf(self.table(table), key, value).expect("the write succeeds");
    }

    pub fn delete(&self, table: &str, key: &[u8]) {
        self.0.delete_cf(self.table(table), key).expect("the write succeeds");
    }

    /// Returns the indexes of the tables of touches, oldest first.
    pub fn touch_tables(&self) -> Vec<String> {
        let names = DB::list_cf(&rocksdb::Options::default(), self.0.path())
            .expect("RocksDB lists the tables");
        let is_index = |name: &String| name.starts_with("touches-") && !name.ends_with("-contents");
        let mut indexes: Vec<String> = names.into_iter().filter(is_index).collect();
        indexes.sort_by_key(|name| name["touches-".len()..].parse::<u32>().expect("a number"));
        indexes
    }

    /// Returns the table of touches with this key.
    pub fn touch_table_of(&self, key: &[u8]) -> String {
        let has_key = |name: &String| {
            self.0.get_cf(self.table(name), key).expect("the lookup succeeds").is_some()
        };
        self.touch_tables().into_iter().find(has_key).expect("a table has the key")
    }

    /// Returns the table and the key of the contents of a touch, by the key of its record.
    pub fn contents_of(&self, key: &[u8]) -> (String, Vec<u8>) {
        let table = self.touch_table_of(key);
        let number = self.get(&table, key)[..8].to_vec();
        (format!("{table}-contents"), number)
    }

    /// Changes the layout version and returns the previous one.
    pub fn change_layout(&self, change: impl FnOnce(u32) -> u32) -> u32 {
        let layout = self.get("meta", b"layout").try_into().map(u32::from_be_bytes);
        let layout = layout.expect("the layout version has four bytes");
        self.put("meta", b"layout", &change(layout).to_be_bytes());
        layout
    }
}

fn with_fanout(path: &Path) -> Store {
    let mut settings = settings(path);
    settings.region_bytes_max = 1 << 16;
    settings.apps.insert(X, AppStore { retention_ms: None, fanout: Some(4) });
    settings.apps.insert(Y, AppStore { retention_ms: None, fanout: None });
    settings
}

/// Writes the facts of a month, with times up to 20 hours before their day; at the end, decisions older than a week are
/// final. The last day is only in the log, the day before it in files of level 0, and the rest is compacted.
fn create(path: &Path) {
    // Without fanout in the first week: rows stay in their partition when the fanout grows.
    let mut without_fanout = with_fanout(path);
    without_fanout.apps.clear();
    let mut rng = Lcg(7);
    process_days(&without_fanout, 0..7, &mut rng);
    process_days(&with_fanout(path), 7..DAYS - 1, &mut rng);
    // Reopening the store flushes its log into files.
    process_days(&with_fanout(path), DAYS - 1..DAYS, &mut rng);
}

/// Opens the store and processes the facts of these days. Opening takes 0.1 s.
fn process_days(settings: &Store, days: Range<i64>, rng: &mut Lcg) {
    let policy = rules();
    let store = Embedded::open(settings, &policy).expect("the store opens");
    let interests = Interests::new(vec![interest("network")], Arc::clone(&policy));
    let mut worker = Worker::new(store, policy).with_interests(Arc::new(interests));
    for day in days {
        let drafts: Vec<_> = (0..150).map(|_| draft(day, rng)).collect();
        for facts in identified(drafts).chunks(40) {
            let progress = Progress {
                positions: vec![position("clicks", 0, day * 1_000), position("effects", 3, day)],
                consumed_until: Some(a_plus(day * DAY - 6 * HOUR)),
            };
            worker.process(Batch { facts: facts.to_vec(), progress }).expect("the ledger works");
        }
        if day == DAYS - 3 {
            worker.ledger().compact().unwrap();
        }
        if day == DAYS - 1 {
            let until = Progress { consumed_until: Some(end_of_month()), ..Progress::default() };
            worker.ledger_mut().commit(Vec::new(), &until).expect("the commit succeeds");
        }
    }
}

fn end_of_month() -> EventTime {
    a_plus(DAYS * DAY)
}

/// A linear congruential generator of random numbers.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn draft(day: i64, rng: &mut Lcg) -> Draft {
    let late = -(rng.below(20) as i64) * HOUR + rng.below(60) as i64 * MINUTE;
    let time = a_plus(day * DAY + late);
    let id = format!("{}", rng.below(100_000));
    let device = rng.below(400);
    let kind = rng.below(10);
    let is_touch = kind < 6;
    let draft = match kind {
        0..4 => click(&format!("c{id}"), time)
            .campaign(1 + rng.below(9) as u32)
            .prop("callback", &format!("token-{id}"))
            .prop("ad_name", "1,\"2\""),
        4 => click(&format!("l{id}"), time).lookback(20 * DAY),
        5 => impression(&format!("i{id}"), time),
        6..8 => activation(&format!("a{id}"), time).prop("level", "1,\"2\""),
        _ => effect(&format!("e{id}"), time).revenue("9.99", "CNY"),
    };
    let ids = rng.below(4);
    let draft = match ids {
        // No activation has this id.
        0 if is_touch => draft.only("idfv_md5", &"A5".repeat(16)),
        0 => draft.without_ids(),
        1 => draft.only("oaid", &format!("device-{device}")),
        2 => draft.only("imei", &format!("86804903950{device:04}")),
        _ => draft
            .only("oaid", &format!("device-{device}"))
            .and("imei", &format!("86804903950{device:04}")),
    };
    let draft = draft.ip(&format!("203.0.113.{}", device % 250)).ua("u").model("X1");
    if device.is_multiple_of(5) { draft.of_app_y() } else { draft }
}

/// Prints the name of the case in which a test fails.
pub struct Case(String);

impl Case {
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the case that failed: {}", self.0);
        }
    }
}

/// A way to damage tables: its name, the problems that `verify` finds, and the change.
pub type Damage = (&'static str, &'static [Problem], fn(&Raw));

/// Checks that each damage is found as exactly these problems, and that a repair restores the store completely.
pub fn check_repaired(damages: &[Damage]) {
    for (index, (name, problems, damage)) in damages.iter().enumerate() {
        let _case = Case::new(*name);
        let fixture = Fixture::new();
        fixture.damage(damage);
        let report = fixture.verify();
        assert_eq!(found(&report, problems), *problems, "{:?}", report.examples);
        let repaired = fixture.repair();
        assert!(repaired.is_repaired(), "{:?}", repaired.examples);
        assert!(!repaired.is_whole());
        fixture.check_whole();
        fixture.check_export();
        // Every store is intact here, so a short run checks only the first.
        if index == 0 || testbed::length(false, true) {
            fixture.check_usable();
        }
    }
}

/// Checks that each damage is found as these problems, maybe among others, and that a repair makes the store whole.
pub fn check_made_whole(damages: &[Damage]) {
    for (name, problems, damage) in damages {
        let _case = Case::new(*name);
        let fixture = Fixture::new();
        fixture.damage(damage);
        let report = fixture.verify();
        for problem in *problems {
            assert!(report.found.contains_key(problem), "{problem:?}: {:?}", report.found);
        }
        assert!(fixture.repair().is_repaired());
        fixture.check_whole();
    }
}

/// Checks that the damage is found as exactly these problems, and that it cannot be repaired.
pub fn check_unrepairable(name: &str, problems: &[Problem], damage: impl FnOnce(&Raw)) -> Report {
    let _case = Case::new(name);
    let fixture = Fixture::new();
    fixture.damage(damage);
    let report = fixture.verify();
    assert_eq!(found(&report, problems), problems, "{:?}", report.examples);
    assert!(!fixture.repair().is_repaired());
    assert!(!fixture.verify().is_whole());
    report
}

/// Returns the problems found. Includes problems of counts only if some are expected.
fn found(report: &Report, expected: &[Problem]) -> Vec<Problem> {
    let is_of_counts = |problem: &Problem| problem.check() == Check::Counts;
    let has_counts = expected.iter().any(is_of_counts);
    let found = report.found.keys().copied();
    found.filter(|problem| has_counts || !is_of_counts(problem)).collect()
}
