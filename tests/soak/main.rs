//! A long run at half of the machine's full rate: memory, descriptors, threads and disk do not grow while state and
//! rows expire, every event is soon exported, and in the end the exports equal the output of `adtrail replay`. Run by
//! `make soak`; `ADTRAIL_SOAK_MINUTES` is the duration (30), `ADTRAIL_SOAK_SEED` the seed of the traffic (1).
#![cfg(test)]

mod device;
mod flat;
mod judge;
mod load;
mod readers;
mod report;
mod traffic;
mod watch;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use load::{Load, TICK};
use readers::Downloaded;
use report::Report;
use testbed::adtrail::Adtrail;
use testbed::from_env;
use testbed::kafka::Kafka;
use testbed::site::Site;
use traffic::{APPS, HOUR_MS, Traffic};
use watch::{Sample, Watch};

const PARTITIONS: i32 = 3;
const RETENTION_MS: u64 = 24 * HOUR_MS;
/// Minimum duration of a run whose growth is judged: shorter ones have not warmed up by their middle.
const JUDGED_MINUTES: u64 = 10;

/// Short windows, so that state and rows expire many times.
const RULES: &str = r#"
[ingest]
bad_records_max = 1000
[attribution]
click_window = "6h"
click_probabilistic_window = "3h"
impression_window = "3h"
impression_probabilistic_window = "1h"
reattribution_window = "12h"
effect_window = "6h"
correction_horizon = "2h"

[[channels]]
id = "toutiao"
"#;

/// Returns settings of all apps, with two campaigns each.
fn settings() -> String {
    let mut settings = RULES.to_owned();
    for (index, app) in APPS.into_iter().enumerate() {
        let pid = index + 1;
        settings += &format!("[[apps]]\npid = {pid}\nkey = \"{app}\"\n");
        if index == 1 {
            settings += "[apps.attribution]\nprobabilistic = true\n";
        }
        for spreadid in [10 * pid, 10 * pid + 1] {
            settings += &format!(
                "[[campaigns]]\nspreadid = {spreadid}\npid = {pid}\nchannel = \"toutiao\"\n"
            );
        }
    }
    settings
}

fn site(kafka: &Kafka, name: &str) -> Site {
    // Small caches, so that they are full before the second half.
    Site::new(kafka, name, PARTITIONS, &settings())
        .set("store.retention", "24h")
        .set("store.memory", "128MiB")
}

/// What was observed during a run.
struct Observations {
    samples: Vec<Sample>,
    shown_after: Vec<Duration>,
    downloaded: Downloaded,
    lasted: Duration,
}

#[test]
#[ignore = "takes half an hour: make soak"]
fn nothing_grows_and_nothing_is_lost() {
    let minutes = from_env("ADTRAIL_SOAK_MINUTES", 30);
    let kafka = Kafka::start();
    let ticks = minutes * 60 * 1000 / TICK.as_millis() as u64;
    // Ten retention periods in half an hour, and at least three in a shorter run.
    let step_ms = HOUR_MS * (8 * minutes).max(72) / ticks;
    let mut traffic = Traffic { seed: from_env("ADTRAIL_SOAK_SEED", 1), step_ms, devices: 0 };
    let measured = Duration::from_secs((4 * minutes).clamp(15, 60));
    let full_rate = load::full_rate(&kafka, &site(&kafka, "soak.full"), &traffic, measured);
    let per_device = load::records_per_device(&traffic);
    traffic.devices = (full_rate / 2.0 * TICK.as_secs_f64() / per_device).round().max(1.0) as u64;
    println!("{full_rate:.0} records/s at most; now half of that for {minutes} minutes");

    let site = site(&kafka, "soak");
    for topic in site.topics.all() {
        // Retention is by bytes, since all records have old timestamps.
        kafka.set_topic(topic, &[("retention.bytes", "268435456"), ("segment.bytes", "67108864")]);
    }
    let producer = kafka.producer();
    let mut load = Load::new(traffic.clone(), &site.topics, &producer);
    let adtrail = site.start();
    let observed = run(&mut load, &site, &adtrail, ticks, minutes);
    adtrail.await_read(load.all());
    judge::check_counters(&adtrail, &load, &site.topics);
    let rows_compared = judge::compare(&site, &adtrail, &traffic, ticks, RETENTION_MS);
    adtrail.stop();
    let report = Report {
        minutes,
        full_rate,
        observed: &observed,
        load: &load,
        rows_compared,
        verified: &judge::verified(&site),
    };
    println!("{report}");
    if minutes >= JUDGED_MINUTES {
        let growing = report.growing();
        assert!(growing.is_empty(), "not flat: {growing:?}");
    } else {
        println!("Growth is not judged in runs below {JUDGED_MINUTES} minutes.");
    }
}

/// Runs the load, and the threads that observe the service.
fn run(
    load: &mut Load<'_>,
    site: &Site,
    adtrail: &Adtrail,
    ticks: u64,
    minutes: u64,
) -> Observations {
    let (is_over, now_ms) = (AtomicBool::new(false), AtomicU64::new(traffic::START_MS));
    let is_over_now = || is_over.load(Ordering::Relaxed);
    let every = Duration::from_secs(if minutes < JUDGED_MINUTES { 2 } else { 10 });
    let store = site.path().join("store");
    let watch = Watch { adtrail, store, every };
    let (markers, markers_in) = channel();
    thread::scope(|scope| {
        let watching = scope.spawn(|| watch.samples(is_over_now));
        let waiting = scope.spawn(move || readers::await_markers(adtrail, &markers_in));
        let now = || now_ms.load(Ordering::Relaxed);
        let downloading = scope.spawn(move || readers::download(adtrail, is_over_now, now));
        let started = Instant::now();
        for tick in 0..ticks {
            load.await_due(tick, started);
            now_ms.store(load.traffic.time_ms(tick), Ordering::Relaxed);
            if let Some(marker) = load.traffic.marker(tick) {
                // An error means that the reader has failed, which is reported below.
                let _ = markers.send((marker, Instant::now()));
            }
            load.produce(tick);
            if watching.is_finished() || waiting.is_finished() || downloading.is_finished() {
                break;
            }
        }
        let lasted = started.elapsed();
        is_over.store(true, Ordering::Relaxed);
        drop(markers);
        Observations {
            samples: watching.join().expect("no observer has failed"),
            shown_after: waiting.join().expect("no observer has failed"),
            downloaded: downloading.join().expect("no observer has failed"),
            lasted,
        }
    })
}
