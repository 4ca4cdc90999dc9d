//! Stores of another layout: whatever opens a store refuses them, says what to do, and changes no byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use adtrail_store::embedded::checkpoint::Moment;
use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::maintenance::copy_store::Source;
use adtrail_store::maintenance::verify::{Options, repair, verify};
use rocksdb::Options as TableOptions;

use super::verify::bed::{Bed, Raw};

/// All bytes of a directory, and when they were written.
fn files(store: &Path) -> BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
    let paths = fs::read_dir(store).expect("a folder").map(|file| file.expect("a file").path());
    let file = |path: PathBuf| {
        let written = path.metadata().and_then(|data| data.modified()).expect("a time");
        let bytes = fs::read(&path).expect("a file");
        (path, (written, bytes))
    };
    paths.map(file).collect()
}

/// Writes the version that follows from the present one, and gives that one.
fn change_layout(bed: &Bed, change: impl FnOnce(u32) -> u32) -> u32 {
    Raw::open(bed.path()).change_layout(change)
}

#[track_caller]
fn check_refused(bed: &Bed, (found, expected): (u32, u32), advice: &str) {
    let (settings, policy) = (&bed.settings, &bed.policy);
    let options = Options { examples_max: 1, have_settings_changed: false };
    let before = files(bed.path());
    let outcomes = [
        ("run", Embedded::open(settings, policy).map(drop)),
        ("download", open_for_reading(settings).map(drop)),
        ("backup", Moment::read(settings).map(drop)),
        ("verify", verify(settings, policy, &options, &mut |_| ()).map(drop)),
        ("repair", repair(settings, policy, &options, &mut |_| ()).map(drop)),
        ("copy", Source::open(settings).map(drop)),
    ];
    let versions = format!("has layout version {found}, this adtrail reads version {expected}: ");
    for (way, outcome) in outcomes {
        let error = outcome.expect_err(way).to_string();
        assert!(error.contains(&versions) && error.ends_with(advice), "{way}: {error}");
    }
    assert!(files(bed.path()) == before, "a file was changed");
}

const OLDER: &str = "start with an empty store to re-read all records from Kafka";
const NEWER: &str = "use that version";

#[test]
fn a_store_of_another_layout_is_refused_and_not_changed() {
    let bed = Bed::new();
    let layout = change_layout(&bed, |layout| layout - 1);
    check_refused(&bed, (layout - 1, layout), OLDER);
    change_layout(&bed, |_| layout + 1);
    check_refused(&bed, (layout + 1, layout), NEWER);
    change_layout(&bed, |_| layout);
    bed.check_goes_on();
}

/// The engine does not open them with our tables, or makes those that are missing.
#[test]
fn a_store_with_other_tables_is_refused_by_its_version() {
    let bed = Bed::new();
    let layout = change_layout(&bed, |layout| layout + 1);
    Raw::open(bed.path()).0.create_cf("more", &TableOptions::default()).expect("a table");
    check_refused(&bed, (layout + 1, layout), NEWER);
    let bed = Bed::new();
    change_layout(&bed, |layout| layout - 1);
    Raw::open(bed.path()).0.drop_cf("brought").expect("a table that goes");
    check_refused(&bed, (layout - 1, layout), OLDER);
}
