//! A log that has lost its end, or is damaged there: what opens is the store as it was after one of
//! its batches, with rows, facts, figures and positions of that moment, and it goes on from there.

use std::fs;
use std::path::{Path, PathBuf};

use adtrail_store::StoreError;
use adtrail_store::embedded::{Embedded, open_for_reading};
use adtrail_store::maintenance::verify::{Options, verify};
use adtrail_store::memory::Memory;
use attribution::facts::event::Fact;
use attribution::ledger::{Position, Progress};
use attribution::worker::{Batch, Worker};
use fastrand::Rng;
use tempfile::TempDir;

use super::support::facts::{
    DAY, Draft, HOUR, MINUTE, a_and, activation, click, effect, identified, impression,
};
use super::support::rules::rules;
use super::support::run::{Shelf, open, position, read, settings};
use super::support::show::Shown;

/// Written in one go after the store was opened a second time, so all of them are in its log alone.
const BATCHES: usize = 40;
/// Before that: opening has moved them into files.
const IN_FILES: usize = 8;

/// How many places are damaged, one after the other.
fn damages() -> u64 {
    testbed::length(20, 50)
}

/// What a store shows and says after a batch.
#[derive(Debug, Clone, PartialEq)]
struct Moment {
    rows: Vec<Shown>,
    positions: Vec<Position>,
}

/// A few devices, so that batches correct what came before them.
fn facts(number: usize) -> Vec<Fact> {
    let mut rng = Rng::with_seed(number as u64);
    let drafts = (0..rng.usize(1..8)).map(|place| {
        let device = format!("{:08x}-1111-4222-8333-444444444444", rng.u32(..6));
        let at = a_and(rng.i64(-10..10) * HOUR + rng.i64(0..9) * MINUTE);
        let id = format!("{number}.{place}");
        let draft = match rng.u32(..10) {
            0..4 => click(&id, at).campaign(rng.u32(1..9)),
            4 => impression(&id, at).campaign(rng.u32(1..9)),
            5..8 => activation(&id, at),
            _ => effect(&id, a_and(rng.i64(0..3) * DAY)).revenue("9.99", "CNY"),
        };
        let draft = draft.only("oaid", &device);
        // Some are longer than the pages that the log is written in.
        if rng.u32(..12) == 0 { draft.prop("long", &text(&mut rng, 70_000)) } else { draft }
    });
    identified(drafts.collect::<Vec<Draft>>())
}

fn text(rng: &mut Rng, length: usize) -> String {
    (0..length).map(|_| rng.alphanumeric()).collect()
}

fn give<L: Shelf>(worker: &mut Worker<L>, number: usize) {
    let next = number as i64 + 1;
    let positions = vec![position("clicks", 0, next), position("effects", 3, 10 * next)];
    let progress = Progress { positions, consumed_until: None };
    worker.process(Batch { facts: facts(number), progress }).expect("the ledger works");
}

fn moment<L: Shelf>(ledger: &mut L) -> Moment {
    Moment { rows: ledger.shown(), positions: ledger.positions().expect("positions") }
}

/// A store as a process leaves it that is killed, and what it was after each batch: by the ledger in
/// memory, and by how long its log was.
struct Written {
    dir: TempDir,
    moments: Vec<Moment>,
    ends: Vec<usize>,
}

impl Written {
    fn new() -> Self {
        let dir = TempDir::with_prefix("adtrail-store-").expect("a temporary folder");
        let mut model = Worker::new(Memory::default(), rules());
        let mut store = Worker::new(open(dir.path(), &rules()), rules());
        for number in 0..IN_FILES {
            give(&mut model, number);
            give(&mut store, number);
        }
        drop(store);
        let mut store = Worker::new(open(dir.path(), &rules()), rules());
        let (mut moments, mut ends) = (vec![moment(model.ledger_mut())], vec![0]);
        for number in IN_FILES..IN_FILES + BATCHES {
            give(&mut model, number);
            give(&mut store, number);
            moments.push(moment(model.ledger_mut()));
            ends.push(length(&newest_log(dir.path())));
        }
        drop(store);
        Self { dir, moments, ends }
    }

    fn copy(&self) -> TempDir {
        copy(self.dir.path())
    }

    /// That the store is as after the last batch whose end is not after this byte of the log.
    #[track_caller]
    fn check(&self, path: &Path, whole: usize, how: &str) {
        let last = self.ends.iter().rposition(|end| *end <= whole).expect("the beginning");
        let store = open(path, &rules());
        let rows: u64 = store.status_counts().values().sum();
        let mut worker = Worker::new(store, rules());
        let found = moment(worker.ledger_mut());
        let expected = &self.moments[last];
        assert_eq!(found.positions, expected.positions, "{how}: of {last} batches");
        assert!(found.rows == expected.rows, "{how}: rows are not of the positions");
        assert_eq!(rows, found.rows.len() as u64, "{how}: figures are not of the rows");
        // Kafka has what comes after the positions.
        for number in IN_FILES + last..IN_FILES + BATCHES {
            give(&mut worker, number);
        }
        let end = moment(worker.ledger_mut());
        assert!(Some(&end) == self.moments.last(), "{how}: it does not go on");
        drop(worker);
        assert!(read(&open_for_reading(&settings(path)).expect("the store opens")) == end.rows);
    }
}

fn copy(of: &Path) -> TempDir {
    let dir = TempDir::with_prefix("adtrail-store-").expect("a temporary folder");
    for file in of.read_dir().expect("a folder").flatten() {
        fs::copy(file.path(), dir.path().join(file.file_name())).expect("a copy");
    }
    dir
}

fn files(path: &Path, is: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let files = path.read_dir().expect("a folder").flatten();
    let named = files.filter(|file| is(&file.file_name().to_string_lossy()));
    let mut files: Vec<_> = named.map(|file| file.path()).collect();
    files.sort();
    files
}

fn newest_log(path: &Path) -> PathBuf {
    files(path, |name| name.ends_with(".log")).pop().expect("a log")
}

fn length(file: &Path) -> usize {
    fs::metadata(file).expect("a file").len() as usize
}

/// What happens to the bytes from a place on.
fn damage(rng: &mut Rng, bytes: &mut Vec<u8>, at: usize) -> &'static str {
    let rest = bytes.len() - at;
    match rng.u32(..5) {
        0 => {
            bytes.truncate(at);
            "cut"
        }
        1 => {
            bytes[at] ^= 1 << rng.u32(..8);
            "a flipped bit"
        }
        2 => {
            bytes[at..].fill(0);
            "zeros to the end"
        }
        3 => {
            let length = rng.usize(1..=rest.min(5_000));
            bytes[at..at + length]
                .iter_mut()
                .for_each(|byte| *byte = byte.wrapping_add(rng.u8(1..)));
            "other bytes"
        }
        _ => {
            bytes.truncate(at);
            bytes.extend((0..rest).map(|_| rng.u8(..)));
            "other bytes to the end"
        }
    }
}

#[test]
fn a_torn_log_is_the_store_after_one_of_its_batches() {
    let written = Written::new();
    let log = newest_log(written.dir.path());
    let whole = fs::read(&log).expect("a log");
    assert_eq!(Some(&whole.len()), written.ends.last(), "all batches are in one log");
    written.check(written.copy().path(), whole.len(), "nothing is damaged");
    for seed in 0..damages() {
        let mut rng = Rng::with_seed(seed);
        // Near the end of a batch as often as anywhere.
        let end = written.ends[rng.usize(1..written.ends.len())];
        let near = (end + rng.usize(..16)).saturating_sub(8).min(whole.len() - 1);
        let at = if rng.bool() { near } else { rng.usize(..whole.len()) };
        let mut bytes = whole.clone();
        let how = damage(&mut rng, &mut bytes, at);
        // Zeros where zeros are damage nothing.
        let place = whole.iter().zip(&bytes).position(|(old, new)| old != new);
        let place = place.unwrap_or(bytes.len());
        let dir = written.copy();
        fs::write(newest_log(dir.path()), &bytes).expect("a write");
        written.check(dir.path(), place, &format!("seed {seed}: {how} at {at} of {}", whole.len()));
    }
}

/// One flipped bit makes the type of a recycled log of a good one, which the engine reads for ever.
#[test]
fn a_log_that_the_engine_would_read_for_ever_is_one_that_ends() {
    let written = Written::new();
    for batch in [1, 7, BATCHES - 1] {
        // Of the first record of the batch, 6 bytes after it begins.
        let at = written.ends[batch - 1];
        let dir = written.copy();
        let log = newest_log(dir.path());
        let mut bytes = fs::read(&log).expect("a log");
        bytes[at + 6] ^= 4;
        fs::write(&log, &bytes).expect("a write");
        let error = open_for_reading(&settings(dir.path())).map(drop).expect_err("it is damaged");
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        written.check(dir.path(), at, &format!("batch {batch}"));
    }
}

/// What says which files there are: where the engine takes less of it for all, `verify` finds it.
#[test]
fn a_manifest_that_is_damaged_is_refused_or_found() {
    let dir = TempDir::with_prefix("adtrail-store-").expect("a temporary folder");
    let mut store = Worker::new(open(dir.path(), &rules()), rules());
    for number in 0..BATCHES {
        give(&mut store, number);
        if number % 8 == 7 {
            // Files of all tables, and a log of what comes then.
            store.ledger().compact();
        }
    }
    let whole = moment(store.ledger_mut());
    drop(store);
    let manifest = files(dir.path(), |name| name.starts_with("MANIFEST-")).pop().expect("one");
    let bytes = fs::read(&manifest).expect("a file");
    let mut refused = 0;
    for seed in 0..damages() {
        let mut rng = Rng::with_seed(seed);
        let dir = copy(dir.path());
        let mut damaged = bytes.clone();
        // Its end as often as anywhere.
        let first = if rng.bool() { bytes.len() * 3 / 4 } else { 0 };
        let at = rng.usize(first..bytes.len());
        let how = damage(&mut rng, &mut damaged, at);
        fs::write(dir.path().join(manifest.file_name().expect("a name")), &damaged)
            .expect("a write");
        let rows = open_for_reading(&settings(dir.path())).map(|reader| read(&reader));
        let is_verified = is_whole(dir.path());
        let opened = Embedded::open(&settings(dir.path()), &rules());
        let found = opened.map(|mut store| moment(&mut store));
        refused += u64::from(found.is_err());
        let is_less = rows.as_ref().is_ok_and(|rows| *rows != whole.rows)
            || found.as_ref().is_ok_and(|found| *found != whole);
        assert!(!is_less || !is_verified, "seed {seed}: {how} at {at} of {}", bytes.len());
        if is_less {
            println!("seed {seed}: {how} at {at} of {} is found by verify alone", bytes.len());
        }
    }
    assert!(refused * 2 > damages(), "{refused}");
}

fn is_whole(path: &Path) -> bool {
    let options = Options { examples_max: 1, have_settings_changed: false };
    verify(&settings(path), &rules(), &options, &mut |_| ()).is_ok_and(|report| report.is_whole())
}
