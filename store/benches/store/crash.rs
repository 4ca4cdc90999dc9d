//! Recovery of a store whose process was killed while it wrote.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use adtrail_store::embedded::Embedded;
use attribution::facts::match_keys::fact_key;
use attribution::ledger::{Facts, Ledger};
use attribution::worker::Worker;
use config::Config;

use crate::BATCH;
use crate::facts;
use crate::settings;
use crate::support::{cpu_seconds, memory_mib};
use crate::touches;

/// Passes the folder of the store to the process that will be killed.
pub const FOLDER: &str = "ADTRAIL_BENCH_STORE_KILLED";
/// Passes the number of the first click to write.
const FIRST: &str = "ADTRAIL_BENCH_STORE_FIRST";
/// Enough for the log to reach its maximum size.
const BATCHES: usize = 400;

pub fn run(config: &Config, total: usize) {
    let first = total.next_multiple_of(BATCH);
    let mut writer =
        Command::new(std::env::current_exe().expect("the path of this program is known"))
            .env(FOLDER, &config.store.path)
            .env(FIRST, first.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the writer starts");
    let lines = BufReader::new(writer.stdout.take().expect("stdout is piped")).lines();
    let last = lines
        .take(BATCHES)
        .last()
        .expect("the writer commits batches")
        .expect("the output is UTF-8");
    let (now, peak) = memory_mib(writer.id());
    writer.kill().expect("the writer is killed");
    writer.wait().expect("the writer exits");
    let committed: u64 = last.parse().expect("each line is a number of clicks");

    let (started, cpu) = (Instant::now(), cpu_seconds(std::process::id()));
    let mut store = Embedded::open(&config.store, &config.policy).expect("the store opens");
    let seconds = started.elapsed().as_secs_f64();
    let cpu = cpu_seconds(std::process::id()) - cpu;
    let position = store.positions().expect("the positions are readable")[0].next_offset as u64;
    assert!(position >= committed, "{position} of {committed}");
    let click = facts::click(position - 1, total as u64);
    let record =
        store.records(&[fact_key(click.kind, click.pid, click.id())]).expect("the lookup succeeds");
    assert!(record[0].is_some(), "the last click before the committed position is stored");
    println!(
        "killed after {} more clicks, with {now} MiB (peak {peak}): reopened in {seconds:.1} s \
         ({cpu:.1} s of CPU), nothing lost",
        position - first as u64
    );
}

/// Prints the number of committed clicks after each batch.
pub fn write_until_killed(folder: &Path) -> ! {
    let config = settings(folder);
    let first: u64 = std::env::var(FIRST)
        .ok()
        .and_then(|text| text.parse().ok())
        .expect("the variable has the number of the first click");
    let store = Embedded::open(&config.store, &config.policy).expect("the store opens");
    let mut worker = Worker::new(store, config.policy.clone());
    let mut next = first;
    loop {
        worker.process(touches::batch(next, first)).expect("the commit succeeds");
        next += BATCH as u64;
        writeln!(std::io::stdout(), "{next}").expect("standard output is read");
    }
}
