//! Damaged files are found and named, and their data is not served.

use std::fs;
use std::path::{Path, PathBuf};

use adtrail_store::embedded::open_for_reading;
use adtrail_store::maintenance::verify::{Check, Problem};

use super::fixture::{Case, Fixture, Raw};
use super::support::folders::{files, newest_log};
use super::support::run::read;

/// Returns the largest file of a table, or of all tables of touches.
fn table_file(path: &Path, table: &str) -> PathBuf {
    file_and_table(path, table).0
}

/// Returns the largest file of a table, or of all tables of touches, and the name of its table.
fn file_and_table(path: &Path, table: &str) -> (PathBuf, String) {
    let raw = Raw::open(path);
    let files = raw.0.live_files().expect("RocksDB lists its files");
    let is_of = |name: &str| name == table || (table == "touches" && name.starts_with("touches-"));
    let of_table = files.into_iter().filter(|file| is_of(&file.column_family_name));
    let file = of_table.max_by_key(|file| file.size).expect("the table has a file");
    (path.join(file.name.trim_start_matches('/')), file.column_family_name)
}

pub fn flip(file: &Path, at: impl FnOnce(usize) -> usize) {
    let mut bytes = fs::read(file).expect("the file is readable");
    let at = at(bytes.len());
    bytes[at] ^= 0x10;
    fs::write(file, bytes).expect("the file is written");
}

fn name(file: &Path) -> String {
    file.file_name().expect("the path has a file name").to_string_lossy().into_owned()
}

/// Checks that the problem is found with the name of the file, and that a repair writes nothing.
fn check(problem: Problem, table: &str, damage: impl FnOnce(&Path)) {
    let _case = Case::new(format!("{problem:?} in {table}"));
    let fixture = Fixture::new();
    let file = table_file(fixture.path(), table);
    damage(&file);
    let report = fixture.verify();
    assert!(report.found.contains_key(&problem), "{table}: {:?}", report.examples);
    let named = report.examples.iter().filter(|example| example.problem == problem);
    let named: Vec<_> = named.map(|example| example.at.as_str()).collect();
    assert!(named.iter().any(|at| at.contains(&name(&file))), "{named:?}");
    assert!(named.iter().any(|at| at.contains(table)), "{named:?}");
    let size = fs::metadata(&file).map(|data| data.len()).ok();
    assert!(!fixture.repair().is_repaired());
    assert_eq!(fs::metadata(&file).map(|data| data.len()).ok(), size);
    assert!(!fixture.verify().is_whole());
    // Without meta, the retention of facts is unknown, so only files are checked.
    if !["touches", "meta"].contains(&table) {
        assert!(report.checked(Check::Facts) > 500, "the other facts are not checked");
    }
}

const TABLES: [&str; 10] = [
    "events",
    "touches",
    "activations",
    "effects",
    "cells",
    "counts",
    "brought",
    "outbox",
    "meta",
    "offsets",
];

#[test]
fn damaged_files_are_named() {
    for table in TABLES {
        check(Problem::FileDamaged, table, |file| flip(file, |_| 20));
    }
    for table in ["events", "touches", "meta"] {
        check(Problem::FileCut, table, |file| {
            let bytes = fs::read(file).expect("the file is readable");
            fs::write(file, &bytes[..bytes.len() / 2]).expect("the file is written");
        });
    }
    for table in ["events", "activations"] {
        check(Problem::FileMissing, table, |file| {
            fs::remove_file(file).expect("the file is removed")
        });
    }
    damaged_manifest();
    damaged_or_missing_current();
    log_damaged_in_the_middle();
    unreadable_rows_do_not_make_counts_wrong();
}

/// A flipped bit anywhere is found, or changes nothing that is read.
#[test]
fn flipped_bits_are_never_served() {
    let original = Fixture::original_export();
    for table in ["events", "touches"] {
        let fixture = Fixture::new();
        let file = table_file(fixture.path(), table);
        let bytes = fs::read(&file).expect("the file is readable");
        let mut found = 0;
        let positions = testbed::length(8, 24);
        for position in 0..positions {
            let at = bytes.len() * position / positions;
            flip(&file, |_| at);
            let is_found = !fixture.verify().is_whole();
            found += usize::from(is_found);
            let shown = std::panic::catch_unwind(|| {
                let reader = open_for_reading(&fixture.settings).ok()?;
                Some(read(&reader).into_iter().map(|row| row.whole).collect::<Vec<_>>())
            });
            if let Ok(Some(shown)) = shown {
                assert!(shown == original, "byte {at} of {} is served", bytes.len());
            }
            fs::write(&file, &bytes).expect("the file is written");
        }
        assert!(found * 2 > positions, "{table}: {found} of {positions}");
        fixture.check_whole();
    }
}

fn damaged_manifest() {
    let _case = Case::new("the manifest is damaged");
    let fixture = Fixture::new();
    let manifest = files(fixture.path(), |name| name.starts_with("MANIFEST-")).remove(0);
    flip(&manifest, |bytes| bytes / 2);
    let report = fixture.verify();
    assert_eq!(report.found.keys().collect::<Vec<_>>(), [&Problem::FileDamaged]);
    assert!(report.examples[0].at.contains("MANIFEST"), "{:?}", report.examples);
    assert!(!fixture.repair().is_repaired());
}

fn damaged_or_missing_current() {
    let _case = Case::new("current is damaged or missing");
    let fixture = Fixture::new();
    fs::write(fixture.path().join("CURRENT"), "MANIFEST-999999\n").expect("the file is written");
    assert!(!fixture.verify().is_whole());
    let options = adtrail_store::maintenance::verify::Options {
        examples_max: 1,
        have_settings_changed: false,
    };
    fs::remove_file(fixture.path().join("CURRENT")).expect("the file is removed");
    adtrail_store::maintenance::verify::verify(
        &fixture.settings,
        &fixture.policy,
        &options,
        &mut |_| (),
    )
    .expect_err("the store has no CURRENT");
}

fn log_damaged_in_the_middle() {
    let _case = Case::new("the log is damaged in the middle");
    let fixture = Fixture::new();
    let log = newest_log(fixture.path());
    flip(&log, |bytes| bytes / 2);
    let report = fixture.verify();
    assert!(report.found.contains_key(&Problem::LogDamaged), "{:?}", report.examples);
    assert!(report.examples[0].at.contains(&name(&log)), "{:?}", report.examples);
    assert!(fixture.repair().is_repaired());
    assert!(fixture.verify().is_whole(), "the records before the damage are lost");
}

/// If the metadata at the end of a file is damaged, the file may not open at all. Only this file is reported.
#[test]
fn damaged_metadata_of_a_file_is_reported_once() {
    let all = ["touches", "cells", "events"];
    let (tables, step, found_min) = testbed::length((&all[..2], 200, 3), (&all[..], 67, 5));
    for table in tables {
        let fixture = Fixture::new();
        let (file, table_name) = file_and_table(fixture.path(), table);
        let bytes = fs::read(&file).expect("the file is readable");
        let mut found = 0;
        for from_end in (1..2_000).step_by(step).chain([9, 13, 20, 50]) {
            let _case = Case::new(format!("{table}, {from_end} from the end"));
            flip(&file, |bytes| bytes - from_end);
            let report = fixture.verify();
            fs::write(&file, &bytes).expect("the file is written");
            if report.is_whole() {
                continue;
            }
            found += 1;
            let problems: Vec<_> = report.found.keys().copied().collect();
            let examples = &report.examples;
            assert_eq!(problems, [Problem::FileDamaged], "{examples:?}");
            assert_eq!(examples.len(), 1, "{examples:?}");
            assert_eq!(examples[0].at, format!("{} of table {table_name}", name(&file)));
        }
        assert!(found > found_min, "{table}: {found}");
        fixture.check_whole();
    }
}

/// Unreadable rows are left out of the expected counts, so counts are not reported as wrong.
fn unreadable_rows_do_not_make_counts_wrong() {
    let _case = Case::new("unreadable rows do not make counts wrong");
    let fixture = Fixture::new();
    let file = table_file(fixture.path(), "events");
    flip(&file, |bytes| bytes / 3);
    let report = fixture.verify();
    assert!(report.is_file_damaged() && report.unchecked > 0);
    assert_eq!(report.wrong(Check::Counts), 0, "{:?}", report.examples);
    assert_eq!(report.found.keys().collect::<Vec<_>>(), [&Problem::FileDamaged]);
}
