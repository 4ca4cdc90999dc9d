//! Generated traffic on few devices with all special cases: ties, shared devices and addresses, reinstalls,
//! duplicates, effects before their activations, reused ids with different content, events without ids, ids in
//! every form, texts that CSV must quote, and invalid records. The same in every run.

use fastrand::Rng;
use md5::{Digest, Md5};
use serde_json::{Map, Value, json};

use super::kafka::{Kafka, Message};
use super::site::{Site, Topics};

/// Three apps that differ in every rule that the traffic can trigger.
pub const SETTINGS: &str = r#"
[ingest]
bad_records_max = 10000
[attribution]
correction_horizon = "off"
probabilistic = true

[[apps]]
pid = 1
key = "app-x"

[[apps]]
pid = 2
key = "app-y"
[apps.attribution]
reinstall_effects = "organic"
effect_window = "30d"
[apps.fraud]
ctit_min = "10s"
clicks_per_device_max = 4
block_ips = ["203.0.113.6"]
block_sites = ["bad.example"]

[[apps]]
pid = 3
key = "app-z"
[apps.attribution]
probabilistic = false
duplicate_within = "1h"
reattribution_window = "7d"
impression_window = "7d"

[[channels]]
id = "toutiao"
[[channels]]
id = "kuaishou, \"ks\""
[channels.attribution]
click_window = "8d"

[[campaigns]]
spreadid = 1
pid = 1
channel = "toutiao"
name = "Spring, the first"
[[campaigns]]
spreadid = 2
pid = 1
channel = "kuaishou, \"ks\""
[[campaigns]]
spreadid = 3
pid = 2
channel = "toutiao"
[[campaigns]]
spreadid = 4
pid = 2
channel = "kuaishou, \"ks\""
[[campaigns]]
spreadid = 5
pid = 3
channel = "toutiao"
"#;

pub const APPS: [&str; 3] = ["app-x", "app-y", "app-z"];

/// All events are on or after this day, and before [`TO`].
pub const FROM: &str = "2025-03-10";
pub const TO: &str = "2025-08-10";

/// A record whose event has a `type` field, as in a file with mixed events.
#[derive(Debug, Clone)]
pub struct Record {
    pub family: Family,
    pub app: String,
    pub line: String,
    /// True if the record is not a valid event.
    pub is_bad: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Touch,
    Activation,
    Effect,
}

impl Record {
    pub fn topic<'t>(&self, topics: &'t Topics) -> &'t str {
        match self.family {
            Family::Touch => &topics.clicks,
            Family::Activation => &topics.activations,
            Family::Effect => &topics.effects,
        }
    }

    pub fn message(&self) -> Message {
        Message::new(self.app.clone(), self.line.clone())
    }
}

/// Generates this many records.
pub fn records(seed: u64, count: usize) -> Vec<Record> {
    let mut generator = Generator { rng: Rng::with_seed(seed), count };
    (0..count).map(|_| generator.record()).collect()
}

/// Repeats each record one to three times, in random order.
pub fn redelivered(records: &[Record], seed: u64) -> Vec<Record> {
    let mut rng = Rng::with_seed(seed);
    let mut all: Vec<Record> = records
        .iter()
        .flat_map(|record| std::iter::repeat_n(record.clone(), rng.usize(1..=3)))
        .collect();
    rng.shuffle(&mut all);
    all
}

/// Splits the records into exactly `count` consecutive portions.
pub fn portions(records: &[Record], count: usize) -> impl Iterator<Item = &[Record]> {
    let at = move |index: usize| records.len() * index / count;
    (0..count).map(move |index| &records[at(index)..at(index + 1)])
}

/// A site on the shared Kafka with the settings of the traffic.
pub fn site(name: &str, partitions: i32) -> Site {
    Site::new(Kafka::shared(), name, partitions, SETTINGS)
}

/// Produces the records to the shared Kafka.
pub fn produce(topics: &Topics, records: &[Record]) {
    produce_to(Kafka::shared(), topics, records);
}

pub fn produce_to(kafka: &Kafka, topics: &Topics, records: &[Record]) {
    kafka.produce_all(records.iter().map(|record| (record.topic(topics), record.message())));
}

/// Formats the records as a file with mixed events.
pub fn file(records: &[Record]) -> String {
    records.iter().map(|record| format!("{}\n", record.line)).collect()
}

/// A record that is not an event, whatever its type and its app are.
pub fn bad_line(rng: &mut Rng, kind: &str, app: &str) -> String {
    match rng.usize(..4) {
        0 => format!(r#"{{"type":"{kind}","app":"{app}","time":17416"#),
        1 => format!(r#"{{"type":"{kind}","app":"{app}","event_id":"without a time"}}"#),
        2 => format!(r#"{{"type":"{kind}","app":"nobody's","time":1741608000000}}"#),
        _ => format!(r#"["{kind}","{app}"]"#),
    }
}

/// 2025-03-10T12:00:00Z.
const NOON_MS: u64 = 1_741_608_000_000;
const DAY_MS: u64 = 86_400_000;
const DEVICES: usize = 50;

struct Generator {
    rng: Rng,
    count: usize,
}

impl Generator {
    fn record(&mut self) -> Record {
        let app = (*self.pick(&APPS)).to_owned();
        if self.one_in(50) {
            return self.bad(app);
        }
        let device = self.rng.usize(..DEVICES);
        let (family, own) = match self.rng.usize(..100) {
            0..60 => (Family::Touch, self.touch()),
            60..76 => (Family::Activation, self.activation()),
            _ => (Family::Effect, self.effect()),
        };
        let mut event = self.common(device);
        event.insert("app".into(), app.clone().into());
        event.extend(own);
        Record { family, app, line: Value::Object(event).to_string(), is_bad: false }
    }

    fn bad(&mut self, app: String) -> Record {
        let line = bad_line(&mut self.rng, "activation", &app);
        Record { family: Family::Activation, app, line, is_bad: true }
    }

    fn touch(&mut self) -> Map<String, Value> {
        let kind = if self.one_in(3) { "impression" } else { "click" };
        let purpose = if self.one_in(3) { "retargeting" } else { "ua" };
        let mut touch = object(json!({
            "type": kind, "purpose": purpose, "spreadid": self.rng.u32(1..=6),
            "site": *self.pick(&["good.example", "bad.example", ""]),
            "params": { "sub1": *self.pick(&TEXTS) },
        }));
        if !self.one_in(6) {
            touch.insert("click_id".into(), self.click_id().into());
        }
        if self.one_in(8) {
            touch.insert("lookback_ms".into(), (self.rng.u64(1..30) * DAY_MS).into());
        }
        touch
    }

    fn activation(&mut self) -> Map<String, Value> {
        let mut activation = object(json!({
            "type": "activation", "app_version": "1.2", "props": { "store": *self.pick(&TEXTS) },
        }));
        self.add_event_id(&mut activation, "a");
        if self.one_in(4) {
            activation.insert("click_id".into(), self.click_id().into());
        }
        if self.one_in(4) {
            activation.insert("install_begin_time".into(), self.time());
        }
        activation
    }

    fn effect(&mut self) -> Map<String, Value> {
        let mut effect = object(json!({
            "type": "effect", "name": *self.pick(&["register", "purchase", TEXTS[1]]),
            "props": { "level": *self.pick(&TEXTS), "b": "2", "a": "1" },
        }));
        self.add_event_id(&mut effect, "e");
        if self.one_in(2) {
            let revenues =
                [json!("9.99"), json!(0.5), json!("-3"), json!(9_007_199_254_740_993_u64)];
            effect.insert("revenue".into(), self.pick(&revenues).clone());
            effect.insert("currency".into(), "CNY".into());
        }
        effect
    }

    /// There are fewer ids than events, so that some are reused, mostly with different content.
    fn add_event_id(&mut self, event: &mut Map<String, Value>, prefix: &str) {
        if !self.one_in(8) {
            let id = format!("{prefix}-{}", self.rng.usize(..self.count / 4));
            event.insert("event_id".into(), id.into());
        }
    }

    fn click_id(&mut self) -> String {
        format!("c-{}", self.rng.usize(..self.count / 3))
    }

    fn common(&mut self, device: usize) -> Map<String, Value> {
        let mut ids = Map::new();
        self.add_ids(&mut ids, device);
        if self.one_in(10) {
            // This event connects two devices that share no ids otherwise.
            self.add_ids(&mut ids, (device + 1) % DEVICES);
        }
        let ip = match self.rng.usize(..10) {
            0 => "10.0.0.1".to_owned(),
            1 => format!("2001:DB8::{:x}", device % 7),
            _ => format!("203.0.113.{}", device % 7),
        };
        object(json!({
            "time": self.time(), "ids": ids, "ip": ip,
            "ua": format!("agent/{}", device % 3), "device_model": format!("m,{}", device % 5),
            "os": "android", "os_version": "14",
        }))
    }

    /// Returns a number or a text. There are few days and times of day, so that many times are equal, or at the
    /// edge of a window.
    fn time(&mut self) -> Value {
        let day = *self.pick(&[0, 0, 1, 6, 7, 7, 8, 30, 89, 90, 91, 97, 120]);
        let offset_ms =
            *self.pick(&[0, 0, 1, 999, 9_999, 59_999, 60_000, 240_000, 300_001, 3_600_000]);
        let time_ms = NOON_MS + day * DAY_MS + offset_ms;
        if self.one_in(5) {
            let time = jiff::Timestamp::from_millisecond(time_ms.cast_signed())
                .expect("the time is valid");
            time.to_string().into()
        } else {
            time_ms.into()
        }
    }

    fn add_ids(&mut self, ids: &mut Map<String, Value>, device: usize) {
        let uuid = |first: u32| format!("{first:08x}-aaaa-4bbb-8ccc-{device:012x}");
        let raw = [
            ("oaid", uuid(1)),
            ("gaid", uuid(2)),
            ("idfa", uuid(3).to_uppercase()),
            ("imei", format!("8680000{device:08}")),
            ("android_id", format!("{:016x}", 0xabc_0000 + device)),
            ("caid", format!("caid-{device}")),
            ("mac", format!("AA:BB:CC:00:00:{device:02x}")),
        ];
        for (kind, value) in raw {
            match self.rng.usize(..12) {
                0 | 1 => ids.insert(kind.into(), value.into()),
                2 => {
                    let digest = Md5::digest(&value);
                    let hex: String = digest.iter().map(|byte| format!("{byte:02X}")).collect();
                    ids.insert(format!("{kind}_md5"), hex.into())
                }
                3 => ids.insert(kind.into(), "00000000-0000-0000-0000-000000000000".into()),
                _ => None,
            };
        }
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.rng.usize(..count) == 0
    }

    fn pick<'a, T>(&mut self, values: &'a [T]) -> &'a T {
        &values[self.rng.usize(..values.len())]
    }
}

/// Texts that CSV has to quote, and others.
const TEXTS: [&str; 5] = ["plain", "a, \"quoted\" name", "two\r\nlines", "中文 ü", ""];

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("not an object: {other}"),
    }
}
