//! Damages of files.

use std::fs;
use std::path::{Path, PathBuf};

use adtrail_store::embedded::open_for_reading;
use adtrail_store::verify::{Check, Problem};

use super::bed::{Bed, Raw};
use super::support::run::read;

fn files(path: &Path, is: impl Fn(&str) -> bool) -> Vec<PathBuf> {
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

fn flip(file: &Path, at: impl FnOnce(usize) -> usize) {
    let mut bytes = fs::read(file).expect("a file");
    let at = at(bytes.len());
    bytes[at] ^= 0x10;
    fs::write(file, bytes).expect("a file");
}

fn name(file: &Path) -> String {
    file.file_name().expect("a name").to_string_lossy().into_owned()
}

/// The problem is found and its file named; nothing is written by a repair.
#[track_caller]
fn check(problem: Problem, table: &str, damage: impl FnOnce(&Path)) {
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
    // Without meta nothing tells how long facts are kept: only files are looked at.
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
fn a_byte_is_flipped() {
    for table in TABLES {
        check(Problem::FileDamaged, table, |file| flip(file, |_| 20));
    }
}

#[test]
fn a_file_is_cut() {
    for table in ["events", "touches", "meta"] {
        check(Problem::FileCut, table, |file| {
            let bytes = fs::read(file).expect("a file");
            fs::write(file, &bytes[..bytes.len() / 2]).expect("a file");
        });
    }
}

#[test]
fn a_file_is_missing() {
    for table in ["events", "activations"] {
        check(Problem::FileMissing, table, |file| fs::remove_file(file).expect("a file"));
    }
}

/// Wherever it is, a flipped byte is found, or changes nothing that anybody reads.
#[test]
fn no_flipped_byte_is_served() {
    let whole = Bed::new().export();
    for table in ["events", "touches"] {
        let bed = Bed::new();
        let file = table_file(bed.path(), table);
        let bytes = fs::read(&file).expect("a file");
        let mut found = 0;
        let places = 24;
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
        assert!(bed.verify().is_whole());
    }
}

#[test]
fn the_manifest_is_damaged() {
    let bed = Bed::new();
    let manifest = files(bed.path(), |name| name.starts_with("MANIFEST-")).remove(0);
    flip(&manifest, |bytes| bytes / 2);
    let report = bed.verify();
    assert_eq!(report.found.keys().collect::<Vec<_>>(), [&Problem::FileDamaged]);
    assert!(report.examples[0].at.contains("MANIFEST"), "{:?}", report.examples);
    assert!(!bed.repair().is_repaired());
}

#[test]
fn current_is_damaged_or_missing() {
    let bed = Bed::new();
    fs::write(bed.path().join("CURRENT"), "MANIFEST-999999\n").expect("a file");
    assert!(!bed.verify().is_whole());
    let options = adtrail_store::verify::Options { examples_max: 1, have_settings_changed: false };
    fs::remove_file(bed.path().join("CURRENT")).expect("a file");
    adtrail_store::verify::verify(&bed.settings, &bed.policy, &options, &mut |_| ())
        .expect_err("no store");
}

#[test]
fn the_log_is_damaged_in_the_middle() {
    let bed = Bed::new();
    let log = files(bed.path(), |name| name.ends_with(".log")).pop().expect("a log");
    flip(&log, |bytes| bytes / 2);
    let report = bed.verify();
    assert!(report.found.contains_key(&Problem::LogDamaged), "{:?}", report.examples);
    assert!(report.examples[0].at.contains(&name(&log)), "{:?}", report.examples);
    assert!(bed.repair().is_repaired());
    assert!(bed.verify().is_whole(), "what came before it is whole");
}

/// A process that was killed leaves half a record.
#[test]
fn a_log_that_ends_early_is_no_damage() {
    let bed = Bed::new();
    let log = files(bed.path(), |name| name.ends_with(".log")).pop().expect("a log");
    let bytes = fs::read(&log).expect("a file");
    fs::write(&log, &bytes[..bytes.len() - 7]).expect("a file");
    let report = bed.verify();
    assert!(report.is_whole(), "{:?}", report.examples);
}

/// What a file says of itself is at its end: it may not even open, and nothing else is to blame.
#[test]
fn a_byte_at_the_end_of_a_file_is_flipped() {
    for table in ["events", "touches", "cells"] {
        let bed = Bed::new();
        let file = table_file(bed.path(), table);
        let bytes = fs::read(&file).expect("a file");
        let mut found = 0;
        for from_end in (1..2_000).step_by(67).chain([9, 13, 20, 50]) {
            flip(&file, |bytes| bytes - from_end);
            let report = bed.verify();
            fs::write(&file, &bytes).expect("a file");
            if report.is_whole() {
                continue;
            }
            found += 1;
            let problems: Vec<_> = report.found.keys().copied().collect();
            let told = &report.examples;
            assert_eq!(
                problems,
                [Problem::FileDamaged],
                "{table}, {from_end} from the end: {told:?}"
            );
            assert_eq!(told.len(), 1, "{table}, {from_end} from the end: {told:?}");
            let at = format!("{} of table {table}", name(&file));
            assert_eq!(told[0].at, at, "{from_end} from the end");
        }
        assert!(found > 5, "{table}: {found}");
        assert!(bed.verify().is_whole());
    }
}

/// Nothing is counted that can not be read, and nobody is told that a repair would count again.
#[test]
fn rows_that_can_not_be_read_are_not_missed_in_counts() {
    let bed = Bed::new();
    let file = table_file(bed.path(), "events");
    flip(&file, |bytes| bytes / 3);
    let report = bed.verify();
    assert!(report.is_file_damaged() && report.unchecked > 0);
    assert_eq!(report.wrong(Check::Counts), 0, "{:?}", report.examples);
    assert_eq!(report.found.keys().collect::<Vec<_>>(), [&Problem::FileDamaged]);
}

/// Nothing that is served depends on them.
#[test]
fn other_files_are_no_damage() {
    let whole = Bed::new().export();
    for start in ["IDENTITY", "OPTIONS-", "LOCK", "LOG"] {
        for is_removed in [true, false] {
            let bed = Bed::new();
            for file in files(bed.path(), |name| name.starts_with(start)) {
                match is_removed {
                    true => fs::remove_file(&file).expect("a file"),
                    false if fs::metadata(&file).expect("a file").len() > 0 => {
                        flip(&file, |bytes| bytes / 2);
                    }
                    false => fs::write(&file, "x").expect("a file"),
                }
            }
            assert!(bed.verify().is_whole(), "{start}");
            drop(bed.open());
            assert!(whole == bed.export(), "{start}");
            assert!(bed.verify().is_whole(), "{start}");
        }
    }
}
