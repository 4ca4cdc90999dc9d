//! Backups of a store on disk: what comes back, what is shared, and what damage is told.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use adtrail_store::StoreError;
use adtrail_store::embedded::checkpoint::{self, Moment};
use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::maintenance::backup::{Amount, Archive, Manifest, StoredFile, Target};
use attribution::ledger::{Ledger, Progress};
use support::facts::{A, HOUR, a_and, activation, click, effect, identified};
use support::rules::rules;
use support::run::{fed, open, position, read, settings};
use support::show::Shown;
use tempfile::TempDir;

use super::verify::bed::Raw;
use crate::support;

/// A store and, beside it, places for backups and for what is restored.
struct Bed {
    dir: TempDir,
}

impl Bed {
    fn new() -> Self {
        Self { dir: TempDir::with_prefix("adtrail-backup-").expect("a temporary folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn open(&self) -> Embedded {
        open(&self.path("store"), &rules())
    }

    /// A store with some rows, and the rows.
    fn fill(&self) -> (Embedded, Vec<Shown>) {
        let facts =
            identified([click("c1", a_and(-HOUR)), activation("a", A), effect("e", a_and(2))]);
        drop(fed(self.open(), &rules(), vec![facts]));
        let mut store = self.open();
        advance(&mut store, 7);
        let rows = read(&store.reader());
        (store, rows)
    }

    fn archive(&self) -> Archive {
        Archive::make(&self.path("backups")).expect("a directory of backups")
    }

    fn back_up(&self, store: &Embedded) -> (Manifest, Amount) {
        let checkpoint = store.checkpoints().take().expect("a checkpoint");
        let archive = self.archive();
        let plan = archive.plan(&checkpoint).expect("a plan");
        let moment = Moment::read(&settings(&checkpoint)).expect("a moment");
        archive.add(plan, &moment, "now".into(), &mut |_, _| ()).expect("a backup")
    }

    fn restore(&self, backup: u32, to: &str) -> Result<Vec<Shown>, StoreError> {
        let archive = Archive::open(&self.path("backups"))?;
        let page = archive.page(backup)?.expect("a backup of this number");
        let target = Target::new(&self.path(to))?;
        archive.restore(&page, &target, &mut |_, _| ())?;
        let settings = settings(&self.path(to));
        target.finish(|| page.check(&settings))?;
        Ok(read(&open_for_reading(&settings)?))
    }

    /// All files of the backups but the mark.
    fn files(&self) -> Vec<PathBuf> {
        let folders = [self.path("backups/files"), self.path("backups")];
        let files = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("a folder"));
        let files = files.map(|file| file.expect("a file").path());
        files.filter(|file| file.is_file() && !file.ends_with("adtrail-backups")).collect()
    }
}

fn advance(store: &mut Embedded, next_offset: i64) {
    let positions = vec![position("clicks", 0, next_offset)];
    store.commit(Vec::new(), &Progress { positions, consumed_until: None }).expect("a commit");
}

#[test]
fn a_backup_is_the_store_of_its_moment() {
    let bed = Bed::new();
    let (mut store, rows) = bed.fill();
    let (first, _) = bed.back_up(&store);
    advance(&mut store, 8);
    let later = identified([activation("b", a_and(HOUR))]);
    drop(fed(store, &rules(), vec![later]));
    let store = bed.open();
    let (second, _) = bed.back_up(&store);
    assert_eq!([&first, &second].map(|page| (page.backup, page.rows)), [(1, 2), (2, 3)]);
    assert_eq!([first, second].map(|page| page.positions["clicks"][&0]), [7, 8]);
    assert_eq!(bed.restore(1, "first").expect("a store"), rows);
    assert_eq!(bed.restore(2, "second").expect("a store"), read(&store.reader()));
    // It is a store like any other.
    let mut again = open(&bed.path("first"), &rules());
    assert_eq!(again.positions().expect("positions"), [position("clicks", 0, 7)]);
    assert_eq!(again.status_counts().values().sum::<u64>(), 2);
    advance(&mut again, 9);
}

fn pieces(page: &Manifest) -> BTreeSet<StoredFile> {
    page.pieces().expect("names of files").into_iter().collect()
}

/// That exactly what is in none of the others was copied, and not the rows and facts.
#[track_caller]
fn check_new(page: &Manifest, new: Amount, others: &[&Manifest]) {
    let there: BTreeSet<StoredFile> = others.iter().flat_map(|other| pieces(other)).collect();
    assert_eq!(new.files as usize, pieces(page).difference(&there).count());
    let shared =
        pieces(page).intersection(&there).filter(|p| p.source.name.ends_with(".sst")).count();
    // How many is the engine's to say: a compaction may have come by.
    assert!(shared > 0, "no table's file is shared");
}

#[test]
fn what_an_earlier_backup_has_is_not_copied_again() {
    let bed = Bed::new();
    let (mut store, rows) = bed.fill();
    let (first, new) = bed.back_up(&store);
    assert_eq!(first.amount(), new);
    advance(&mut store, 8);
    let (second, new) = bed.back_up(&store);
    check_new(&second, new, &[&first]);

    // A backup that was broken off has no page, and the next one goes on with its files.
    for file in bed.files().iter().filter(|file| file.extension() == Some("json".as_ref())) {
        fs::remove_file(file).expect("a page");
    }
    let (third, new) = bed.back_up(&store);
    assert_eq!(third.backup, 1);
    check_new(&third, new, &[&first, &second]);

    // Of a file that was cut short meanwhile the next backup has a new copy.
    let largest = pieces(&third).into_iter().max_by_key(|piece| {
        if piece.source.name.ends_with(".sst") { piece.source.bytes } else { 0 }
    });
    let cut = bed.path("backups/files").join(largest.expect("a file").to_string());
    fs::write(&cut, "short").expect("a file");
    bed.restore(1, "cut").expect_err("a damaged backup");
    bed.back_up(&store);
    assert_eq!(bed.restore(1, "whole").expect("a store"), rows);
}

/// A restored store goes on with numbers of files that the first one used too.
#[test]
fn stores_that_went_apart_are_not_mixed_up() {
    let bed = Bed::new();
    let (store, _) = bed.fill();
    bed.back_up(&store);
    bed.restore(1, "other").expect("a store");
    let of = |id: &str| vec![identified([activation(id, a_and(HOUR))])];
    let other = fed(open(&bed.path("other"), &rules()), &rules(), of("x"));
    let store = fed(store, &rules(), of("y"));
    let (here, there) = (bed.back_up(store.ledger()).0, bed.back_up(other.ledger()).0);
    let shown = [store, other].map(|worker| read(&worker.ledger().reader()));
    assert_ne!(shown[0], shown[1]);
    assert_eq!(bed.restore(here.backup, "here").expect("a store"), shown[0]);
    assert_eq!(bed.restore(there.backup, "there").expect("a store"), shown[1]);
}

/// Each file that a backup has, damaged in each way: told by its name, and nothing is left.
#[test]
fn damage_is_found_and_named() {
    let bed = Bed::new();
    let (store, rows) = bed.fill();
    bed.back_up(&store);
    let files = bed.files();
    assert!(files.len() > 7, "{files:?}");
    #[track_caller]
    fn check(bed: &Bed, file: &Path, problem: &str) {
        let error = bed.restore(1, "restored").expect_err("a damaged backup").to_string();
        let name = file.to_str().expect("a text");
        assert!(error.contains(name) && error.contains(problem), "{problem}, {name}: {error}");
        assert!(!bed.path("restored").exists());
    }
    for file in files {
        let whole = fs::read(&file).expect("a file");
        let is_page = file.extension().is_some_and(|extension| extension == "json");
        for place in [0, whole.len() / 2, whole.len().saturating_sub(1)] {
            // A log in which nothing was written yet.
            if whole.is_empty() {
                continue;
            }
            let mut damaged = whole.clone();
            damaged[place] ^= 1;
            fs::write(&file, damaged).expect("a file");
            check(&bed, &file, "not");
        }
        for other in [[&whole[..], b"more"].concat(), whole[whole.len().min(1)..].to_vec()] {
            if other != whole {
                fs::write(&file, other).expect("a file");
                check(&bed, &file, if is_page { "not" } else { "bytes" });
            }
        }
        if !is_page {
            fs::remove_file(&file).expect("a file");
            check(&bed, &file, "missing");
        }
        fs::write(&file, &whole).expect("a file");
    }
    assert_eq!(bed.restore(1, "restored").expect("a store"), rows);
}

#[test]
fn only_the_newest_are_kept_and_what_they_need() {
    let bed = Bed::new();
    let (mut store, rows) = bed.fill();
    for next_offset in 8..12 {
        bed.back_up(&store);
        advance(&mut store, next_offset);
    }
    // What a backup leaves that was broken off.
    fs::write(bed.archive().partial(), "part").expect("a file");
    let name = format!("000099.sst.4.{}.{}", "0".repeat(16), "0".repeat(32));
    let unused = bed.path("backups/files").join(name);
    fs::write(&unused, "part").expect("a file");

    let archive = bed.archive();
    archive.keep(9).expect("nothing goes");
    assert_eq!(archive.backups().expect("numbers"), [1, 2, 3, 4]);
    assert!(!unused.exists());
    archive.keep(2).expect("two go");
    assert_eq!(archive.backups().expect("numbers"), [3, 4]);
    drop(archive);
    let pages = [3, 4].map(|backup| bed.archive().page(backup).expect("a page").expect("one"));
    let mut needed: Vec<_> = pages.iter().flat_map(|page| page.pieces().expect("files")).collect();
    needed.sort();
    needed.dedup();
    let files = fs::read_dir(bed.path("backups/files")).expect("a folder").count();
    assert_eq!(files, needed.len());
    assert_eq!(bed.restore(3, "restored").expect("a store"), rows);
    // Numbers are not given twice.
    assert_eq!(bed.back_up(&store).0.backup, 5);
}

/// The files of a page that can not be read may be any.
#[test]
fn nothing_goes_while_a_page_can_not_be_read() {
    let bed = Bed::new();
    let (mut store, _) = bed.fill();
    bed.back_up(&store);
    advance(&mut store, 8);
    bed.back_up(&store);
    let files = bed.files();
    let page = files.iter().find(|file| file.to_string_lossy().contains("/2-")).expect("a page");
    let text = fs::read(page).expect("a page");
    fs::write(page, "{}").expect("a page");
    let error = bed.archive().keep(1).expect_err("a damaged page");
    assert!(matches!(&error, StoreError::DamagedBackup { path, .. } if path == page), "{error}");
    fs::write(page, text).expect("a page");
    assert_eq!(bed.files().len(), files.len());
    bed.restore(1, "restored").expect("a store");
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let bed = Bed::new();
    let folder = bed.path("backups");
    fs::create_dir(&folder).expect("a folder");
    let open = |folder: &Path| Archive::open(folder).expect_err("no backups");
    assert!(matches!(open(&folder), StoreError::NoBackups { .. }));
    // What is in every new disk is nobody's.
    fs::create_dir(folder.join("lost+found")).expect("a folder");
    drop(bed.archive());
    fs::remove_file(folder.join("adtrail-backups")).expect("a file");
    let make = || Archive::make(&folder).expect_err("no backups");
    assert!(matches!(make(), StoreError::NoBackups { .. }));
    fs::write(folder.join("adtrail-backups"), "adtrail backups, format 2\n").expect("a file");
    assert!(matches!(make(), StoreError::NoBackups { .. }));
    assert!(matches!(open(&folder), StoreError::NoBackups { .. }));
    let missing = open(&bed.path("missing")).to_string();
    assert!(missing.contains("missing") && missing.contains("No such file"), "{missing}");
}

#[test]
fn nothing_is_restored_over_anything() {
    let bed = Bed::new();
    let (store, _) = bed.fill();
    bed.back_up(&store);
    for there in ["CURRENT", "notes.txt"] {
        let folder = bed.path("there");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(there), "mine").expect("a file");
        let error = bed.restore(1, "there").expect_err("something is there");
        assert!(matches!(error, StoreError::NotEmpty { .. }), "{error}");
        assert_eq!(fs::read_to_string(folder.join(there)).expect("a file"), "mine");
        fs::remove_file(folder.join(there)).expect("a file");
    }
    bed.restore(1, "there").expect("an empty directory is as good as none");
}

/// `cut_off.rs` shows that half a store does not open.
#[test]
fn a_directory_is_restored_into_by_one_and_removed_on_failure() {
    let bed = Bed::new();
    let (store, _) = bed.fill();
    bed.back_up(&store);
    let archive = Archive::open(&bed.path("backups")).expect("backups");
    let page = archive.page(1).expect("a page").expect("one");
    let target = Target::new(&bed.path("half")).expect("a target");
    archive.restore(&page, &target, &mut |_, _| ()).expect("all files");
    // Two at once do not fill one directory.
    let error = Target::new(&bed.path("half")).expect_err("two at once");
    assert!(matches!(error, StoreError::BackupUnderWay { .. }), "{error}");
    // Nor does one stay that turns out to be another's.
    let refused = target.finish(|| Err(StoreError::Missing { path: PathBuf::new() }));
    assert!(matches!(refused, Err(StoreError::Missing { .. })));
    assert!(!bed.path("half").exists());
}

#[test]
fn a_backup_of_another_layout_is_not_restored() {
    let bed = Bed::new();
    let (store, _) = bed.fill();
    let checkpoint = store.checkpoints().take().expect("a checkpoint");
    let moment = Moment::read(&settings(&checkpoint)).expect("a moment");
    let layout = Raw::open(&checkpoint).change_layout(|layout| layout);
    for (other, advice) in [(layout - 1, "an empty store"), (layout + 1, "use that version")] {
        Raw::open(&checkpoint).change_layout(|_| other);
        let archive = bed.archive();
        let plan = archive.plan(&checkpoint).expect("a plan");
        let (page, _) =
            archive.add(plan, &moment, "then".into(), &mut |_, _| ()).expect("a backup");
        drop(archive);
        let error = bed.restore(page.backup, "restored").expect_err("another layout");
        assert!(
            matches!(error, StoreError::OtherLayout { found, .. } if found == other),
            "{error}"
        );
        assert!(error.to_string().contains(advice), "{error}");
        assert!(!bed.path("restored").exists());
    }
}

#[test]
fn a_store_that_says_something_else_is_not_restored() {
    let bed = Bed::new();
    let (store, _) = bed.fill();
    let checkpoint = store.checkpoints().take().expect("a checkpoint");
    let moment = Moment::read(&settings(&checkpoint)).expect("a moment");
    let archive = bed.archive();
    let plan = archive.plan(&checkpoint).expect("a plan");
    let other = Moment { rows: moment.rows + 1, ..moment };
    archive.add(plan, &other, "now".into(), &mut |_, _| ()).expect("a backup");
    drop(archive);
    let error = bed.restore(1, "restored").expect_err("another store");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    assert!(!bed.path("restored").exists());
}

#[test]
fn one_writes_backups_at_a_time() {
    let bed = Bed::new();
    let archive = bed.archive();
    let error = Archive::make(&bed.path("backups")).expect_err("another");
    assert!(matches!(error, StoreError::BackupUnderWay { .. }), "{error}");
    let error = Archive::open(&bed.path("backups")).expect_err("another");
    assert!(matches!(error, StoreError::BackupUnderWay { .. }), "{error}");
    drop(archive);
    let reading = Archive::open(&bed.path("backups")).expect("backups");
    Archive::open(&bed.path("backups")).expect("any number may read");
    let error = Archive::make(&bed.path("backups")).expect_err("somebody reads");
    assert!(matches!(error, StoreError::BackupUnderWay { .. }), "{error}");
    drop(reading);
    bed.archive();
}

#[test]
fn a_checkpoint_stays_while_it_is_held() {
    let bed = Bed::new();
    let (store, rows) = bed.fill();
    let path = bed.path("store");
    let checkpoint = store.checkpoints().take().expect("a checkpoint");
    let held = checkpoint::hold(&path).expect("a checkpoint");
    for error in [
        store.checkpoints().take().map(drop).expect_err("it is held"),
        checkpoint::clear(&path).expect_err("it is held"),
    ] {
        assert!(matches!(error, StoreError::BackupUnderWay { .. }), "{error}");
    }
    drop(held);
    // Nobody has it any more: the next takes its place. A store does not mind one being there.
    fs::create_dir(checkpoint.with_extension("tmp")).expect("a folder");
    store.checkpoints().take().expect("a checkpoint");
    drop(store);
    let store = bed.open();
    assert_eq!(read(&store.reader()), rows);
    checkpoint::clear(&path).expect("nobody has it");
    assert!(!checkpoint.exists() && !checkpoint.with_extension("tmp").exists());
    checkpoint::clear(&path).expect("there is none");
}
