//! The same events of a real Kafka by the real binary, once over its embedded store and once over a real
//! HBase: events per CPU-second of adtrail itself, what HBase's processes take, and that the exports are
//! the same.
//!
//! `ADTRAIL_BENCH_EVENTS` sets the number of events (200,000).

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

mod support;

use std::time::{Duration, Instant};

use support::{APP, APP_KEY, Events, count, cpu_seconds, memory_mib};
use testbed::adtrail::Adtrail;
use testbed::hbase;
use testbed::kafka::{Kafka, Message};
use testbed::site::Site;

const PARTITIONS: i32 = 4;
const RANGE: [&str; 2] = ["2026-03-01", "2027-01-01"];

fn main() {
    let total = count("ADTRAIL_BENCH_EVENTS", 200_000);
    let embedded = Site::new(Kafka::shared(), "bench", PARTITIONS, APP);
    produce(&embedded, total);
    println!(
        "{:>10} {:>8} {:>8} {:>18} {:>9}",
        "store", "wall s", "CPU s", "events/CPU-second", "RSS MiB"
    );
    let one = read(&embedded, "run", total);
    let servers = hbase::cluster::HBase::shared().servers();
    let shared = hbase::in_hbase(embedded.beside(), &servers, "bench");
    testbed::run_ok(&mut shared.command(&["hbase", "init"]), b"");
    let other = read(&shared, "attribute", total);
    println!("over hbase {:.2} of the events per CPU-second", other / one);
    let rows = |site: &Site| site.download(APP_KEY, RANGE[0], RANGE[1], &[]);
    assert!(rows(&embedded) == rows(&shared), "the exports are the same");
}

fn produce(site: &Site, total: usize) {
    let topic = |kind| match kind {
        "clicks" => &site.topics.clicks,
        "activations" => &site.topics.activations,
        _ => &site.topics.effects,
    };
    // One app is spread over all partitions, so that its key is not given.
    let message = |(number, json): (usize, String)| Message {
        partition: Some(number as i32 % PARTITIONS),
        ..Message::new(APP_KEY, json)
    };
    let events = Events::default().take(total).enumerate();
    let records =
        events.map(|(number, (kind, json))| (topic(kind).as_str(), message((number, json))));
    Kafka::shared().produce_all(records);
}

/// Events per CPU-second of a process that reads all of them.
fn read(site: &Site, role: &str, total: usize) -> f64 {
    let started = Instant::now();
    let adtrail = site.start_role(role);
    while !has_written(&adtrail, total) {
        std::thread::sleep(Duration::from_millis(500));
    }
    let (wall, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds(adtrail.pid()));
    let rate = total as f64 / cpu;
    println!("{role:>10} {wall:>8.1} {cpu:>8.1} {rate:>18.0} {:>9}", memory_mib(adtrail.pid()).1);
    end(adtrail);
    rate
}

/// Whether all is read, and what was read is in the store.
fn has_written(adtrail: &Adtrail, total: usize) -> bool {
    let is = |name, wanted: &dyn Fn(f64) -> bool| adtrail.metric(name).is_some_and(wanted);
    is("adtrail_ingest_read_total", &|read| read >= total as f64)
        && is("adtrail_ingest_lag_messages", &|lag| lag == 0.0)
}

fn end(adtrail: Adtrail) {
    let (status, log) = adtrail.terminate();
    assert!(status.success(), "{log}");
}
