//! Measures how the time for a backlog depends on the number of processors: `adtrail replay` from a file into its
//! store, without Kafka, under `taskset`. The events are of one app, then of ten. Prints the median wall clock and CPU
//! for each number of processors, and how many times as fast as on one it is. Fails if the rows differ.
//!
//! `ADTRAIL_BENCH_EVENTS` sets the number of events (2,000,000), `ADTRAIL_BENCH_ROUNDS` the number of rounds (3).

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

mod support;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::thread::available_parallelism;
use std::time::Instant;

use support::{APP, APP_KEY, Events, count, tree_cpu_seconds, version_of};
use testbed::adtrail::{binary, command};
use testbed::run_ok;

/// Events are read in turns from the same number of events of each app.
const APPS: [usize; 2] = [1, 10];

fn main() {
    let total = count("ADTRAIL_BENCH_EVENTS", 2_000_000);
    let rounds = count("ADTRAIL_BENCH_ROUNDS", 3).max(1);
    println!("{}", testbed::machine());
    println!("{}, {total} events, median of {rounds} rounds", version_of(&binary()));
    println!(
        "{:>6} {:>12} {:>8} {:>8} {:>16}",
        "apps", "processors", "wall s", "CPU s", "times as fast"
    );
    for apps in APPS {
        let folder = tempfile::tempdir().expect("the folder is created");
        fs::write(folder.path().join("adtrail.toml"), settings(apps)).expect("a file is written");
        write_events(&folder.path().join("events.ndjson"), apps, total);
        measure(folder.path(), apps, rounds);
    }
}

/// The numbers of processors to measure: powers of two, and all.
fn processors() -> Vec<usize> {
    let all = available_parallelism().map_or(1, usize::from);
    let mut numbers: Vec<usize> = std::iter::successors(Some(1), |number| Some(number * 2))
        .take_while(|number| *number < all)
        .collect();
    numbers.push(all);
    numbers
}

fn app_key(number: usize) -> String {
    if number == 0 { APP_KEY.to_owned() } else { format!("{APP_KEY}-{number}") }
}

fn settings(apps: usize) -> String {
    let mut settings = APP.to_owned();
    for number in 1..apps {
        let (pid, key) = (number + 1, app_key(number));
        write!(settings, "\n[[apps]]\npid = {pid}\nkey = \"{key}\"\n").expect("text is written");
    }
    settings
}

fn write_events(path: &Path, apps: usize, total: usize) {
    let mut file = BufWriter::new(File::create(path).expect("the file is created"));
    for (_, json) in Events::default().take(total / apps) {
        for number in 0..apps {
            let json = json.replacen(APP_KEY, &app_key(number), 1);
            writeln!(file, "{json}").expect("the event is written");
        }
    }
    file.flush().expect("the events are written");
}

/// The wall clock and the CPU of one run.
#[derive(Clone, Copy)]
struct Seconds {
    wall: f64,
    cpu: f64,
}

fn measure(folder: &Path, apps: usize, rounds: usize) {
    let processors = processors();
    let mut runs: Vec<Vec<Seconds>> = processors.iter().map(|_| Vec::new()).collect();
    let mut rows: Option<Vec<u8>> = None;
    for _ in 0..rounds {
        // All numbers in each round, because the machine may become slower or faster.
        for (number, runs) in processors.iter().zip(&mut runs) {
            runs.push(replay(folder, *number));
            let written = fs::read(folder.join("rows.csv")).expect("the rows are written");
            assert!(rows.get_or_insert_with(|| written.clone()) == &written, "the rows differ");
        }
    }
    let medians: Vec<Seconds> = runs.iter_mut().map(|runs| median(runs)).collect();
    for (number, Seconds { wall, cpu }) in processors.iter().zip(&medians) {
        println!("{apps:>6} {number:>12} {wall:>8.1} {cpu:>8.1} {:>16.2}", medians[0].wall / wall);
    }
}

/// Replays all events on the first processors.
fn replay(folder: &Path, processors: usize) -> Seconds {
    let mut taskset = command(Path::new("taskset"));
    taskset.arg("-c").arg(format!("0-{}", processors - 1)).arg(binary());
    taskset.args(["replay", "--config", "adtrail.toml", "--out", "rows.csv", "events.ndjson"]);
    let (cpu, started) = (tree_cpu_seconds(std::process::id()), Instant::now());
    run_ok(taskset.current_dir(folder), b"");
    Seconds {
        wall: started.elapsed().as_secs_f64(),
        cpu: tree_cpu_seconds(std::process::id()) - cpu,
    }
}

/// Returns the run with the median wall clock.
fn median(runs: &mut [Seconds]) -> Seconds {
    runs.sort_by(|a, b| a.wall.total_cmp(&b.wall));
    runs[runs.len() / 2]
}
