//! What a process that is killed while it writes leaves, and how soon it is open again.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use adtrail_store::embedded::Embedded;
use attribution::facts::event::Family;
use attribution::facts::match_keys::fact_key;
use attribution::ledger::{Facts, Ledger};
use attribution::worker::Worker;
use config::Config;

use crate::BATCH;
use crate::facts;
use crate::settings;
use crate::support::{cpu_seconds, memory_mib};
use crate::touches;

/// Names the folder of the store to the process that is to be killed, and where it goes on.
pub const FOLDER: &str = "ADTRAIL_BENCH_STORE_KILLED";
const FIRST: &str = "ADTRAIL_BENCH_STORE_FIRST";
/// After so many the log is as long as it gets.
const BATCHES: usize = 400;

pub fn run(config: &Config, total: usize) {
    let first = total.next_multiple_of(BATCH);
    let mut writer = Command::new(std::env::current_exe().expect("this program"))
        .env(FOLDER, &config.store.path)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("another process");
    let lines = BufReader::new(writer.stdout.take().expect("its output")).lines();
    let last = lines.take(BATCHES).last().expect("a batch").expect("a line");
    let (now, peak) = memory_mib(writer.id());
    writer.kill().expect("it is killed");
    writer.wait().expect("it ends");
    let committed: u64 = last.parse().expect("a number of clicks");

    let (started, cpu) = (Instant::now(), cpu_seconds(std::process::id()));
    let mut store = Embedded::open(&config.store, &config.policy).expect("the store");
    let seconds = started.elapsed().as_secs_f64();
    let cpu = cpu_seconds(std::process::id()) - cpu;
    let position = store.positions().expect("positions")[0].next_offset as u64;
    assert!(position >= committed, "{position} of {committed}");
    let click = facts::click(position - 1, total as u64);
    let record = store.records(&[fact_key(Family::Touch, click.pid, &click.id)]).expect("a home");
    assert!(record[0].is_some(), "the last click before the position is there");
    println!(
        "killed after {} more clicks, with {now} MiB (at most {peak}): open again in {seconds:.1} s \
         ({cpu:.1} of CPU), nothing lost",
        position - first as u64
    );
}

/// Tells after each batch how many clicks are committed.
pub fn write_until_killed(folder: &Path) -> ! {
    let config = settings(folder);
    let first: u64 =
        std::env::var(FIRST).ok().and_then(|text| text.parse().ok()).expect("where to go on");
    let store = Embedded::open(&config.store, &config.policy).expect("the store");
    let mut worker = Worker::new(store, config.policy.clone());
    let mut next = first;
    loop {
        worker.process(touches::batch(next, first)).expect("a commit");
        next += BATCH as u64;
        writeln!(std::io::stdout(), "{next}").expect("somebody reads");
    }
}
