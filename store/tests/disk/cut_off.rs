//! Making a store, and restoring one, killed at every step: whoever comes next goes on, and takes nothing
//! for a store that is none.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, thread};

use adtrail_store::StoreError;
use adtrail_store::embedded::checkpoint::Moment;
use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::maintenance::backup::{Archive, Target};
use adtrail_store::maintenance::verify::{Options, verify};
use support::facts::{A, HOUR, a_and, activation, click, identified};
use support::rules::rules;
use support::run::{fed, open, read, settings};
use support::show::Shown;
use tempfile::TempDir;
use testbed::faults;

use crate::support;

const SIGKILL: i32 = 9;
/// What the child does, and where.
const WORK: &str = "ADTRAIL_TEST_WORK";
const FOLDER: &str = "ADTRAIL_TEST_FOLDER";
/// Groups of calls of `faults.c`: after each of them the folder may look different.
const WRITES_AND_NAMES: u32 = 1 | 8;

/// A folder, and beside it what kills a process that works there.
struct Bed {
    dir: TempDir,
}

impl Bed {
    fn new() -> Self {
        let bed = Self { dir: TempDir::with_prefix("adtrail-cut-off-").expect("a folder") };
        faults::compile(&bed.path("faults.so"));
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn store(&self) -> PathBuf {
        self.path("store")
    }

    /// Whether the work was killed, after so many calls that went well.
    fn is_killed(&self, work: &str, well: u64) -> bool {
        let control = self.path("faults.control");
        fs::write(&control, [0; 40]).expect("a file");
        let shared = File::options().write(true).open(&control).expect("the file");
        let put = |at, bytes: &[u8]| shared.write_all_at(bytes, at).expect("the file");
        put(8, &WRITES_AND_NAMES.to_le_bytes());
        put(16, &well.to_le_bytes());
        put(24, &1_u64.to_le_bytes());
        let child = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", "cut_off::child", "--nocapture"])
            .env("LD_PRELOAD", self.path("faults.so"))
            .env("FAULTS", control)
            .env("FAULTS_DIR", self.store())
            .env(WORK, work)
            .env(FOLDER, self.dir.path())
            .output()
            .expect("a process");
        let is_killed = child.status.signal() == Some(SIGKILL);
        let said = String::from_utf8_lossy(&child.stderr).into_owned();
        assert!(is_killed || child.status.success(), "{}: {said}", child.status);
        is_killed
    }

    fn restore(&self) -> Result<(), StoreError> {
        let archive = Archive::open(&self.path("backups"))?;
        let page = archive.page(1)?.expect("a backup");
        let target = Target::new(&self.store())?;
        archive.restore(&page, &target, &mut |_, _| ())?;
        target.finish(|| page.check(&settings(&self.store())))
    }

    /// Backups of a store with rows, and the rows.
    fn back_up(&self) -> Vec<Shown> {
        let path = self.path("other");
        let facts = identified([click("c1", a_and(-HOUR)), activation("a", A)]);
        drop(fed(open(&path, &rules()), &rules(), vec![facts]));
        let store = open(&path, &rules());
        let checkpoint = store.checkpoints().take().expect("a checkpoint");
        let archive = Archive::make(&self.path("backups")).expect("a directory of backups");
        let plan = archive.plan(&checkpoint).expect("a plan");
        let moment = Moment::read(&settings(&checkpoint)).expect("a moment");
        archive.add(plan, &moment, "now".into(), &mut |_, _| ()).expect("a backup");
        read(&store.reader())
    }
}

/// Not a test of its own: what the others start as a process, to be killed.
#[test]
fn child() {
    let (Ok(work), Some(folder)) = (env::var(WORK), env::var_os(FOLDER)) else { return };
    let store = PathBuf::from(&folder).join("store");
    if work == "make" {
        open(&store, &rules());
        return;
    }
    let archive = Archive::open(&PathBuf::from(folder).join("backups")).expect("backups");
    let page = archive.page(1).expect("a page").expect("a backup");
    let target = Target::new(&store).expect("a target");
    archive.restore(&page, &target, &mut |_, _| ()).expect("all files");
    target.finish(|| page.check(&settings(&store))).expect("a store");
}

fn verified(path: &Path) -> Result<(), StoreError> {
    let options = Options { examples_max: 1, have_settings_changed: false };
    verify(&settings(path), &rules(), &options, &mut |_| {}).map(drop)
}

fn clear(path: &Path) {
    if path.exists() {
        fs::remove_dir_all(path).expect("a folder that goes");
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
fn the_making_of_a_store_is_gone_on_with() {
    let bed = Bed::new();
    let path = bed.store();
    let facts = || identified([click("c1", a_and(-HOUR)), activation("a", A)]);
    let (mut well, mut without_current) = (0, 0);
    while bed.is_killed("make", well) {
        let left = names(&path);
        without_current +=
            usize::from(!left.is_empty() && !left.iter().any(|name| name == "CURRENT"));
        match open_for_reading(&settings(&path)) {
            Err(StoreError::Missing { .. }) => {}
            Err(error) => panic!("step {well}, {left:?}: {error}"),
            Ok(reader) => assert!(read(&reader).is_empty() && !is_marked(&path), "{left:?}"),
        }
        let store = Embedded::open(&settings(&path), &rules());
        let store = store.unwrap_or_else(|error| panic!("step {well}, {left:?}: {error}"));
        drop(fed(store, &rules(), vec![facts()]));
        assert!(!is_marked(&path), "{:?}", names(&path));
        assert_eq!(read(&open(&path, &rules()).reader()).len(), 1);
        clear(&path);
        well += 1;
    }
    println!("killed at {well} steps, {without_current} of them before there was a CURRENT");
    assert!(without_current > 5, "{without_current} of {well}");
}

#[test]
fn a_restore_is_done_again() {
    let bed = Bed::new();
    let rows = bed.back_up();
    assert!(!rows.is_empty());
    let path = bed.store();
    let (mut well, mut refused) = (0, 0);
    while bed.is_killed("restore", well) {
        let left = names(&path);
        let is_left = !left.is_empty();
        if is_left && is_marked(&path) {
            for outcome in [
                Embedded::open(&settings(&path), &rules()).map(drop),
                open_for_reading(&settings(&path)).map(drop),
                verified(&path),
            ] {
                let error = outcome.expect_err("half a store");
                assert!(matches!(error, StoreError::HalfRestored { .. }), "{left:?}: {error}");
            }
            refused += 1;
        }
        match bed.restore() {
            Ok(()) => {}
            // All of it was there.
            Err(StoreError::NotEmpty { .. }) => assert!(is_left && !is_marked(&path), "{left:?}"),
            Err(error) => panic!("step {well}, {left:?}: {error}"),
        }
        assert!(!is_marked(&path), "{:?}", names(&path));
        assert_eq!(read(&open(&path, &rules()).reader()), rows, "step {well}, {left:?}");
        clear(&path);
        well += 1;
    }
    println!("killed at {well} steps, {refused} of them left half a store");
    assert!(refused > 5, "{refused} of {well}");
}

/// What somebody has put there since is not removed.
#[test]
fn what_is_not_of_a_restore_is_left_alone() {
    let bed = Bed::new();
    bed.back_up();
    let mut wells = 4..;
    while names(&bed.store()).len() < 3 {
        clear(&bed.store());
        assert!(bed.is_killed("restore", wells.next().expect("a number")));
    }
    let notes = bed.path("store/notes.txt");
    fs::write(&notes, "mine").expect("a file");
    let before = names(&bed.store());
    let error = bed.restore().expect_err("something is there");
    assert!(matches!(error, StoreError::NotEmpty { .. }), "{error}");
    assert_eq!(names(&bed.store()), before);
    fs::remove_file(notes).expect("a file");
    bed.restore().expect("nothing else is there");
}

/// Of many at once, one makes the store and the others say that it does.
#[test]
fn many_at_once_make_one_store() {
    let bed = Bed::new();
    for _ in 0..30 {
        let opened = thread::scope(|scope| {
            let open = || Embedded::open(&settings(&bed.store()), &rules());
            let all: Vec<_> = (0..6).map(|_| scope.spawn(open)).collect();
            all.into_iter().map(|one| one.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert!(opened.iter().any(Result::is_ok), "nobody has made it");
        for error in opened.into_iter().filter_map(Result::err) {
            assert!(matches!(error, StoreError::InUse { .. }), "{error}");
        }
        clear(&bed.store());
    }
}
