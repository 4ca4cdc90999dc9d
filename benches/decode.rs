//! Measures the cost of decoding one event in Avro and in JSON, in instructions and allocations. valgrind counts them,
//! independently of the load of the machine.

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

// The crate sets the global allocator; without this line it would not be linked.
use adtrail as _;
use attribution::facts::event::{Fact, Pid};
use attribution::rules::policy::{AppPolicy, Policy};
use ingest::TopicKind;
use ingest::decode::{self, DecodeError, Schema};
use testbed::avro;

const SCHEMA: &str = include_str!("../schemas/avro/click.avsc");
const CLICK: &str = r#"{"type":"click","app":"app-x","click_id":"c-6f1e2b0a9d34","spreadid":70812,"time":1773144000000,"purpose":"ua","ids":{"oaid":"1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5"},"ip":"203.0.113.97","ua":"Mozilla/5.0 (Linux; Android 14; MNA-AL00 Build/HUAWEIMNA-AL00; wv) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/114.0.5735.196 Mobile Safari/537.36","device_model":"MNA-AL00","os":"android","os_version":"14","site":"com.example.reader"}"#;
/// Number of events in a counted run. The count of a run without events is subtracted.
const COUNTED: u64 = 20_000;
const TIMED: u64 = 2_000_000;

/// The event in both formats, and the settings to decode it.
struct Decoder {
    json: &'static [u8],
    avro: Vec<u8>,
    schema: Schema,
    policy: Policy,
}

impl Decoder {
    fn new() -> Self {
        let policy = Policy::new(vec![AppPolicy::new(Pid(1), "app-x")], vec![]);
        let schema = Schema::parse(SCHEMA).expect("the schema is valid");
        let click = serde_json::from_str(CLICK).expect("valid JSON");
        let avro = avro::avro(&avro::schema(SCHEMA), &click);
        Self { json: CLICK.as_bytes(), avro, schema, policy }
    }

    /// Decodes the event `to` borrowed fields, or to a fact with its identity.
    fn decode(&self, format: &str, to: &str) {
        let (json, avro) = (black_box(self.json), black_box(&self.avro));
        let topic = Some(TopicKind::Clicks);
        match (format, to) {
            ("JSON", "fields") => {
                drop(black_box(decode::json::event(json).expect("the event is valid")))
            }
            ("Avro", "fields") => {
                drop(black_box(
                    decode::avro::event(avro, &self.schema).expect("the event is valid"),
                ));
            }
            ("JSON", _) => drop_fact(decode::decode(json, topic, &self.policy)),
            _ => drop_fact(decode::decode_avro(avro, &self.schema, topic, &self.policy)),
        }
    }
}

fn drop_fact(decoded: Result<Fact, DecodeError>) {
    drop(black_box(decoded.expect("the event is valid")));
}

/// Runs this program under valgrind to decode `count` events; returns the numbers of instructions and allocations.
fn counts(format: &str, to: &str, count: u64) -> [u64; 2] {
    let profile = tempfile::NamedTempFile::new().expect("a temporary file is created");
    let run = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", profile.path().display()))
        .arg(std::env::current_exe().expect("the executable has a path"))
        .args(["--count", format, to, &count.to_string()])
        .output()
        .expect("valgrind runs (apt-get install valgrind)");
    let stderr = String::from_utf8_lossy(&run.stderr);
    let total = stderr.lines().find_map(|line| line.split("Collected : ").nth(1));
    let total = total.unwrap_or_else(|| panic!("no instruction count: {stderr}"));
    let profile = std::fs::read_to_string(profile.path()).expect("valgrind writes a profile");
    [total.trim().parse().expect("a valid number"), allocations(&profile)]
}

/// Sums the calls of the allocator in a profile of callgrind. Each called function has a line `cfn=(ID) NAME`, with the
/// name only where the ID is new, before a line `calls=COUNT …`.
fn allocations(profile: &str) -> u64 {
    const FUNCTIONS: [&str; 3] = ["mi_malloc_aligned", "mi_zalloc_aligned", "mi_realloc_aligned"];
    let mut ids = BTreeSet::new();
    let (mut called, mut sum) = ("", 0);
    for line in profile.lines() {
        if let Some((kind @ ("fn" | "cfn"), function)) = line.split_once('=') {
            let (id, name) = function.split_once(' ').unwrap_or((function, ""));
            if FUNCTIONS.contains(&name) {
                ids.insert(id);
            }
            if kind == "cfn" {
                called = id;
            }
        } else if let Some(calls) = line.strip_prefix("calls=")
            && ids.contains(called)
        {
            let calls = calls.split(' ').next().and_then(|calls| calls.parse::<u64>().ok());
            sum += calls.expect("a number of calls");
        }
    }
    assert!(!ids.is_empty(), "the profile has no function of the allocator");
    sum
}

fn main() {
    let decoder = Decoder::new();
    let args: Vec<String> = std::env::args().collect();
    if let [_, counted, format, to, count] = &args[..]
        && counted == "--count"
    {
        let count: u64 = count.parse().expect("a valid number");
        (0..count).for_each(|_| decoder.decode(format, to));
        return;
    }
    println!("{}", testbed::machine());
    println!("decoding one click: to borrowed fields, and to a fact with its identity\n");
    println!(
        "                 bytes  instructions  allocations  nanoseconds  of JSON's instructions"
    );
    for to in ["fields", "fact"] {
        let mut first = None;
        for format in ["JSON", "Avro"] {
            let bytes = if format == "JSON" { decoder.json.len() } else { decoder.avro.len() };
            let ([instructions, allocations], before) =
                (counts(format, to, COUNTED), counts(format, to, 0));
            let each = (instructions - before[0]) as f64 / COUNTED as f64;
            let allocations = (allocations - before[1]) as f64 / COUNTED as f64;
            let start = Instant::now();
            (0..TIMED).for_each(|_| decoder.decode(format, to));
            let ns = start.elapsed().as_nanos() as f64 / TIMED as f64;
            let share = each / *first.get_or_insert(each);
            println!(
                "{format} to {to:<6} {bytes:>9} {each:>13.0} {allocations:>12.2} {ns:>12.0} {share:>23.2}"
            );
        }
    }
}
