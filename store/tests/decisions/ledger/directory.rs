//! The directory of a store: what opens, what does not, and what it says.

use std::path::Path;

use adtrail_store::StoreError;
use adtrail_store::embedded::{Embedded, open_for_reading};
use attribution::facts::event::Pid;
use attribution::ledger::{Facts, Ledger, Progress};
use attribution::rules::policy::{AppPolicy, Policy};
use rocksdb::{DB, Options};
use tempfile::TempDir;

use super::support::facts::{A, HOUR, a_and, activation, click, effect, identified, millis};
use super::support::rules::rules;
use super::support::run::{Shelf, fed, open, position, read, settings};
use super::{commit, home_of, record_facts, scan, times, touch};

fn folder() -> TempDir {
    TempDir::with_prefix("adtrail-store-").expect("a temporary folder")
}

fn failure(path: &Path) -> StoreError {
    Embedded::open(&settings(path), &rules()).expect_err("the store does not open")
}

#[test]
fn what_was_committed_is_there_after_opening_again() {
    let dir = folder();
    let facts = identified([
        click("c1", a_and(-HOUR)),
        activation("a", A),
        activation("b", a_and(1)),
        effect("e", a_and(2)),
    ]);
    let worker = fed(open(dir.path(), &rules()), &rules(), vec![facts]);
    let (rows, counts) = (worker.ledger().shown(), worker.ledger().status_counts());
    drop(worker);
    let mut store = open(dir.path(), &rules());
    record_facts(&mut store, [touch("c", 5, &[1])]);
    let positions = vec![position("clicks", 0, 7)];
    let progress = Progress { positions, consumed_until: Some(millis(9)) };
    store.commit(Vec::new(), &progress).expect("a commit");
    drop(store);

    let mut store = open(dir.path(), &rules());
    assert_eq!(store.shown(), rows);
    assert_eq!(rows.len(), 3);
    assert_eq!(store.status_counts(), counts);
    assert_eq!(store.positions().expect("positions"), [position("clicks", 0, 7)]);
    assert_eq!(store.consumed_until(), Some(millis(9)));
    assert_eq!(times(&mut store, scan(1, 9, 0)), [5]);
    let write = touch("c", 5, &[]);
    assert_eq!(home_of(&mut store, write.key), Some(write.record));
}

#[test]
fn what_was_recorded_alone_is_gone_after_opening_again() {
    let dir = folder();
    let mut store = open(dir.path(), &rules());
    record_facts(&mut store, [touch("c", 5, &[1])]);
    commit(&mut store);
    record_facts(&mut store, [touch("d", 6, &[1])]);
    drop(store);
    let mut store = open(dir.path(), &rules());
    assert_eq!(times(&mut store, scan(1, 9, 0)), [5]);
    assert_eq!(home_of(&mut store, touch("d", 6, &[]).key), None);
}

#[test]
fn the_counts_follow_corrections_and_are_right_after_opening_again() {
    let dir = folder();
    let batches = [
        identified([activation("a", A), effect("e", a_and(1)), effect("f", a_and(-9 * HOUR))]),
        identified([click("c1", a_and(-HOUR))]),
    ];
    let mut seen = Vec::new();
    for batch in batches {
        let worker = fed(open(dir.path(), &rules()), &rules(), vec![batch]);
        drop(worker);
        let store = open(dir.path(), &rules());
        let mut counts: Vec<_> = store
            .status_counts()
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|((event_type, status), count)| {
                format!("{count} {} {}", event_type.name(), status.name())
            })
            .collect();
        counts.sort();
        seen.push(counts);
    }
    assert_eq!(
        seen,
        [
            ["1 activation organic", "1 effect organic", "1 effect orphan"],
            ["1 activation attributed", "1 effect attributed", "1 effect orphan"],
        ]
    );
}

#[test]
fn a_store_is_written_by_one_at_a_time() {
    let dir = folder();
    let first = open(dir.path(), &rules());
    let error = failure(dir.path());
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    drop(first);
    open(dir.path(), &rules());
}

#[test]
fn a_directory_is_made_with_all_that_are_above_it() {
    let dir = folder();
    open(&dir.path().join("a/b/c"), &rules());
}

#[test]
fn the_number_of_partitions_is_fixed() {
    let dir = folder();
    drop(open(dir.path(), &rules()));
    let mut other = settings(dir.path());
    other.partitions = 9;
    for error in [
        Embedded::open(&other, &rules()).map(drop).expect_err("other partitions"),
        open_for_reading(&other).map(drop).expect_err("other partitions"),
    ] {
        assert!(
            matches!(error, StoreError::WrongPartitions { found: 8, configured: 9, .. }),
            "{error}"
        );
    }
    open(dir.path(), &rules());
}

/// A policy of apps by pid, key and the key that they had.
fn named(apps: &[(u32, &str, Option<&str>)]) -> Policy {
    let app = rules().apps().next().expect("an app").clone();
    let named = |(pid, key, previous_key): &(u32, &str, Option<&str>)| AppPolicy {
        pid: Pid(*pid),
        key: (*key).into(),
        previous_key: previous_key.map(Into::into),
        ..app.clone()
    };
    Policy::new(apps.iter().map(named).collect(), Vec::new())
}

fn check_apps_refused(dir: &TempDir, apps: &[(u32, &str, Option<&str>)], expected: &[&str]) {
    let policy = named(apps);
    let reader = open_for_reading(&settings(dir.path())).expect("a store");
    let opened = Embedded::open(&settings(dir.path()), &policy).map(drop);
    for error in [opened, reader.require_apps(&policy)] {
        let error = error.expect_err("another app").to_string();
        expected.iter().for_each(|part| assert!(error.contains(part), "{error}"));
    }
}

#[test]
fn a_pid_stays_with_its_app() {
    let dir = folder();
    drop(open(dir.path(), &named(&[(1, "app-x", None), (2, "app-y", None)])));
    // One that comes, and one that goes.
    let known = named(&[(2, "app-y", None), (3, "app-z", None)]);
    drop(open(dir.path(), &known));
    open_for_reading(&settings(dir.path())).expect("a store").require_apps(&known).expect("known");
    let check = |apps: &[(u32, &str, Option<&str>)], expected: &[&str]| {
        check_apps_refused(&dir, apps, expected);
    };
    let new = "previous_key = \"app-x\"";
    check(&[(1, "app-new", None)], &["pid 1", "the app \"app-x\"", "\"app-new\"", new]);
    check(&[(1, "app-new", Some("app-y"))], &["pid 1", "the app \"app-x\"", new]);
    let swapped = [(1, "app-y", None), (2, "app-x", None)];
    check(&swapped, &["pid 2", "the app \"app-y\"", "\"app-x\""]);
    check(&[(9, "app-z", None)], &["\"app-z\"", "pid 3", "9"]);
}

#[test]
fn an_app_that_says_so_was_renamed() {
    let dir = folder();
    drop(open(dir.path(), &named(&[(1, "app-x", None), (2, "app-y", None)])));
    // Its key is another app's at once.
    let renamed = named(&[(1, "app-new", Some("app-x")), (3, "app-x", None)]);
    open_for_reading(&settings(dir.path())).expect("a store").require_apps(&renamed).expect("so");
    // It goes on saying so.
    (0..2).for_each(|_| drop(open(dir.path(), &renamed)));
    check_apps_refused(&dir, &[(1, "app-x", None)], &["pid 1", "the app \"app-new\""]);
    let swapped = [(2, "app-new", Some("app-y")), (1, "app-y", Some("app-new"))];
    drop(open(dir.path(), &named(&swapped)));
    check_apps_refused(&dir, &[(1, "app-new", None)], &["pid 1", "the app \"app-y\""]);
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let dir = folder();
    std::fs::write(dir.path().join("notes.txt"), "mine").expect("a file");
    let error = failure(dir.path());
    assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 1);
}

#[test]
fn a_rocksdb_of_something_else_is_left_alone() {
    // One of theirs may be called as one of ours.
    for table in ["default", "theirs", "meta"] {
        let dir = folder();
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        let theirs = DB::open_cf(&options, dir.path(), ["default", table]).expect("a RocksDB");
        let family = theirs.cf_handle(table).expect("a table");
        theirs.put_cf(family, "k", "v").expect("a write");
        drop(theirs);
        let error = failure(dir.path());
        assert!(matches!(error, StoreError::NotAStore { .. }), "{table}: {error}");
        let tables = DB::list_cf(&Options::default(), dir.path()).expect("a RocksDB");
        assert!(!tables.contains(&"events".to_owned()), "{table}: nothing was added");
    }
}

#[test]
fn a_store_whose_making_was_cut_off_is_made() {
    let dir = folder();
    let mut options = Options::default();
    options.create_if_missing(true);
    drop(DB::open(&options, dir.path()).expect("a RocksDB"));
    open(dir.path(), &rules());
}

#[test]
fn a_file_in_the_place_of_the_directory_is_no_store() {
    let dir = folder();
    let path = dir.path().join("file");
    std::fs::write(&path, "").expect("a file");
    let error = failure(&path);
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
    let error = failure(&path.join("below"));
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
}

/// Permissions do not stop a test that runs as root. A lock file that can not be opened does, in
/// the same place where a directory without permission to write stops everybody else.
#[test]
fn a_directory_that_can_not_be_written_is_not_one_in_use() {
    let dir = folder();
    drop(open(dir.path(), &rules()));
    let lock = dir.path().join("LOCK");
    std::fs::remove_file(&lock).expect("a lock file");
    std::fs::create_dir(&lock).expect("a folder");
    let error = failure(dir.path());
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
}

/// Who reads beside a service, or after a crash, sees all that was committed or an error.
#[test]
fn a_damaged_log_is_not_read_as_if_it_were_whole() {
    let dir = folder();
    let path = dir.path();
    fed(open(path, &rules()), &rules(), vec![identified([click("c1", A), activation("a", A)])]);
    let files = std::fs::read_dir(path).expect("a folder").map(|file| file.expect("a file").path());
    let is_log = |file: &std::path::PathBuf| file.extension().is_some_and(|end| end == "log");
    let log = files.filter(is_log).max().expect("a log");
    let whole = std::fs::read(&log).expect("a file");
    assert_eq!(read(&open_for_reading(&settings(path)).expect("a store")).len(), 1);
    // Each place takes as long as a reader tries to open a store that might be written meanwhile.
    for place in (0..whole.len()).step_by(97 * testbed::length(7, 1)) {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x10;
        std::fs::write(&log, damaged).expect("a write");
        match open_for_reading(&settings(path)) {
            Err(error) => assert!(matches!(error, StoreError::Corrupt { .. }), "{error}"),
            Ok(reader) => panic!("byte {place} of {}: {} rows", whole.len(), read(&reader).len()),
        }
    }
    // A process that was killed may have written half of what it wrote last.
    std::fs::write(&log, &whole[..whole.len() - 3]).expect("a write");
    assert!(open_for_reading(&settings(path)).is_ok());
}

#[test]
fn what_is_missing_can_not_be_read() {
    let dir = folder();
    let error = open_for_reading(&settings(&dir.path().join("none"))).expect_err("no store");
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    assert!(!dir.path().join("none").exists());
    let error = open_for_reading(&settings(dir.path())).expect_err("no store");
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    std::fs::write(dir.path().join("notes.txt"), "mine").expect("a file");
    let error = open_for_reading(&settings(dir.path())).expect_err("no store");
    assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 1);
}
