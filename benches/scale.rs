//! Compares the embedded store with HBase: the real binary reads the same events from a real Kafka over each. Prints
//! events per CPU-second of adtrail and of the HBase process, and the size of tables and write-ahead logs; checks that
//! both exports equal the output of `adtrail replay`.
//!
//! `ADTRAIL_BENCH_EVENTS` sets the number of events (200,000).

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

mod support;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use hbase_client::Config;
use support::{APP, APP_KEY, Events, count, cpu_seconds, has_read_all, memory_mib};
use testbed::hbase;
use testbed::hbase::cluster::HBase;
use testbed::kafka::{Kafka, Message};
use testbed::site::Site;

const PARTITIONS: i32 = 4;
const RANGE: [&str; 2] = ["2026-03-01", "2027-01-01"];

fn main() {
    println!("{}", testbed::machine());
    let total = count("ADTRAIL_BENCH_EVENTS", 200_000);
    let embedded =
        Site::new(Kafka::shared(), "bench", PARTITIONS, APP).set("store.retention", "400d");
    produce(&embedded, total);
    println!(
        "{:>10} {:>8} {:>8} {:>18} {:>9}",
        "store", "wall s", "CPU s", "events/CPU-second", "RSS MiB"
    );
    let embedded_rate = read(&embedded, "run", total);
    let cluster = HBase::shared();
    let shared = hbase::in_hbase(embedded.beside(), &cluster.servers(), "bench");
    testbed::run_ok(&mut shared.command(&["hbase", "init"]), b"");
    let before = cpu_seconds(cluster.pid());
    let hbase_rate = read(&shared, "attribute", total);
    let hbase_cpu = cpu_seconds(cluster.pid()) - before;
    println!("{:>10} {:>8} {hbase_cpu:>8.1} {:>18.0}", "(hbase)", "", total as f64 / hbase_cpu);
    println!("with HBase {:.2} of the events per CPU-second", hbase_rate / embedded_rate);
    sizes(cluster, total);
    compare(&[&embedded, &shared], total);
}

/// Prints the size on disk after flushing the tables.
fn sizes(cluster: &HBase, total: usize) {
    let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
    let client = runtime
        .block_on(hbase_client::Client::connect(
            Config::new(cluster.servers()).expect("the addresses are valid"),
        ))
        .expect("hbase responds");
    let mut counts = [0; 3];
    Events::default().take(total).for_each(|(family, _)| counts[family as usize] += 1);
    let [clicks, activations, effects] = counts;
    let root = cluster.dir().join("data/root");
    for (table, count) in [
        ("events", activations + effects),
        ("touches", clicks),
        ("activations", activations),
        ("effects", effects),
    ] {
        let table = format!("bench_{table}");
        runtime.block_on(client.admin().flush(&table)).expect("the table is flushed");
        let bytes = size(&root.join("data/default").join(&table));
        println!("{table}: {count} records, {} bytes each", bytes / count.max(1) as u64);
    }
    let logs = size(&root.join("WALs")) + size(&root.join("oldWALs"));
    println!("write-ahead logs: {} bytes per event", logs / total as u64);
}

/// Returns the total size of the files in a folder. Files deleted meanwhile count as 0.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Checks that all exports equal the output of `adtrail replay`.
fn compare(sites: &[&Site], total: usize) {
    let folder = sites[0].path();
    let [events, expected] =
        ["events.ndjson", "expected.csv"].map(|name| folder.join(name).display().to_string());
    let mut file = BufWriter::new(File::create(&events).expect("the file is created"));
    for (_, json) in Events::default().take(total) {
        writeln!(file, "{json}").expect("the file can be written");
    }
    file.flush().expect("the file can be written");
    let replay = ["replay", &events, "--app", APP_KEY, "--out", &expected];
    testbed::run_ok(&mut sites[0].command(&replay), b"");
    let expected = fs::read(&expected).expect("replay has written the file");
    for site in sites {
        assert!(
            site.download(APP_KEY, RANGE[0], RANGE[1], &[]) == expected,
            "the export equals the output of replay"
        );
    }
    let rows = expected.iter().filter(|byte| **byte == b'\n').count() - 1;
    println!("both exports equal the {rows} rows ({} bytes) of replay", expected.len());
}

fn produce(site: &Site, total: usize) {
    let topics = site.topics.all();
    // Explicit partitions, because the key of the single app would put all events on one.
    let message = |(number, json): (usize, String)| Message {
        partition: Some(number as i32 % PARTITIONS),
        ..Message::new(APP_KEY, json)
    };
    let events = Events::default().take(total).enumerate();
    let records =
        events.map(|(number, (family, json))| (topics[family as usize], message((number, json))));
    Kafka::shared().produce_all(records);
}

/// Runs a process until it has read all events. Returns its events per CPU-second.
fn read(site: &Site, role: &str, total: usize) -> f64 {
    let started = Instant::now();
    let adtrail = site.start_role(role);
    while !has_read_all(&adtrail, total) {
        std::thread::sleep(Duration::from_millis(500));
    }
    let (wall, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds(adtrail.pid()));
    let rate = total as f64 / cpu;
    println!("{role:>10} {wall:>8.1} {cpu:>8.1} {rate:>18.0} {:>9}", memory_mib(adtrail.pid()).1);
    adtrail.stop();
    rate
}
