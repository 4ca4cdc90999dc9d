//! Measures the cost of decoding one event in Avro and in JSON, in instructions. valgrind counts them, independently of
//! the load of the machine.

#![allow(clippy::expect_used, clippy::panic, reason = "a bench may fail loudly")]

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

/// Runs this program under valgrind to decode `count` events; returns the number of instructions.
fn instructions(format: &str, to: &str, count: u64) -> u64 {
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().expect("the executable has a path"))
        .args(["--count", format, to, &count.to_string()])
        .output()
        .expect("valgrind runs (apt-get install valgrind)");
    let stderr = String::from_utf8_lossy(&run.stderr);
    let total = stderr.lines().find_map(|line| line.split("Collected : ").nth(1));
    total
        .unwrap_or_else(|| panic!("no instruction count: {stderr}"))
        .trim()
        .parse()
        .expect("a valid number")
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
    println!("decoding one click: to borrowed fields, and to a fact with its identity\n");
    println!("                 bytes  instructions  nanoseconds  of JSON's instructions");
    for to in ["fields", "fact"] {
        let mut first = None;
        for format in ["JSON", "Avro"] {
            let bytes = if format == "JSON" { decoder.json.len() } else { decoder.avro.len() };
            let decoding = instructions(format, to, COUNTED) - instructions(format, to, 0);
            let each = decoding as f64 / COUNTED as f64;
            let start = Instant::now();
            (0..TIMED).for_each(|_| decoder.decode(format, to));
            let ns = start.elapsed().as_nanos() as f64 / TIMED as f64;
            let share = each / *first.get_or_insert(each);
            println!("{format} to {to:<6} {bytes:>9} {each:>13.0} {ns:>12.0} {share:>23.2}");
        }
    }
}
