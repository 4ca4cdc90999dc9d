//! Kills the creation and the restore of a store at every step. The next process completes them, and none uses an
//! incomplete store.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, thread};

use adtrail_store::StoreError;
use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::maintenance::verify::{Options, verify};
use support::facts::{A, HOUR, a_plus, activation, click, identified};
use support::row_text::RowText;
use support::rules::rules;
use support::run::{open, read, settings, worker_after};
use tempfile::TempDir;
use testbed::faults;

use super::backup::{back_up, restore};
use crate::support;

const SIGKILL: i32 = 9;
/// Passes the child its task.
const TASK: &str = "ADTRAIL_TEST_WORK";
/// Passes the child its folder.
const FOLDER: &str = "ADTRAIL_TEST_FOLDER";
/// The groups of calls in `faults.c` that can change the folder.
const WRITES_AND_NAMES: u32 = 1 | 8;

/// A folder with the library that kills a process after a number of calls.
struct Fixture {
    dir: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let fixture = Self {
            dir: TempDir::with_prefix("adtrail-interrupted-")
                .expect("the temporary folder is created"),
        };
        faults::compile(&fixture.path("faults.so"));
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn store(&self) -> PathBuf {
        self.path("store")
    }

    /// Runs the task in a process that is killed after `calls` successful calls. Returns whether it was killed.
    fn is_killed(&self, task: &str, calls: u64) -> bool {
        let control = self.path("faults.control");
        fs::write(&control, [0; 40]).expect("the file is written");
        let shared =
            File::options().write(true).open(&control).expect("the control file is writable");
        let put = |at, bytes: &[u8]| {
            shared.write_all_at(bytes, at).expect("the control file is writable")
        };
        put(8, &WRITES_AND_NAMES.to_le_bytes());
        put(16, &calls.to_le_bytes());
        put(24, &1_u64.to_le_bytes());
        let child = Command::new(env::current_exe().expect("the path of this program is known"))
            .args(["--exact", "interrupted::child", "--nocapture"])
            .env("LD_PRELOAD", self.path("faults.so"))
            .env("FAULTS", control)
            .env("FAULTS_DIR", self.store())
            .env(TASK, task)
            .env(FOLDER, self.dir.path())
            .output()
            .expect("the child process starts");
        let is_killed = child.status.signal() == Some(SIGKILL);
        let stderr = String::from_utf8_lossy(&child.stderr).into_owned();
        assert!(is_killed || child.status.success(), "{}: {stderr}", child.status);
        is_killed
    }

    fn restore(&self) -> Result<(), StoreError> {
        restore(&self.path("backups"), 1, &self.store())
    }

    /// Backs up a store with rows, and returns the rows.
    fn back_up(&self) -> Vec<RowText> {
        let path = self.path("other");
        let facts = identified([click("c1", a_plus(-HOUR)), activation("a", A)]);
        drop(worker_after(open(&path, &rules()), &rules(), vec![facts]));
        let store = open(&path, &rules());
        back_up(&self.path("backups"), &store);
        read(&store.reader())
    }
}

/// Not a test by itself: the process that the other tests start and kill.
#[test]
fn child() {
    let (Ok(task), Some(folder)) = (env::var(TASK), env::var_os(FOLDER)) else { return };
    let store = PathBuf::from(&folder).join("store");
    if task == "create" {
        open(&store, &rules());
        return;
    }
    let backups = PathBuf::from(folder).join("backups");
    restore(&backups, 1, &store).expect("the restore is completed");
}

fn verify_store(path: &Path) -> Result<(), StoreError> {
    let options = Options { examples_max: 1, have_settings_changed: false };
    verify(&settings(path), &rules(), &options, &mut |_| {}).map(drop)
}

fn clear(path: &Path) {
    if path.exists() {
        fs::remove_dir_all(path).expect("the folder is removed");
    }
}

fn names(path: &Path) -> Vec<String> {
    let files = path.read_dir().into_iter().flatten().flatten();
    files.map(|file| file.file_name().to_string_lossy().into_owned()).collect()
}

fn is_marked(path: &Path) -> bool {
    names(path).iter().any(|name| name.starts_with("adtrail-"))
}

#[test]
fn an_interrupted_creation_is_completed_at_every_step() {
    let fixture = Fixture::new();
    let path = fixture.store();
    let facts = || identified([click("c1", a_plus(-HOUR)), activation("a", A)]);
    let (mut calls, mut without_current) = (0, 0);
    while fixture.is_killed("create", calls) {
        let files = names(&path);
        without_current +=
            usize::from(!files.is_empty() && !files.iter().any(|name| name == "CURRENT"));
        match open_for_reading(&settings(&path)) {
            Err(StoreError::Missing { .. }) => {}
            Err(error) => panic!("call {calls}, {files:?}: {error}"),
            Ok(reader) => assert!(read(&reader).is_empty() && !is_marked(&path), "{files:?}"),
        }
        let store = Embedded::open(&settings(&path), &rules());
        let store = store.unwrap_or_else(|error| panic!("call {calls}, {files:?}: {error}"));
        drop(worker_after(store, &rules(), vec![facts()]));
        assert!(!is_marked(&path), "{:?}", names(&path));
        assert_eq!(read(&open(&path, &rules()).reader()).len(), 1);
        clear(&path);
        calls += 1;
    }
    println!("killed at {calls} calls, {without_current} of them before CURRENT was written");
    assert!(without_current > 5, "{without_current} of {calls}");
}

#[test]
fn an_interrupted_restore_can_be_repeated() {
    let fixture = Fixture::new();
    let rows = fixture.back_up();
    assert!(!rows.is_empty());
    let path = fixture.store();
    let (mut calls, mut refused) = (0, 0);
    while fixture.is_killed("restore", calls) {
        let files = names(&path);
        if !files.is_empty() && is_marked(&path) {
            for outcome in [
                Embedded::open(&settings(&path), &rules()).map(drop),
                open_for_reading(&settings(&path)).map(drop),
                verify_store(&path),
            ] {
                let error = outcome.expect_err("the store is half-restored");
                assert!(
                    matches!(error, StoreError::IncompleteRestore { .. }),
                    "{files:?}: {error}"
                );
            }
            refused += 1;
        }
        match fixture.restore() {
            Ok(()) => {}
            // The killed restore was already complete.
            Err(StoreError::NotEmpty { .. }) => {
                assert!(!files.is_empty() && !is_marked(&path), "{files:?}");
            }
            Err(error) => panic!("call {calls}, {files:?}: {error}"),
        }
        assert!(!is_marked(&path), "{:?}", names(&path));
        assert_eq!(read(&open(&path, &rules()).reader()), rows, "call {calls}, {files:?}");
        clear(&path);
        calls += 1;
    }
    println!("killed at {calls} calls, {refused} of them left a half-restored store");
    assert!(refused > 5, "{refused} of {calls}");
}

/// A file that a user added after the interruption is not removed.
#[test]
fn a_restore_does_not_delete_foreign_files() {
    let fixture = Fixture::new();
    fixture.back_up();
    let mut calls = 4..;
    while names(&fixture.store()).len() < 3 {
        clear(&fixture.store());
        assert!(fixture.is_killed("restore", calls.next().expect("the range does not end")));
    }
    let notes = fixture.path("store/notes.txt");
    fs::write(&notes, "mine").expect("the file is written");
    let before = names(&fixture.store());
    let error = fixture.restore().expect_err("a foreign file is in the folder");
    assert!(matches!(error, StoreError::NotEmpty { .. }), "{error}");
    assert_eq!(names(&fixture.store()), before);
    fs::remove_file(notes).expect("the file is removed");
    fixture.restore().expect("files of an interrupted restore are replaced");
}

/// One of several threads creates the store; the others fail with `InUse`.
#[test]
fn concurrent_creation_makes_one_store() {
    let fixture = Fixture::new();
    for _ in 0..30 {
        let opened = thread::scope(|scope| {
            let open = || Embedded::open(&settings(&fixture.store()), &rules());
            let all: Vec<_> = (0..6).map(|_| scope.spawn(open)).collect();
            all.into_iter()
                .map(|thread| thread.join().expect("the thread does not panic"))
                .collect::<Vec<_>>()
        });
        assert!(opened.iter().any(Result::is_ok), "no thread created the store");
        for error in opened.into_iter().filter_map(Result::err) {
            assert!(matches!(error, StoreError::InUse { .. }), "{error}");
        }
        clear(&fixture.store());
    }
}
