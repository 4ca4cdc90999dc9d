//! The directory of a store: which directories open, which do not, and with which error.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use adtrail_store::StoreError;
use adtrail_store::embedded::{Embedded, open_for_reading};
use attribution::facts::event::Pid;
use attribution::ledger::{Facts, Ledger, Progress};
use attribution::rules::policy::{AppPolicy, Policy};
use rocksdb::{DB, Options};
use tempfile::TempDir;

use super::support::facts::{A, HOUR, a_plus, activation, click, effect, identified, millis};
use super::support::folders::{newest_log, temp_folder};
use super::support::rules::rules;
use super::support::run::{LedgerUnderTest, open, position, read, settings, worker_after};
use super::{commit, record_facts, record_of, scan, times, touch};

fn open_error(path: &Path) -> StoreError {
    Embedded::open(&settings(path), &rules()).expect_err("the store must not open")
}

#[test]
fn committed_data_survives_reopening() {
    let dir = temp_folder();
    let facts = identified([
        click("c1", a_plus(-HOUR)),
        activation("a", A),
        activation("b", a_plus(1)),
        effect("e", a_plus(2)),
    ]);
    let worker = worker_after(open(dir.path(), &rules()), &rules(), vec![facts]);
    let (rows, counts) = (worker.ledger().row_texts(), worker.ledger().status_counts());
    drop(worker);
    let mut store = open(dir.path(), &rules());
    record_facts(&mut store, [touch("c", 5, &[1])]);
    let positions = vec![position("clicks", 0, 7)];
    let progress = Progress { positions, consumed_until: Some(millis(9)) };
    store.commit(Vec::new(), &progress).expect("the commit succeeds");
    drop(store);

    let mut store = open(dir.path(), &rules());
    assert_eq!(store.row_texts(), rows);
    assert_eq!(rows.len(), 3);
    assert_eq!(store.status_counts(), counts);
    assert_eq!(store.positions().expect("the positions are readable"), [position("clicks", 0, 7)]);
    assert_eq!(store.consumed_until(), Some(millis(9)));
    assert_eq!(times(&mut store, scan(1, 9, 0)), [5]);
    let write = touch("c", 5, &[]);
    assert_eq!(record_of(&mut store, write.key), Some(write.record));
}

/// A click with the MD5 of an id in a form that only activations are searched by.
#[test]
fn ids_received_as_md5_are_found_after_reopening() {
    let dir = temp_folder();
    // The MD5 of the id without dashes, in upper case.
    let click = click("c1", a_plus(-HOUR)).only("oaid_md5", "dcd2a77a4f95d4d2c74a09de4e4d42d1");
    drop(worker_after(open(dir.path(), &rules()), &rules(), vec![identified([click])]));
    let activation = activation("a", A).only("oaid", "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5");
    let store = open(dir.path(), &rules());
    let worker = worker_after(store, &rules(), vec![identified([activation])]);
    let rows = worker.ledger().row_texts();
    assert_eq!(rows[0].short, "a: install attributed c1 (click by oaid)");
}

#[test]
fn uncommitted_facts_are_lost_on_reopening() {
    let dir = temp_folder();
    let mut store = open(dir.path(), &rules());
    record_facts(&mut store, [touch("c", 5, &[1])]);
    commit(&mut store);
    record_facts(&mut store, [touch("d", 6, &[1])]);
    drop(store);
    let mut store = open(dir.path(), &rules());
    assert_eq!(times(&mut store, scan(1, 9, 0)), [5]);
    assert_eq!(record_of(&mut store, touch("d", 6, &[]).key), None);
}

#[test]
fn a_store_has_one_writer_at_a_time() {
    let dir = temp_folder();
    let first = open(dir.path(), &rules());
    let error = open_error(dir.path());
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    drop(first);
    open(dir.path(), &rules());
}

#[test]
fn a_directory_is_created_with_its_parents() {
    let dir = temp_folder();
    open(&dir.path().join("a/b/c"), &rules());
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("the path exists").permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("the mode is changed");
}

/// The umask of the program restricts the files that RocksDB creates later; see `tests/service/operations/files.rs`.
#[test]
fn a_store_is_restricted_to_its_owner() {
    let dir = temp_folder();
    let path = dir.path().join("store");
    drop(open(&path, &rules()));
    assert_eq!(mode(&path), 0o700);
    let file = path.join("IDENTITY");
    set_mode(&path, 0o755);
    set_mode(&file, 0o664);
    drop(open(&path, &rules()));
    assert_eq!([mode(&path), mode(&file)], [0o700, 0o600]);
}

#[test]
fn a_link_in_the_place_of_a_store_file_is_not_followed() {
    let dir = temp_folder();
    let path = dir.path().join("store");
    drop(open(&path, &rules()));
    let (log, target) = (path.join("LOG"), dir.path().join("target"));
    fs::remove_file(&log).expect("the file is removed");
    fs::write(&target, "mine").expect("the file is written");
    symlink(&target, &log).expect("the link is created");
    let error = open_error(&path);
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
    assert!(error.to_string().contains("its file LOG: it is a symbolic link"), "{error}");
    assert_eq!(fs::read(&target).expect("the file is readable"), b"mine");
}

#[test]
fn the_number_of_partitions_is_fixed() {
    let dir = temp_folder();
    drop(open(dir.path(), &rules()));
    let mut other = settings(dir.path());
    other.partitions = 9;
    for error in [
        Embedded::open(&other, &rules()).map(drop).expect_err("the number of partitions differs"),
        open_for_reading(&other).map(drop).expect_err("the number of partitions differs"),
    ] {
        assert!(
            matches!(error, StoreError::WrongPartitions { found: 8, configured: 9, .. }),
            "{error}"
        );
    }
    open(dir.path(), &rules());
}

/// Returns a policy with apps of these pids, keys and previous keys.
fn policy_with(apps: &[(u32, &str, Option<&str>)]) -> Policy {
    let app = rules().apps().next().expect("the app is configured").clone();
    let app_with = |(pid, key, previous_key): &(u32, &str, Option<&str>)| AppPolicy {
        pid: Pid(*pid),
        key: (*key).into(),
        previous_key: previous_key.map(Into::into),
        ..app.clone()
    };
    Policy::new(apps.iter().map(app_with).collect(), Vec::new())
}

fn check_apps_refused(dir: &TempDir, apps: &[(u32, &str, Option<&str>)], expected: &[&str]) {
    let policy = policy_with(apps);
    let reader = open_for_reading(&settings(dir.path())).expect("the store opens");
    let opened = Embedded::open(&settings(dir.path()), &policy).map(drop);
    for error in [opened, reader.require_apps(&policy)] {
        let error = error.expect_err("an app has another pid or key").to_string();
        expected.iter().for_each(|part| assert!(error.contains(part), "{error}"));
    }
}

#[test]
fn the_pid_of_an_app_cannot_change() {
    let dir = temp_folder();
    drop(open(dir.path(), &policy_with(&[(1, "app-x", None), (2, "app-y", None)])));
    // One app is removed, another is added.
    let known = policy_with(&[(2, "app-y", None), (3, "app-z", None)]);
    drop(open(dir.path(), &known));
    open_for_reading(&settings(dir.path()))
        .expect("the store opens")
        .require_apps(&known)
        .expect("the apps are unchanged");
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
fn an_app_can_be_renamed_with_previous_key() {
    let dir = temp_folder();
    drop(open(dir.path(), &policy_with(&[(1, "app-x", None), (2, "app-y", None)])));
    // Another app takes its previous key at the same time.
    let renamed = policy_with(&[(1, "app-new", Some("app-x")), (3, "app-x", None)]);
    open_for_reading(&settings(dir.path()))
        .expect("the store opens")
        .require_apps(&renamed)
        .expect("the renamed app is accepted");
    // `previous_key` may stay in the settings.
    (0..2).for_each(|_| drop(open(dir.path(), &renamed)));
    check_apps_refused(&dir, &[(1, "app-x", None)], &["pid 1", "the app \"app-new\""]);
    let swapped = [(2, "app-new", Some("app-y")), (1, "app-y", Some("app-new"))];
    drop(open(dir.path(), &policy_with(&swapped)));
    check_apps_refused(&dir, &[(1, "app-new", None)], &["pid 1", "the app \"app-y\""]);
}

#[test]
fn a_foreign_directory_is_refused_and_unchanged() {
    let dir = temp_folder();
    let file = dir.path().join("notes.txt");
    std::fs::write(&file, "mine").expect("the file is written");
    set_mode(dir.path(), 0o755);
    set_mode(&file, 0o644);
    let error = open_error(dir.path());
    assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("the folder is readable").count(), 1);
    assert_eq!([mode(dir.path()), mode(&file)], [0o755, 0o644]);
}

#[test]
fn a_foreign_rocksdb_is_refused_and_unchanged() {
    // A foreign table may have the name of one of ours.
    for table in ["default", "theirs", "meta"] {
        let dir = temp_folder();
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        let theirs = DB::open_cf(&options, dir.path(), ["default", table]).expect("RocksDB opens");
        let family = theirs.cf_handle(table).expect("the table exists");
        theirs.put_cf(family, "k", "v").expect("the write succeeds");
        drop(theirs);
        let error = open_error(dir.path());
        assert!(matches!(error, StoreError::NotAStore { .. }), "{table}: {error}");
        let tables =
            DB::list_cf(&Options::default(), dir.path()).expect("RocksDB lists the tables");
        assert!(!tables.contains(&"events".to_owned()), "{table}: tables were added");
    }
}

#[test]
fn a_file_instead_of_a_directory_is_refused() {
    let dir = temp_folder();
    let path = dir.path().join("file");
    std::fs::write(&path, "").expect("the file is written");
    let error = open_error(&path);
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
    let error = open_error(&path.join("below"));
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
}

/// Permissions do not stop a test that runs as root. A lock file that cannot be opened fails at the same point as a
/// directory without write permission.
#[test]
fn an_unwritable_directory_is_not_reported_as_in_use() {
    let dir = temp_folder();
    drop(open(dir.path(), &rules()));
    let lock = dir.path().join("LOCK");
    std::fs::remove_file(&lock).expect("the file is removed");
    std::fs::create_dir(&lock).expect("the folder is created");
    let error = open_error(dir.path());
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
}

/// A reader beside a service, or after a crash, sees either everything that was committed or an error.
#[test]
fn a_damaged_log_is_reported_to_readers() {
    let dir = temp_folder();
    let path = dir.path();
    worker_after(
        open(path, &rules()),
        &rules(),
        vec![identified([click("c1", A), activation("a", A)])],
    );
    let log = newest_log(path);
    let whole = std::fs::read(&log).expect("the file is readable");
    assert_eq!(read(&open_for_reading(&settings(path)).expect("the store opens")).len(), 1);
    // Each attempt is slow, because a reader retries in case the store is being written.
    for offset in (0..whole.len()).step_by(97 * testbed::length(7, 1)) {
        let mut damaged = whole.clone();
        damaged[offset] ^= 0x10;
        std::fs::write(&log, damaged).expect("the file is written");
        match open_for_reading(&settings(path)) {
            Err(error) => assert!(matches!(error, StoreError::Corrupt { .. }), "{error}"),
            Ok(reader) => panic!(
                "byte {offset} of {} is damaged, but {} rows are read",
                whole.len(),
                read(&reader).len()
            ),
        }
    }
    // A killed process may have written half of its last record.
    std::fs::write(&log, &whole[..whole.len() - 3]).expect("the file is written");
    assert!(open_for_reading(&settings(path)).is_ok());
}

#[test]
fn a_missing_store_cannot_be_read() {
    let dir = temp_folder();
    let error =
        open_for_reading(&settings(&dir.path().join("none"))).expect_err("there is no store");
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    assert!(!dir.path().join("none").exists());
    let error = open_for_reading(&settings(dir.path())).expect_err("there is no store");
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    std::fs::write(dir.path().join("notes.txt"), "mine").expect("the file is written");
    let error = open_for_reading(&settings(dir.path())).expect_err("there is no store");
    assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("the folder is readable").count(), 1);
}
