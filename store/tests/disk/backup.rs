//! Backups of a store on disk: restored content, shared files, and reports of damage.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use adtrail_store::StoreError;
use adtrail_store::embedded::checkpoint::{self, StoreContents};
use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::maintenance::backup::{Amount, Archive, Manifest, StoredFile, Target};
use attribution::ledger::{Ledger, Progress};
use support::facts::{A, HOUR, a_plus, activation, click, effect, identified};
use support::row_text::RowText;
use support::rules::rules;
use support::run::{open, position, read, settings, worker_after};
use tempfile::TempDir;

use super::verify::fixture::Raw;
use crate::support;

/// A folder with a store, backups and restored stores.
struct Fixture {
    dir: TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self {
            dir: TempDir::with_prefix("adtrail-backup-").expect("the temporary folder is created"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn open(&self) -> Embedded {
        open(&self.path("store"), &rules())
    }

    /// Fills the store, and returns it with its rows.
    fn fill(&self) -> (Embedded, Vec<RowText>) {
        let facts =
            identified([click("c1", a_plus(-HOUR)), activation("a", A), effect("e", a_plus(2))]);
        drop(worker_after(self.open(), &rules(), vec![facts]));
        let mut store = self.open();
        advance(&mut store, 7);
        let rows = read(&store.reader());
        (store, rows)
    }

    fn archive(&self) -> Archive {
        Archive::create(&self.path("backups")).expect("the folder of backups is created")
    }

    fn back_up(&self, store: &Embedded) -> (Manifest, Amount) {
        back_up(&self.path("backups"), store)
    }

    fn restore(&self, backup: u32, to: &str) -> Result<Vec<RowText>, StoreError> {
        restore(&self.path("backups"), backup, &self.path(to))?;
        Ok(read(&open_for_reading(&settings(&self.path(to)))?))
    }

    /// Returns all files of the backups except the marker file.
    fn files(&self) -> Vec<PathBuf> {
        let folders = [self.path("backups/files"), self.path("backups")];
        let files =
            folders.iter().flat_map(|folder| fs::read_dir(folder).expect("the folder is readable"));
        let files = files.map(|file| file.expect("the folder is readable").path());
        files.filter(|file| file.is_file() && !file.ends_with("adtrail-backups")).collect()
    }
}

/// Creates a checkpoint, and returns it with its contents.
fn checkpoint_of(store: &Embedded) -> (PathBuf, StoreContents) {
    let checkpoint = store.checkpoints().take().expect("the checkpoint is created");
    let contents = StoreContents::read(&settings(&checkpoint)).expect("the checkpoint is readable");
    (checkpoint, contents)
}

fn add(archive: &Archive, checkpoint: &Path, contents: &StoreContents) -> (Manifest, Amount) {
    let plan = archive.plan(checkpoint).expect("the checkpoint is readable");
    archive.add(plan, contents, "now".into(), &mut |_, _| ()).expect("the backup is added")
}

/// Adds a backup of the store to the folder.
pub fn back_up(folder: &Path, store: &Embedded) -> (Manifest, Amount) {
    let (checkpoint, contents) = checkpoint_of(store);
    let archive = Archive::create(folder).expect("the folder of backups is created");
    add(&archive, &checkpoint, &contents)
}

/// Restores a backup of the folder.
pub fn restore(folder: &Path, backup: u32, to: &Path) -> Result<(), StoreError> {
    let archive = Archive::open(folder)?;
    let manifest = archive.manifest(backup)?.expect("a backup has this number");
    let target = Target::new(to)?;
    archive.restore(&manifest, &target, &mut |_, _| ())?;
    target.finish(|| manifest.check(&settings(to)))
}

fn advance(store: &mut Embedded, next_offset: i64) {
    let positions = vec![position("clicks", 0, next_offset)];
    store
        .commit(Vec::new(), &Progress { positions, consumed_until: None })
        .expect("the commit begins");
    store.wait_for_commit().expect("the commit succeeds");
}

#[test]
fn backups_are_restricted_to_their_owner_and_links_are_not_followed() {
    let fixture = Fixture::new();
    let (store, rows) = fixture.fill();
    let (backups, target) = (fixture.path("backups"), fixture.path("target"));
    fixture.archive();
    fs::set_permissions(&backups, Permissions::from_mode(0o777)).expect("the mode is changed");
    fs::write(&target, "mine").expect("the file is written");
    symlink(&target, backups.join("partial")).expect("the link is created");
    fixture.back_up(&store);
    let mode = |path: &Path| path.metadata().expect("it exists").permissions().mode() & 0o777;
    assert_eq!([mode(&backups), mode(&backups.join("files"))], [0o700; 2]);
    for file in fixture.files() {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    assert_eq!(fs::read(&target).expect("the file is readable"), b"mine");
    assert_eq!(fixture.restore(1, "restored").expect("the backup is restored"), rows);
    assert_eq!(mode(&fixture.path("restored")), 0o700);
    let marker = backups.join("adtrail-backups");
    fs::remove_file(&marker).expect("the file is removed");
    symlink(&target, &marker).expect("the link is created");
    let error = Archive::create(&backups).expect_err("the marker is a link").to_string();
    assert!(error.contains("adtrail-backups: it is a symbolic link"), "{error}");
}

#[test]
fn a_backup_restores_the_store_at_its_time() {
    let fixture = Fixture::new();
    let (mut store, rows) = fixture.fill();
    let (first, _) = fixture.back_up(&store);
    advance(&mut store, 8);
    let later = identified([activation("b", a_plus(HOUR))]);
    drop(worker_after(store, &rules(), vec![later]));
    let store = fixture.open();
    let (second, _) = fixture.back_up(&store);
    assert_eq!(
        [&first, &second].map(|manifest| (manifest.backup, manifest.rows)),
        [(1, 2), (2, 3)]
    );
    assert_eq!([first, second].map(|manifest| manifest.positions["clicks"][&0]), [7, 8]);
    assert_eq!(fixture.restore(1, "first").expect("the restore succeeds"), rows);
    assert_eq!(fixture.restore(2, "second").expect("the restore succeeds"), read(&store.reader()));
    // A restored store can be used like any other.
    let mut restored = open(&fixture.path("first"), &rules());
    assert_eq!(
        restored.positions().expect("the positions are readable"),
        [position("clicks", 0, 7)]
    );
    assert_eq!(restored.status_counts().values().sum::<u64>(), 2);
    advance(&mut restored, 9);
}

fn stored_files(manifest: &Manifest) -> BTreeSet<StoredFile> {
    manifest.files().expect("the manifest names valid files").into_iter().collect()
}

/// Checks that exactly the files missing from all earlier backups were copied, and that table files are shared.
#[track_caller]
fn check_new(manifest: &Manifest, new: Amount, earlier: &[&Manifest]) {
    let existing: BTreeSet<StoredFile> =
        earlier.iter().flat_map(|backup| stored_files(backup)).collect();
    let files = stored_files(manifest);
    assert_eq!(new.files as usize, files.difference(&existing).count());
    let shared = files.intersection(&existing).filter(|file| file.source.name.ends_with(".sst"));
    // The exact number depends on compactions.
    assert!(shared.count() > 0, "no table file is shared");
}

#[test]
fn files_of_an_earlier_backup_are_shared() {
    let fixture = Fixture::new();
    let (mut store, rows) = fixture.fill();
    let (first, new) = fixture.back_up(&store);
    assert_eq!(first.amount(), new);
    advance(&mut store, 8);
    let (second, new) = fixture.back_up(&store);
    check_new(&second, new, &[&first]);

    // An interrupted backup has no manifest; the next one reuses its files.
    for file in fixture.files().iter().filter(|file| file.extension() == Some("json".as_ref())) {
        fs::remove_file(file).expect("the file is removed");
    }
    let (third, new) = fixture.back_up(&store);
    assert_eq!(third.backup, 1);
    check_new(&third, new, &[&first, &second]);

    // The next backup makes a new copy of a truncated file.
    let largest = stored_files(&third)
        .into_iter()
        .max_by_key(|file| if file.source.name.ends_with(".sst") { file.source.bytes } else { 0 });
    let truncated =
        fixture.path("backups/files").join(largest.expect("the backup has files").to_string());
    fs::write(&truncated, "short").expect("the file is written");
    fixture.restore(1, "cut").expect_err("the backup is damaged");
    fixture.back_up(&store);
    assert_eq!(fixture.restore(1, "whole").expect("the restore succeeds"), rows);
}

/// A restored store continues with file numbers that the original store also uses.
#[test]
fn backups_of_diverged_stores_are_not_mixed_up() {
    let fixture = Fixture::new();
    let (store, _) = fixture.fill();
    fixture.back_up(&store);
    fixture.restore(1, "other").expect("the restore succeeds");
    let batch = |id: &str| vec![identified([activation(id, a_plus(HOUR))])];
    let other = worker_after(open(&fixture.path("other"), &rules()), &rules(), batch("x"));
    let store = worker_after(store, &rules(), batch("y"));
    let store_backup = fixture.back_up(store.ledger()).0.backup;
    let other_backup = fixture.back_up(other.ledger()).0.backup;
    let shown = [store, other].map(|worker| read(&worker.ledger().reader()));
    assert_ne!(shown[0], shown[1]);
    assert_eq!(
        fixture.restore(store_backup, "restored-store").expect("the restore succeeds"),
        shown[0]
    );
    assert_eq!(
        fixture.restore(other_backup, "restored-other").expect("the restore succeeds"),
        shown[1]
    );
}

/// Damages each file of a backup in each way: the error names the file, and no partial store remains.
#[test]
fn damage_is_found_and_its_file_named() {
    let fixture = Fixture::new();
    let (store, rows) = fixture.fill();
    fixture.back_up(&store);
    let files = fixture.files();
    assert!(files.len() > 7, "{files:?}");
    #[track_caller]
    fn check(fixture: &Fixture, file: &Path, problem: &str) {
        let error = fixture.restore(1, "restored").expect_err("the backup is damaged").to_string();
        let name = file.to_str().expect("the path is UTF-8");
        assert!(error.contains(name) && error.contains(problem), "{problem}, {name}: {error}");
        assert!(!fixture.path("restored").exists());
    }
    for file in files {
        let whole = fs::read(&file).expect("the file is readable");
        let is_manifest = file.extension().is_some_and(|extension| extension == "json");
        for offset in [0, whole.len() / 2, whole.len().saturating_sub(1)] {
            // The log of a new store is empty.
            if whole.is_empty() {
                continue;
            }
            let mut damaged = whole.clone();
            damaged[offset] ^= 1;
            fs::write(&file, damaged).expect("the file is written");
            check(&fixture, &file, "checksum mismatch");
        }
        for damaged in [[&whole[..], b"more"].concat(), whole[whole.len().min(1)..].to_vec()] {
            if damaged != whole {
                fs::write(&file, damaged).expect("the file is written");
                check(&fixture, &file, if is_manifest { "checksum mismatch" } else { "bytes" });
            }
        }
        if !is_manifest {
            fs::remove_file(&file).expect("the file is removed");
            check(&fixture, &file, "missing");
        }
        fs::write(&file, &whole).expect("the file is written");
    }
    assert_eq!(fixture.restore(1, "restored").expect("the restore succeeds"), rows);
}

#[test]
fn only_the_newest_backups_and_their_files_are_kept() {
    let fixture = Fixture::new();
    let (mut store, rows) = fixture.fill();
    for next_offset in 8..12 {
        fixture.back_up(&store);
        advance(&mut store, next_offset);
    }
    // Files that an interrupted backup leaves.
    fs::write(fixture.archive().partial(), "part").expect("the file is written");
    let name = format!("000099.sst.4.{}.{}", "0".repeat(16), "0".repeat(32));
    let unused = fixture.path("backups/files").join(name);
    fs::write(&unused, "part").expect("the file is written");

    let archive = fixture.archive();
    archive.keep(9).expect("nothing is deleted");
    assert_eq!(archive.backups().expect("the folder is readable"), [1, 2, 3, 4]);
    assert!(!unused.exists());
    archive.keep(2).expect("the two oldest backups are deleted");
    assert_eq!(archive.backups().expect("the folder is readable"), [3, 4]);
    drop(archive);
    let manifests = [3, 4].map(|backup| {
        fixture
            .archive()
            .manifest(backup)
            .expect("the manifest is readable")
            .expect("the backup exists")
    });
    let mut needed: Vec<_> = manifests
        .iter()
        .flat_map(|manifest| manifest.files().expect("the manifest names valid files"))
        .collect();
    needed.sort();
    needed.dedup();
    let files =
        fs::read_dir(fixture.path("backups/files")).expect("the folder is readable").count();
    assert_eq!(files, needed.len());
    assert_eq!(fixture.restore(3, "restored").expect("the restore succeeds"), rows);
    // Numbers are not reused.
    assert_eq!(fixture.back_up(&store).0.backup, 5);
}

/// An unreadable manifest may refer to any file.
#[test]
fn nothing_is_deleted_while_a_manifest_is_unreadable() {
    let fixture = Fixture::new();
    let (mut store, _) = fixture.fill();
    fixture.back_up(&store);
    advance(&mut store, 8);
    fixture.back_up(&store);
    let files = fixture.files();
    let manifest = files.iter().find(|file| file.to_string_lossy().contains("/2-"));
    let manifest = manifest.expect("backup 2 has a manifest");
    let text = fs::read(manifest).expect("the file is readable");
    fs::write(manifest, "{}").expect("the file is written");
    let error = fixture.archive().keep(1).expect_err("the manifest is damaged");
    assert!(
        matches!(&error, StoreError::DamagedBackup { path, .. } if path == manifest),
        "{error}"
    );
    fs::write(manifest, text).expect("the file is written");
    assert_eq!(fixture.files().len(), files.len());
    fixture.restore(1, "restored").expect("the restore succeeds");
}

#[test]
fn a_foreign_directory_is_refused_and_unchanged() {
    let fixture = Fixture::new();
    let folder = fixture.path("backups");
    fs::create_dir(&folder).expect("the folder is created");
    let open = |folder: &Path| Archive::open(folder).expect_err("the folder has no backups");
    assert!(matches!(open(&folder), StoreError::NoBackups { .. }));
    // Every new ext4 file system contains this folder.
    fs::create_dir(folder.join("lost+found")).expect("the folder is created");
    drop(fixture.archive());
    fs::remove_file(folder.join("adtrail-backups")).expect("the file is removed");
    let make = || Archive::create(&folder).expect_err("the folder has no backups");
    assert!(matches!(make(), StoreError::NoBackups { .. }));
    fs::write(folder.join("adtrail-backups"), "adtrail backups, format 2\n")
        .expect("the file is written");
    assert!(matches!(make(), StoreError::NoBackups { .. }));
    assert!(matches!(open(&folder), StoreError::NoBackups { .. }));
    let missing = open(&fixture.path("missing")).to_string();
    assert!(missing.contains("missing") && missing.contains("No such file"), "{missing}");
}

#[test]
fn a_restore_requires_an_empty_directory() {
    let fixture = Fixture::new();
    let (store, _) = fixture.fill();
    fixture.back_up(&store);
    for name in ["CURRENT", "notes.txt"] {
        let folder = fixture.path("occupied");
        fs::create_dir_all(&folder).expect("the folder is created");
        fs::write(folder.join(name), "mine").expect("the file is written");
        let error = fixture.restore(1, "occupied").expect_err("the folder is not empty");
        assert!(matches!(error, StoreError::NotEmpty { .. }), "{error}");
        assert_eq!(fs::read_to_string(folder.join(name)).expect("the file is readable"), "mine");
        fs::remove_file(folder.join(name)).expect("the file is removed");
    }
    fixture.restore(1, "occupied").expect("an empty folder is accepted");
}

/// `interrupted.rs` shows that a half-restored store does not open.
#[test]
fn a_restore_locks_its_directory_and_removes_it_on_failure() {
    let fixture = Fixture::new();
    let (store, _) = fixture.fill();
    fixture.back_up(&store);
    let archive = Archive::open(&fixture.path("backups")).expect("the folder of backups opens");
    let manifest = archive.manifest(1).expect("the manifest is readable").expect("backup 1 exists");
    let target = Target::new(&fixture.path("half")).expect("the target is empty");
    archive.restore(&manifest, &target, &mut |_, _| ()).expect("the files are restored");
    // Another restore into the same directory is refused.
    let error = Target::new(&fixture.path("half")).expect_err("another restore holds the lock");
    assert!(matches!(error, StoreError::BackupUnderWay { .. }), "{error}");
    // A restored store that fails its check is removed.
    let refused = target.finish(|| Err(StoreError::Missing { path: PathBuf::new() }));
    assert!(matches!(refused, Err(StoreError::Missing { .. })));
    assert!(!fixture.path("half").exists());
}

#[test]
fn a_backup_of_another_layout_is_not_restored() {
    let fixture = Fixture::new();
    let (store, _) = fixture.fill();
    let (checkpoint, contents) = checkpoint_of(&store);
    let layout = Raw::open(&checkpoint).change_layout(|layout| layout);
    for (other, advice) in [(layout - 1, "an empty store"), (layout + 1, "use that version")] {
        Raw::open(&checkpoint).change_layout(|_| other);
        let (manifest, _) = add(&fixture.archive(), &checkpoint, &contents);
        let error =
            fixture.restore(manifest.backup, "restored").expect_err("the layout version differs");
        assert!(
            matches!(error, StoreError::OtherLayout { found, .. } if found == other),
            "{error}"
        );
        assert!(error.to_string().contains(advice), "{error}");
        assert!(!fixture.path("restored").exists());
    }
}

#[test]
fn a_backup_with_a_wrong_row_count_is_not_restored() {
    let fixture = Fixture::new();
    let (store, _) = fixture.fill();
    let (checkpoint, contents) = checkpoint_of(&store);
    add(&fixture.archive(), &checkpoint, &StoreContents { rows: contents.rows + 1, ..contents });
    let error = fixture.restore(1, "restored").expect_err("the row count differs");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    assert!(!fixture.path("restored").exists());
}

#[test]
fn backups_have_one_writer_at_a_time() {
    let fixture = Fixture::new();
    let archive = fixture.archive();
    let error =
        Archive::create(&fixture.path("backups")).expect_err("another writer holds the lock");
    assert!(matches!(error, StoreError::BackupUnderWay { .. }), "{error}");
    let error = Archive::open(&fixture.path("backups")).expect_err("a writer holds the lock");
    assert!(matches!(error, StoreError::BackupUnderWay { .. }), "{error}");
    drop(archive);
    let reading = Archive::open(&fixture.path("backups")).expect("the folder of backups opens");
    Archive::open(&fixture.path("backups")).expect("readers do not exclude each other");
    let error = Archive::create(&fixture.path("backups")).expect_err("a reader holds the lock");
    assert!(matches!(error, StoreError::BackupUnderWay { .. }), "{error}");
    drop(reading);
    fixture.archive();
}

#[test]
fn a_locked_checkpoint_is_kept() {
    let fixture = Fixture::new();
    let (store, rows) = fixture.fill();
    let path = fixture.path("store");
    let checkpoint = store.checkpoints().take().expect("the checkpoint is created");
    let lock = checkpoint::lock(&path).expect("the checkpoint exists");
    for error in [
        store.checkpoints().take().map(drop).expect_err("the checkpoint is locked"),
        checkpoint::clear(&path).expect_err("the checkpoint is locked"),
    ] {
        assert!(matches!(error, StoreError::BackupUnderWay { .. }), "{error}");
    }
    drop(lock);
    // Once the lock is released, the next checkpoint replaces this one. A checkpoint does not affect its store.
    fs::create_dir(checkpoint.with_extension("tmp")).expect("the folder is created");
    store.checkpoints().take().expect("the checkpoint is created");
    drop(store);
    let store = fixture.open();
    assert_eq!(read(&store.reader()), rows);
    checkpoint::clear(&path).expect("the checkpoint is not locked");
    assert!(!checkpoint.exists() && !checkpoint.with_extension("tmp").exists());
    checkpoint::clear(&path).expect("clearing nothing succeeds");
}
