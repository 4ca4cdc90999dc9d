//! Measures the latency of one decision for a device or address with a long history. Each event is one batch and is
//! committed to the embedded store, as when the pipeline keeps up with Kafka.

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

mod support;

use std::time::Instant;

// The crate sets the global allocator; without this line it would not be linked.
use adtrail as _;
use attribution::worker::{Batch, Worker};
use serde_json::{Value, json};
use store::embedded::Embedded;

use support::{START_MS, count, memory_mib};

/// In the app `apart` every activation is an install, so that it can be credited to any touch.
const SETTINGS: &str = r#"
[attribution]
correction_horizon = "off"
probabilistic = true

[[apps]]
pid = 1
key = "apart"
[apps.attribution]
duplicate_within = "0s"
reattribution_window = "0s"

[[apps]]
pid = 2
key = "together"

[[apps]]
pid = 3
key = "counted"
[apps.attribution]
duplicate_within = "0s"
reattribution_window = "0s"
[apps.fraud]
clicks_per_device_max = 50
"#;

const BATCH: usize = 5_000;
const DAY_MS: u64 = 86_400_000;
const NOW_MS: u64 = START_MS + 7 * DAY_MS;

/// A kind of history, and the event that follows it.
struct Scenario {
    name: &'static str,
    /// The event `n` of a history of `of` events.
    past: fn(&str, u64, u64) -> Value,
    /// The measured event `n`.
    next: fn(&str, u64) -> Value,
    sizes: [u64; 3],
}

const MILLION: [u64; 3] = [1, 1_000, 1_000_000];

const SCENARIOS: [Scenario; 8] = [
    Scenario {
        name: "activation of a device with this many clicks",
        past: |key, n, of| click(key, n, of, json!({"oaid": key}), ""),
        next: |key, n| activation("apart", key, n, json!({"oaid": key}), ""),
        sizes: MILLION,
    },
    Scenario {
        name: "activation at an address with this many clicks without ids",
        past: |key, n, of| click(key, n, of, json!({}), &address(key)),
        next: |key, n| {
            activation("apart", key, n, json!({"oaid": format!("{key} {n}")}), &address(key))
        },
        sizes: MILLION,
    },
    Scenario {
        name: "activation at an address with this many clicks of other devices",
        past: |key, n, of| click(key, n, of, json!({"oaid": format!("{key} p{n}")}), &address(key)),
        next: |key, n| {
            activation("apart", key, n, json!({"oaid": format!("{key} {n}")}), &address(key))
        },
        sizes: MILLION,
    },
    Scenario {
        name: "activation of a device id with this many activations",
        past: |key, n, of| past_activation(key, n, of),
        next: |key, n| {
            activation("together", key, n, json!({"imei": key, "oaid": format!("{key} {n}")}), "")
        },
        sizes: [1, 1_000, 100_000],
    },
    Scenario {
        name: "click one hour late, device with this many clicks, activated after it",
        past: |key, n, of| match n {
            0 => activation("apart", key, 0, json!({"oaid": key}), ""),
            _ => click(key, n, of, json!({"oaid": key}), ""),
        },
        next: |key, n| late_click(key, n, json!({"oaid": key}), ""),
        sizes: MILLION,
    },
    Scenario {
        name: "click one hour late, other device, address with this many activations",
        past: |key, n, _| {
            activation("apart", key, n, json!({"oaid": format!("{key} {n}")}), &address(key))
        },
        next: |key, n| {
            late_click(key, n, json!({"oaid": format!("{key} late {n}")}), &address(key))
        },
        sizes: [1, 1_000, 10_000],
    },
    Scenario {
        name: "activation, this many clicks a month ago, clicks_per_device_max on",
        past: |key, n, of| counted_click(key, n, of, 30),
        next: |key, n| activation("counted", key, n, json!({"oaid": key}), ""),
        sizes: MILLION,
    },
    Scenario {
        name: "activation, this many clicks in one day, clicks_per_device_max = 50",
        past: |key, n, of| counted_click(key, n, of, 0),
        next: |key, n| activation("counted", key, n, json!({"oaid": key}), ""),
        sizes: [1, 100, 1_000],
    },
];

fn main() {
    println!("{}", testbed::machine());
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut config = config::parse(SETTINGS).expect("the settings are valid");
    config.store = config.store.keeping_all(folder.path().join("store"));
    let store = Embedded::open(&config.store, &config.policy).expect("the store opens");
    let mut worker = Worker::new(store, config.policy.clone());
    let size_max = count("ADTRAIL_BENCH_TOUCHES", 1_000_000);
    let rounds = count("ADTRAIL_BENCH_DECISIONS", 2_000) as u64;
    let mut process = |events: Vec<Value>| {
        let facts = events.iter().map(|event| {
            ingest::decode::decode(event.to_string().as_bytes(), None, &config.policy)
                .expect("the event is valid")
        });
        let facts = facts.collect();
        let start = Instant::now();
        worker.process(Batch { facts, ..Batch::default() }).expect("the store works");
        start.elapsed().as_nanos() as f64 / 1e3
    };
    println!("microseconds from an event to its committed decision, {rounds} events per history");
    for (number, scenario) in SCENARIOS.iter().enumerate() {
        println!("\n{}:", scenario.name);
        println!("{:>12} {:>10} {:>10} {:>22}", "history", "p50", "p99", "p99 / first p99");
        let sizes = scenario.sizes.map(|size| size.min(size_max as u64));
        let keys = sizes.map(|size| format!("{number}-{size}"));
        for (size, key) in sizes.iter().zip(&keys) {
            let all: Vec<u64> = (0..*size).collect();
            for part in all.chunks(BATCH) {
                process(part.iter().map(|n| (scenario.past)(key, *n, *size)).collect());
            }
        }
        let mut times = sizes.map(|_| Vec::new());
        for round in 0..rounds {
            for (key, times) in keys.iter().zip(&mut times) {
                times.push(process(vec![(scenario.next)(key, round)]));
            }
        }
        let mut first_p99 = None;
        for (size, times) in sizes.iter().zip(&mut times) {
            times.sort_by(f64::total_cmp);
            let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
            let (p50, p99) = (at(0.5), at(0.99));
            let ratio = p99 / *first_p99.get_or_insert(p99);
            println!("{size:>12} {p50:>10.0} {p99:>10.0} {ratio:>22.1}");
        }
    }
    println!(
        "\nRSS {} MiB, peak {} MiB",
        memory_mib(std::process::id()).0,
        memory_mib(std::process::id()).1
    );
}

/// Returns a click of the last day; the newest is one minute before the first activation.
fn click(key: &str, n: u64, of: u64, ids: Value, ip: &str) -> Value {
    let time = NOW_MS - 60_000 - n * (DAY_MS / 2) / of;
    json!({"type": "click", "app": "apart", "click_id": format!("{key} {n}"), "spreadid": 7,
           "time": time, "ids": ids, "ip": ip, "ua": "agent"})
}

fn counted_click(key: &str, n: u64, of: u64, days_ago: u64) -> Value {
    let mut click = click(key, n, of, json!({"oaid": key}), "");
    click["app"] = json!("counted");
    click["time"] = json!(click["time"].as_u64().map(|time| time - days_ago * DAY_MS));
    click
}

fn late_click(key: &str, n: u64, ids: Value, ip: &str) -> Value {
    json!({"type": "click", "app": "apart", "click_id": format!("{key} late {n}"), "spreadid": 7,
           "time": NOW_MS - 3_600_000 + n, "ids": ids, "ip": ip, "ua": "agent"})
}

fn past_activation(key: &str, n: u64, of: u64) -> Value {
    let ids = json!({"imei": key, "oaid": format!("{key} p{n}")});
    json!({"type": "activation", "app": "together", "event_id": format!("{key} p{n}"),
           "time": NOW_MS - (of - n) * 100, "ids": ids})
}

fn activation(app: &str, key: &str, n: u64, ids: Value, ip: &str) -> Value {
    json!({"type": "activation", "app": app, "event_id": format!("{key} {n}"),
           "time": NOW_MS + n, "ids": ids, "ip": ip, "ua": "agent"})
}

/// Returns an IP address derived from the key.
fn address(key: &str) -> String {
    let sum = key.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    format!("203.{}.{}.{}", sum >> 16 & 0xff, sum >> 8 & 0xff, sum & 0xff)
}
