//! Measures ingest during downloads: the real binary reads events from a real Kafka, once alone and once while many
//! clients repeatedly download the app's rows. Both stores already contain rows.
//!
//! `ADTRAIL_BENCH_EVENTS` sets the number of events (600,000), `ADTRAIL_BENCH_ROWS` the number of rows (200,000) and
//! `ADTRAIL_BENCH_DOWNLOADS` the number of clients (50).

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

#[path = "support/produce.rs"]
mod produce;
#[path = "support/stored.rs"]
mod stored;
mod support;

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use config::{Config, Sources};
use produce::produce;
use store::embedded::Embedded;
use stored::fill;
use support::{APP, APP_KEY, Events, count, cpu_seconds, memory_mib};
use testbed::adtrail::Adtrail;
use testbed::kafka::Kafka;
use testbed::site::Site;

const PARTITIONS: i32 = 4;

fn main() {
    println!("{}", testbed::machine());
    let events = count("ADTRAIL_BENCH_EVENTS", 600_000);
    let rows = count("ADTRAIL_BENCH_ROWS", 200_000);
    let clients = count("ADTRAIL_BENCH_DOWNLOADS", 50);
    let kafka = Kafka::start_to_measure();
    let alone = Site::new(&kafka, "bench", PARTITIONS, APP)
        .set("store.retention", "400d")
        .set("export.downloads_per_token_max", &clients.to_string());
    produce(&kafka.brokers(), alone.topics.all(), Events::default().take(events));
    let loaded = alone.beside();
    for site in [&alone, &loaded] {
        let config = settings(site);
        let mut store = Embedded::open(&config.store, &config.policy).expect("the store opens");
        fill(&mut store, rows, |_| 1);
    }
    let adtrail = alone.start();
    let rate_alone = rate(&adtrail, events);
    println!("alone: {rate_alone:.0} events/s, {:.1} CPU-s", cpu_seconds(adtrail.pid()));
    drop(adtrail);
    let adtrail = loaded.start();
    let (rate, downloaded) = during_downloads(&adtrail, clients, || rate(&adtrail, events));
    println!(
        "with {clients} clients that repeatedly download {rows} rows: {rate:.0} events/s, {:.2} of the \
         rate alone; {downloaded} downloads, {:.1} CPU-s, peak {} MiB",
        rate / rate_alone,
        cpu_seconds(adtrail.pid()),
        memory_mib(adtrail.pid()).1
    );
}

fn settings(site: &Site) -> Config {
    let path = site.config();
    let sources = Sources { file: Some(&path), ..Sources::default() };
    config::load(&sources).expect("the settings are valid")
}

/// Returns the events per second, without the first tenth of the events.
fn rate(adtrail: &Adtrail, events: usize) -> f64 {
    let await_read = |records: f64| {
        while adtrail.metric("adtrail_ingest_read_total").unwrap_or(0.0) < records {
            std::thread::sleep(Duration::from_millis(100));
        }
        Instant::now()
    };
    let all = events as f64;
    let (first, last) = (await_read(all / 10.0), await_read(all));
    all * 0.9 / (last - first).as_secs_f64()
}

/// Runs `run` while clients download. Returns its result and the number of downloads started.
fn during_downloads(adtrail: &Adtrail, clients: usize, run: impl FnOnce() -> f64) -> (f64, u64) {
    let (is_over, downloads) = (AtomicBool::new(false), AtomicU64::new(0));
    let url = format!(
        "http://{}/v1/apps/{APP_KEY}/events.csv?from=2026-01-01&to=2030-01-01",
        adtrail.export
    );
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    // A download interrupted by the end of the bench is not a failure.
                    let mut curl = Command::new("curl");
                    let _ = curl.args(["-s", "-o", "/dev/null", "-m", "60"]).arg(&url).status();
                    downloads.fetch_add(1, Relaxed);
                }
            });
        }
        let rate = run();
        is_over.store(true, Relaxed);
        (rate, downloads.load(Relaxed))
    })
}
