//! Damages of files.

use std::fs;
use std::path::{Path, PathBuf};

use adtrail_store::embedded::open_for_reading;
use adtrail_store::maintenance::verify::{Check, Problem};

use super::bed::{Bed, Case, Raw};
use super::support::run::read;

/// The files of a store whose names are such.
pub fn files(path: &Path, is: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let files = path.read_dir().expect("a folder").flatten();
    let mut files: Vec<_> = files
        .filter(|file| is(&file.file_name().to_string_lossy()))
        .map(|file| file.path())
        .collect();
    files.sort();
    files
}

/// The largest file of a table.
fn table_file(path: &Path, table: &str) -> PathBuf {
    let raw = Raw::open(path);
    let files = raw.0.live_files().expect("files");
    let of_table = files.into_iter().filter(|file| file.column_family_name == table);
    let file = of_table.max_by_key(|file| file.size).expect("a file");
    path.join(file.name.trim_start_matches('/'))
}

pub fn flip(file: &Path, at: impl FnOnce(usize) -> usize) {
    let mut bytes = fs::read(file).expect("a file");
    let at = at(bytes.len());
    bytes[at] ^= 0x10;
    fs::write(file, bytes).expect("a file");
}

fn name(file: &Path) -> String {
    file.file_name().expect("a name").to_string_lossy().into_owned()
}

/// The problem is found and its file named; nothing is written by a repair.
fn check(problem: Problem, table: &str, damage: impl FnOnce(&Path)) {
    let _case = Case::new(format!("{problem:?} in {table}"));
    let bed = Bed::new();
    let file = table_file(bed.path(), table);
    damage(&file);
    let report = bed.verify();
    assert!(report.found.contains_key(&problem), "{table}: {:?}", report.examples);
    let named = report.examples.iter().filter(|one| one.problem == problem);
    let named: Vec<_> = named.map(|one| one.at.as_str()).collect();
    assert!(named.iter().any(|at| at.contains(&name(&file))), "{named:?}");
    assert!(named.iter().any(|at| at.contains(table)), "{named:?}");
    let size = fs::metadata(&file).map(|data| data.len()).ok();
    assert!(!bed.repair().is_repaired());
    assert_eq!(fs::metadata(&file).map(|data| data.len()).ok(), size);
    assert!(!bed.verify().is_whole());
    // Without meta it is not known how long facts are kept: only files are looked at.
    if !["touches", "meta"].contains(&table) {
        assert!(report.looked_at(Check::Facts) > 500, "the rest is looked at");
    }
}

const TABLES: [&str; 9] = [
    "events",
    "touches",
    "activations",
    "effects",
    "cells",
    "counts",
    "brought",
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
            let bytes = fs::read(file).expect("a file");
            fs::write(file, &bytes[..bytes.len() / 2]).expect("a file");
        });
    }
    for table in ["events", "activations"] {
        check(Problem::FileMissing, table, |file| fs::remove_file(file).expect("a file"));
    }
    the_manifest_is_damaged();
    current_is_damaged_or_missing();
    the_log_is_damaged_in_the_middle();
    rows_that_can_not_be_read_are_not_missed_in_counts();
}

/// Wherever it is, a flipped byte is found, or changes nothing that anybody reads.
#[test]
fn no_flipped_byte_is_served() {
    let whole = Bed::whole_export();
    for table in ["events", "touches"] {
        let bed = Bed::new();
        let file = table_file(bed.path(), table);
        let bytes = fs::read(&file).expect("a file");
        let mut found = 0;
        let places = testbed::length(8, 24);
        for place in 0..places {
            let at = bytes.len() * place / places;
            flip(&file, |_| at);
            let is_found = !bed.verify().is_whole();
            found += usize::from(is_found);
            let shown = std::panic::catch_unwind(|| {
                let reader = open_for_reading(&bed.settings).ok()?;
                Some(read(&reader).into_iter().map(|row| row.whole).collect::<Vec<_>>())
            });
            if let Ok(Some(shown)) = shown {
                assert!(shown == whole, "byte {at} of {} is served", bytes.len());
            }
            fs::write(&file, &bytes).expect("a file");
        }
        assert!(found * 2 > places, "{table}: {found} of {places}");
        bed.check_whole();
    }
}

fn the_manifest_is_damaged() {
    let _case = Case::new("the manifest is damaged");
    let bed = Bed::new();
    let manifest = files(bed.path(), |name| name.starts_with("MANIFEST-")).remove(0);
    flip(&manifest, |bytes| bytes / 2);
    let report = bed.verify();
    assert_eq!(report.found.keys().collect::<Vec<_>>(), [&Problem::FileDamaged]);
    assert!(report.examples[0].at.contains("MANIFEST"), "{:?}", report.examples);
    assert!(!bed.repair().is_repaired());
}

fn current_is_damaged_or_missing() {
    let _case = Case::new("current is damaged or missing");
    let bed = Bed::new();
    fs::write(bed.path().join("CURRENT"), "MANIFEST-999999\n").expect("a file");
    assert!(!bed.verify().is_whole());
    let options = adtrail_store::maintenance::verify::Options {
        examples_max: 1,
        have_settings_changed: false,
    };
    fs::remove_file(bed.path().join("CURRENT")).expect("a file");
    adtrail_store::maintenance::verify::verify(&bed.settings, &bed.policy, &options, &mut |_| ())
        .expect_err("no store");
}

fn the_log_is_damaged_in_the_middle() {
    let _case = Case::new("the log is damaged in the middle");
    let bed = Bed::new();
    let log = files(bed.path(), |name| name.ends_with(".log")).pop().expect("a log");
    flip(&log, |bytes| bytes / 2);
    let report = bed.verify();
    assert!(report.found.contains_key(&Problem::LogDamaged), "{:?}", report.examples);
    assert!(report.examples[0].at.contains(&name(&log)), "{:?}", report.examples);
    assert!(bed.repair().is_repaired());
    assert!(bed.verify().is_whole(), "what came before it is whole");
}

/// What a file says of itself is at its end: it may not even open, and nothing else is to blame.
#[test]
fn a_byte_at_the_end_of_a_file_is_flipped() {
    let all = ["touches", "cells", "events"];
    let (tables, step, found_min) = testbed::length((&all[..2], 200, 3), (&all[..], 67, 5));
    for table in tables {
        let bed = Bed::new();
        let file = table_file(bed.path(), table);
        let bytes = fs::read(&file).expect("a file");
        let mut found = 0;
        for from_end in (1..2_000).step_by(step).chain([9, 13, 20, 50]) {
            let _case = Case::new(format!("{table}, {from_end} from the end"));
            flip(&file, |bytes| bytes - from_end);
            let report = bed.verify();
            fs::write(&file, &bytes).expect("a file");
            if report.is_whole() {
                continue;
            }
            found += 1;
            let problems: Vec<_> = report.found.keys().copied().collect();
            let examples = &report.examples;
            assert_eq!(problems, [Problem::FileDamaged], "{examples:?}");
            assert_eq!(examples.len(), 1, "{examples:?}");
            assert_eq!(examples[0].at, format!("{} of table {table}", name(&file)));
        }
        assert!(found > found_min, "{table}: {found}");
        bed.check_whole();
    }
}

/// Unreadable rows are left out of the expected counts, so the counts are not reported as wrong.
fn rows_that_can_not_be_read_are_not_missed_in_counts() {
    let _case = Case::new("unreadable rows do not make counts wrong");
    let bed = Bed::new();
    let file = table_file(bed.path(), "events");
    flip(&file, |bytes| bytes / 3);
    let report = bed.verify();
    assert!(report.is_file_damaged() && report.unchecked > 0);
    assert_eq!(report.wrong(Check::Counts), 0, "{:?}", report.examples);
    assert_eq!(report.found.keys().collect::<Vec<_>>(), [&Problem::FileDamaged]);
}
