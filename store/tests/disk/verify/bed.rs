//! A store of some thousand facts, made once in a process and copied for every damage.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::layout::{hourly_counts, summary_counts};
use adtrail_store::maintenance::verify::{Check, Options, Problem, Report, repair, verify};
use attribution::facts::event::EventTime;
use attribution::ledger::{Ledger, Progress};
use attribution::rules::policy::Policy;
use attribution::worker::{Batch, Worker};
use config::{AppStore, Store};
use rocksdb::{ColumnFamily, ColumnFamilyDescriptor, DB, IteratorMode};
use tempfile::TempDir;

use super::support::facts::{
    DAY, Draft, HOUR, MINUTE, a_and, activation, click, effect, identified, impression,
};
use super::support::rules::{X, Y, rules};
use super::support::run::{position, read, settings};

pub const DAYS: i64 = 30;

static MADE: OnceLock<TempDir> = OnceLock::new();

/// A store that a test may damage.
pub struct Bed {
    dir: TempDir,
    pub settings: Store,
    pub policy: Arc<Policy>,
}

impl Bed {
    pub fn new() -> Self {
        let made = MADE.get_or_init(|| {
            let dir = TempDir::with_prefix("adtrail-store-").expect("a temporary folder");
            make(dir.path());
            dir
        });
        let dir = TempDir::with_prefix("adtrail-store-").expect("a temporary folder");
        for file in made.path().read_dir().expect("a folder").flatten() {
            fs::copy(file.path(), dir.path().join(file.file_name())).expect("a copy");
        }
        Self { settings: spread(dir.path()), policy: rules(), dir }
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
        verify(&self.settings, &self.policy, options, &mut |_| ()).expect("a store to look at")
    }

    pub fn repair(&self) -> Report {
        let options = Options { examples_max: 10, have_settings_changed: false };
        repair(&self.settings, &self.policy, &options, &mut |_| ()).expect("a store to repair")
    }

    /// All rows, with all that an export shows.
    pub fn export(&self) -> Vec<String> {
        let reader = open_for_reading(&self.settings).expect("the store opens");
        read(&reader).into_iter().map(|row| row.whole).collect()
    }

    /// What an export shows before anything is damaged.
    pub fn whole_export() -> &'static [String] {
        static WHOLE: OnceLock<Vec<String>> = OnceLock::new();
        WHOLE.get_or_init(|| Self::new().export())
    }

    #[track_caller]
    pub fn check_export(&self) {
        assert!(self.export() == Self::whole_export(), "the export is another one");
    }

    #[track_caller]
    pub fn check_whole(&self) {
        let report = self.verify();
        assert!(report.is_whole(), "{:?}", report.examples);
    }

    /// The service goes on with it.
    #[track_caller]
    pub fn check_goes_on(&self) {
        drop(self.open());
        self.check_whole();
        self.check_export();
    }

    /// Changes the tables behind adtrail's back.
    pub fn damage(&self, damage: impl FnOnce(&Raw)) {
        damage(&Raw::open(self.path()));
    }
}

/// A key and its value.
pub type Entry = (Box<[u8]>, Box<[u8]>);

/// The tables as they are.
pub struct Raw(pub DB);

impl Raw {
    pub fn open(path: &Path) -> Self {
        let names = DB::list_cf(&rocksdb::Options::default(), path).expect("a RocksDB");
        let tables = names.iter().map(|name| {
            let mut options = rocksdb::Options::default();
            match name.as_str() {
                "cells" => options.set_merge_operator_associative("add", hourly_counts::merge),
                "counts" => options.set_merge_operator_associative("add", summary_counts::merge),
                _ => {}
            }
            ColumnFamilyDescriptor::new(name, options)
        });
        let tables: Vec<_> = tables.collect();
        let engine = rocksdb::Options::default();
        Self(DB::open_cf_descriptors(&engine, path, tables).expect("a RocksDB"))
    }

    pub fn table(&self, name: &str) -> &ColumnFamily {
        self.0.cf_handle(name).expect("a table")
    }

    pub fn entries(&self, table: &str) -> Vec<Entry> {
        let entries = self.0.iterator_cf(self.table(table), IteratorMode::Start);
        entries.map(|entry| entry.expect("an entry")).collect()
    }

    pub fn get(&self, table: &str, key: &[u8]) -> Vec<u8> {
        self.0.get_cf(self.table(table), key).expect("a look-up").expect("an entry")
    }

    pub fn put(&self, table: &str, key: &[u8], value: &[u8]) {
        self.0.put_cf(self.table(table), key, value).expect("a write");
    }

    pub fn delete(&self, table: &str, key: &[u8]) {
        self.0.delete_cf(self.table(table), key).expect("a write");
    }

    /// Writes the layout version that follows from the present one, and gives that one.
    pub fn change_layout(&self, change: impl FnOnce(u32) -> u32) -> u32 {
        let layout = self.get("meta", b"layout").try_into().map(u32::from_be_bytes);
        let layout = layout.expect("four bytes");
        self.put("meta", b"layout", &change(layout).to_be_bytes());
        layout
    }
}

fn spread(path: &Path) -> Store {
    let mut settings = settings(path);
    settings.region_bytes_max = 1 << 16;
    settings.apps.insert(X, AppStore { retention_ms: None, fanout: Some(4) });
    settings.apps.insert(Y, AppStore { retention_ms: None, fanout: None });
    settings
}

/// Facts of a month, a few hours late or early; what is older than a week is final at its end. The last day
/// is in the log alone, the day before it in files of the first level, and the rest is compacted.
fn make(path: &Path) {
    // The first week unspread: rows stay where they were when an app is spread.
    let mut unspread = spread(path);
    unspread.apps.clear();
    let mut numbers = Numbers(7);
    feed(&unspread, 0..7, &mut numbers);
    feed(&spread(path), 7..DAYS - 1, &mut numbers);
    // Opening a store moves what is in its log into files.
    feed(&spread(path), DAYS - 1..DAYS, &mut numbers);
}

/// Opens the store for the facts of these days. Each opening takes a tenth of a second.
fn feed(settings: &Store, days: Range<i64>, numbers: &mut Numbers) {
    let policy = rules();
    let store = Embedded::open(settings, &policy).expect("the store opens");
    let mut worker = Worker::new(store, policy);
    for day in days {
        let drafts: Vec<_> = (0..150).map(|_| draft(day, numbers)).collect();
        for facts in identified(drafts).chunks(40) {
            let progress = Progress {
                positions: vec![position("clicks", 0, day * 1_000), position("effects", 3, day)],
                consumed_until: Some(a_and(day * DAY - 6 * HOUR)),
            };
            worker.process(Batch { facts: facts.to_vec(), progress }).expect("the ledger works");
        }
        if day == DAYS - 3 {
            worker.ledger().compact();
        }
        if day == DAYS - 1 {
            let until = Progress { consumed_until: Some(end()), ..Progress::default() };
            worker.ledger_mut().commit(Vec::new(), &until).expect("a commit");
        }
    }
}

fn end() -> EventTime {
    a_and(DAYS * DAY)
}

/// Always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn draft(day: i64, numbers: &mut Numbers) -> Draft {
    let late = -(numbers.below(20) as i64) * HOUR + numbers.below(60) as i64 * MINUTE;
    let time = a_and(day * DAY + late);
    let id = format!("{}", numbers.below(100_000));
    let device = numbers.below(400);
    let draft = match numbers.below(10) {
        0..4 => click(&format!("c{id}"), time).campaign(1 + numbers.below(9) as u32),
        4 => click(&format!("l{id}"), time).lookback(20 * DAY),
        5 => impression(&format!("i{id}"), time),
        6..8 => activation(&format!("a{id}"), time).prop("level", "1,\"2\""),
        _ => effect(&format!("e{id}"), time).revenue("9.99", "CNY"),
    };
    let ids = numbers.below(4);
    let draft = match ids {
        0 => draft.anyone(),
        1 => draft.only("oaid", &format!("device-{device}")),
        2 => draft.only("imei", &format!("86804903950{device:04}")),
        _ => draft
            .only("oaid", &format!("device-{device}"))
            .and("imei", &format!("86804903950{device:04}")),
    };
    let draft = draft.ip(&format!("203.0.113.{}", device % 250)).ua("u").model("X1");
    if device.is_multiple_of(5) { draft.of_app_y() } else { draft }
}

/// Names a case when a test fails in it.
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

/// A damage of tables: what it is, what is found of it, and how it is done.
pub type Damage = (&'static str, &'static [Problem], fn(&Raw));

/// Each damage is found under its names; repaired, the store is as it was.
pub fn check_repaired(damages: &[Damage]) {
    for (place, (name, problems, damage)) in damages.iter().enumerate() {
        let _case = Case::new(*name);
        let bed = Bed::new();
        bed.damage(damage);
        let report = bed.verify();
        assert_eq!(found(&report, problems), *problems, "{:?}", report.examples);
        let repaired = bed.repair();
        assert!(repaired.is_repaired(), "{:?}", repaired.examples);
        assert!(!repaired.is_whole());
        bed.check_whole();
        bed.check_export();
        // One is as good as all: each is whole by now.
        if place == 0 || testbed::length(false, true) {
            bed.check_goes_on();
        }
    }
}

/// Each damage is found under its names, if need be among others; repaired, the store is whole.
pub fn check_made_whole(damages: &[Damage]) {
    for (name, problems, damage) in damages {
        let _case = Case::new(*name);
        let bed = Bed::new();
        bed.damage(damage);
        let report = bed.verify();
        for problem in *problems {
            assert!(report.found.contains_key(problem), "{problem:?}: {:?}", report.found);
        }
        assert!(bed.repair().is_repaired());
        bed.check_whole();
    }
}

/// The damage is found under these names, and stays: nothing says what was there.
pub fn check_left(name: &str, problems: &[Problem], damage: impl FnOnce(&Raw)) -> Report {
    let _case = Case::new(name);
    let bed = Bed::new();
    bed.damage(damage);
    let report = bed.verify();
    assert_eq!(found(&report, problems), problems, "{:?}", report.examples);
    assert!(!bed.repair().is_repaired());
    assert!(!bed.verify().is_whole());
    report
}

/// What was found; that counts differ too only where it is asked for.
fn found(report: &Report, asked: &[Problem]) -> Vec<Problem> {
    let is_of_counts = |problem: &Problem| problem.check() == Check::Counts;
    let are_asked = asked.iter().any(is_of_counts);
    report.found.keys().copied().filter(|one| are_asked || !is_of_counts(one)).collect()
}
