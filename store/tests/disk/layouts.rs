//! Stores of another layout version: every way to open them fails, says what to do, and changes no byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use adtrail_store::embedded::checkpoint::StoreContents;
use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::maintenance::copy_store::Source;
use adtrail_store::maintenance::verify::{Options, repair, verify};
use rocksdb::Options as TableOptions;

use super::verify::fixture::{Fixture, Raw};

/// Returns the files of a directory with their modification times and contents.
fn files(store: &Path) -> BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
    let paths = fs::read_dir(store)
        .expect("the folder is readable")
        .map(|file| file.expect("the folder is readable").path());
    let file = |path: PathBuf| {
        let written = path
            .metadata()
            .and_then(|data| data.modified())
            .expect("the file has a modification time");
        let bytes = fs::read(&path).expect("the file is readable");
        (path, (written, bytes))
    };
    paths.map(file).collect()
}

/// Changes the layout version and returns the previous one.
fn change_layout(fixture: &Fixture, change: impl FnOnce(u32) -> u32) -> u32 {
    Raw::open(fixture.path()).change_layout(change)
}

#[track_caller]
fn check_refused(fixture: &Fixture, (found, expected): (u32, u32), advice: &str) {
    let (settings, policy) = (&fixture.settings, &fixture.policy);
    let options = Options { examples_max: 1, have_settings_changed: false };
    let before = files(fixture.path());
    let outcomes = [
        ("run", Embedded::open(settings, policy).map(drop)),
        ("download", open_for_reading(settings).map(drop)),
        ("backup", StoreContents::read(settings).map(drop)),
        ("verify", verify(settings, policy, &options, &mut |_| ()).map(drop)),
        ("repair", repair(settings, policy, &options, &mut |_| ()).map(drop)),
        ("copy", Source::open(settings).map(drop)),
    ];
    let versions = format!("has layout version {found}, this adtrail reads version {expected}: ");
    for (command, outcome) in outcomes {
        let error = outcome.expect_err(command).to_string();
        assert!(error.contains(&versions) && error.ends_with(advice), "{command}: {error}");
    }
    assert!(files(fixture.path()) == before, "a file was changed");
}

const OLDER: &str = "start with an empty store to re-read all records from Kafka (over HBase also with another kafka.group)";
const NEWER: &str = "use that version";

#[test]
fn a_store_of_another_layout_is_refused_and_not_changed() {
    let fixture = Fixture::new();
    let layout = change_layout(&fixture, |layout| layout - 1);
    check_refused(&fixture, (layout - 1, layout), OLDER);
    change_layout(&fixture, |_| layout + 1);
    check_refused(&fixture, (layout + 1, layout), NEWER);
    change_layout(&fixture, |_| layout);
    fixture.check_usable();
}

/// RocksDB would refuse to open such a store with our tables, or would create the missing ones.
#[test]
fn a_store_with_other_tables_is_refused_because_of_its_version() {
    let fixture = Fixture::new();
    let layout = change_layout(&fixture, |layout| layout + 1);
    Raw::open(fixture.path())
        .0
        .create_cf("more", &TableOptions::default())
        .expect("the table is created");
    check_refused(&fixture, (layout + 1, layout), NEWER);
    let fixture = Fixture::new();
    change_layout(&fixture, |layout| layout - 1);
    Raw::open(fixture.path()).0.drop_cf("brought").expect("the table is dropped");
    check_refused(&fixture, (layout - 1, layout), OLDER);
}
