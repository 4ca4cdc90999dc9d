//! An unmodified Singer tap for AppsFlyer, with only its host changed, reads a month of reports.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};
use testbed::adtrail::Adtrail;
use testbed::http;
use testbed::kafka::{Kafka, Message};
use testbed::site::Site;
use testbed::{cache_dir, run_ok};

const SETTINGS: &str = r#"
[[apps]]
pid = 1
key = "app-x"
name = "App X"
[apps.attribution]
correction_horizon = "off"
[[channels]]
id = "toutiao"
[[campaigns]]
spreadid = 7
pid = 1
channel = "toutiao"
name = "Spring, \"26\""
"#;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// Number of days with events; the last one is yesterday.
const DAYS: u64 = 29;
/// Number of devices per day; every third is organic.
const DEVICES: u64 = 30;

/// Returns the first day, in ms since 1970: the tap reads up to 30 days, and nothing older than 90 days.
fn first_day() -> u64 {
    // Computed once, so that it does not change at midnight.
    static FIRST_DAY: LazyLock<u64> = LazyLock::new(|| {
        let now = jiff::Timestamp::now().as_millisecond().cast_unsigned();
        now / DAY * DAY - DAYS * DAY
    });
    *FIRST_DAY
}

/// A device with its events and the records that the tap should read.
struct Device {
    number: u64,
    begin: u64,
}

impl Device {
    fn all() -> impl Iterator<Item = Self> {
        let first = first_day();
        (0..DAYS * DEVICES).map(move |number| {
            let begin = first + number / DEVICES * DAY + (number % DEVICES) * 37 * MINUTE;
            Self { number, begin }
        })
    }

    fn is_attributed(&self) -> bool {
        !self.number.is_multiple_of(3)
    }

    fn oaid(&self) -> String {
        format!("{:08x}-1111-4222-8333-444444444444", self.number)
    }

    fn click(&self) -> Value {
        json!({
            "type": "click", "app": "app-x", "click_id": format!("c-{}", self.number), "spreadid": 7,
            "time": self.begin, "ids": {"oaid": self.oaid()}, "site": format!("site, {}", self.number),
            "params": {"sub1": "\"quoted\"", "sub3": "\u{5e7f}\u{544a}"},
        })
    }

    fn activation(&self) -> Value {
        json!({
            "app": "app-x", "event_id": format!("a-{}", self.number), "time": self.begin + HOUR,
            "ids": {"oaid": self.oaid(), "gaid": self.oaid()}, "os": "android", "ua": "Mozilla/5.0 (X, Y)",
            "app_version": "1.2", "device_model": "V2",
        })
    }

    fn effect(&self) -> Value {
        json!({
            "app": "app-x", "event_id": format!("e-{}", self.number), "name": "purchase",
            "time": self.begin + 2 * HOUR + self.number, "ids": {"oaid": self.oaid()},
            "revenue": "9.99", "currency": "USD", "props": {"level": self.number.to_string()},
        })
    }

    /// Returns the tap's record without null fields.
    fn record(&self, is_effect: bool) -> Value {
        let time = |ms: u64| json!(utc(ms));
        let mut record = json!({
            "install_time": time(self.begin + HOUR), "appsflyer_id": format!("a-{}", self.number),
            "app_id": "app-x", "app_name": "App X", "is_retargeting": false,
            // The tap reads an empty boolean as false.
            "is_primary_attribution": false, "is_receipt_validated": false, "wifi": false,
        });
        let mut add = |more: Value| {
            let more = more.as_object().expect("it is an object").clone();
            record.as_object_mut().expect("it is an object").extend(more);
        };
        if self.is_attributed() {
            add(json!({
                "attributed_touch_type": "click", "attributed_touch_time": time(self.begin),
                "media_source": "toutiao", "campaign": "Spring, \"26\"", "af_c_id": "7",
                "af_siteid": format!("site, {}", self.number), "af_sub1": "\"quoted\"",
                "af_sub3": "\u{5e7f}\u{544a}", "af_attribution_lookback": "7d",
                "is_primary_attribution": true,
            }));
        } else {
            add(json!({"media_source": "organic"}));
        }
        if is_effect {
            add(json!({
                "event_time": time(self.begin + 2 * HOUR + self.number), "event_name": "purchase",
                "event_value": format!("{{\"level\":\"{}\"}}", self.number), "event_revenue": "9.99",
                "event_revenue_currency": "USD", "event_revenue_usd": "9.99",
            }));
        } else {
            add(json!({
                "event_time": time(self.begin + HOUR), "event_name": "install", "event_value": "null",
                "advertising_id": self.oaid(), "platform": "android", "app_version": "1.2",
                "device_type": "V2", "user_agent": "Mozilla/5.0 (X, Y)",
            }));
        }
        record
    }
}

/// Formats a time as Singer does, to the second.
fn utc(ms: u64) -> String {
    let seconds = (ms / SECOND).cast_signed();
    let time = jiff::Timestamp::from_second(seconds).expect("the time is valid");
    time.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()
}

/// The tap, with a configuration for the service.
struct Tap {
    folder: PathBuf,
    host: String,
}

impl Tap {
    fn new(folder: &Path, adtrail: &Adtrail, token: &str) -> Self {
        let config = json!({
            "app_id": "app-x", "api_token": token,
            "start_date": utc(first_day()), "user_agent": "a tap of a test",
        });
        fs::write(folder.join("tap.json"), config.to_string()).expect("the file is written");
        Self { folder: folder.to_owned(), host: format!("http://{}", adtrail.export) }
    }

    fn command(&self) -> Command {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integrations/appsflyer/tap.py");
        let mut command = Command::new(cache_dir().join("tap/bin/python"));
        command.arg(script).arg(&self.host).arg("--config").arg(self.folder.join("tap.json"));
        command
    }

    /// Returns the messages of all streams.
    fn messages(&self) -> Vec<Value> {
        let catalog = run_ok(self.command().arg("--discover"), b"");
        let mut catalog: Value = serde_json::from_slice(&catalog).expect("the catalog is JSON");
        for stream in catalog["streams"].as_array_mut().expect("the catalog has streams") {
            for part in stream["metadata"].as_array_mut().expect("the stream has metadata") {
                part["metadata"]["selected"] = json!(true);
            }
        }
        let file = self.folder.join("catalog.json");
        fs::write(&file, catalog.to_string()).expect("the file is written");
        let printed = run_ok(self.command().arg("--catalog").arg(file), b"");
        let printed = String::from_utf8(printed).expect("valid UTF-8");
        printed
            .lines()
            .map(|line| serde_json::from_str(line).expect("the message is JSON"))
            .collect()
    }
}

/// Returns the records by stream, in order, without null fields.
fn records(messages: &[Value]) -> BTreeMap<String, Vec<Value>> {
    let mut streams: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for message in messages.iter().filter(|message| message["type"] == "RECORD") {
        let mut record = message["record"].as_object().expect("the message has a record").clone();
        assert_eq!(record.len(), 81);
        record.retain(|_, value| !value.is_null());
        let stream = message["stream"].as_str().expect("the stream has a name").to_owned();
        streams.entry(stream).or_default().push(Value::Object(record));
    }
    streams
}

/// Reads a report by the columns of its header.
fn by_header(adtrail: &Adtrail, report: &str, token: &str) -> Vec<Value> {
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integrations/appsflyer/by_header.py");
    let days =
        [first_day(), first_day() + DAYS * DAY - SECOND].map(|ms| utc(ms)[..19].replace('T', "+"));
    let url = format!(
        "http://{}/api/raw-data/export/app/app-x/{report}/v5?from={}&to={}&timezone=UTC\
         &maximum_rows=1000000&currency=preferred&additional_fields=oaid,app_type,campaign_type",
        adtrail.export, days[0], days[1],
    );
    let python = cache_dir().join("tap/bin/python");
    let printed = run_ok(Command::new(python).arg(script).args([&url, token]), b"");
    let printed = String::from_utf8(printed).expect("valid UTF-8");
    printed.lines().map(|line| serde_json::from_str(line).expect("the record is JSON")).collect()
}

#[test]
fn an_unmodified_tap_reads_a_month() {
    let kafka = Kafka::shared();
    let mut site = Site::new(kafka, "appsflyer.tap", 1, SETTINGS);
    let (token, entry) = site.new_token(&["--app", "app-x"]);
    site.change(&format!("{SETTINGS}\n{entry}"));
    let send = |topic: &str, events: Vec<Value>| {
        let messages = events.iter().map(|event| Message::new("app-x", event.to_string()));
        kafka.produce(topic, messages.collect::<Vec<_>>());
        events.len() as u64
    };
    let clicks = Device::all().filter(Device::is_attributed).map(|device| device.click()).collect();
    let mut sent = send(&site.topics.clicks, clicks);
    sent +=
        send(&site.topics.activations, Device::all().map(|device| device.activation()).collect());
    sent += send(&site.topics.effects, Device::all().map(|device| device.effect()).collect());
    let adtrail = site.start();
    adtrail.await_read(sent);

    let found = records(&Tap::new(site.path(), &adtrail, &token).messages());
    let newest_first = |is_effect: bool, is_attributed: bool| -> Vec<Value> {
        let devices = Device::all().filter(|device| device.is_attributed() == is_attributed);
        let mut records: Vec<_> = devices.map(|device| device.record(is_effect)).collect();
        records.reverse();
        records
    };
    let expected = [
        ("in_app_events", newest_first(true, true)),
        ("installs", newest_first(false, true)),
        ("organic_installs", newest_first(false, false)),
    ];
    for (stream, expected) in &expected {
        let found = &found[*stream];
        assert_eq!(found.len(), expected.len(), "{stream}");
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found, expected, "{stream}");
        }
    }
    assert_eq!(found.len(), 3);

    let installs = by_header(&adtrail, "organic_installs_report", &token);
    let ids: Vec<_> = installs.iter().map(|record| &record["AppsFlyer ID"]).collect();
    let expected: Vec<_> = expected[2].1.iter().map(|record| &record["appsflyer_id"]).collect();
    assert_eq!(ids, expected);
    let last = &installs[0];
    let number = DAYS * DEVICES - 3;
    assert_eq!(last["OAID"], format!("{number:08x}-1111-4222-8333-444444444444"));
    assert_eq!((&last["app_type"], &last["Campaign Type"]), (&json!(""), &json!("organic")));

    // Without a token the response is a JSON error.
    let refused =
        adtrail.get("/api/raw-data/export/app/app-x/installs_report/v5").expect("adtrail responds");
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")));
    let problem: Value = serde_json::from_slice(&refused.body).expect("valid JSON");
    assert!(
        problem["message"]
            .as_str()
            .expect("the message is a string")
            .contains("Authorization: Bearer"),
        "{problem}"
    );
    let authorization = format!("Bearer {token}");
    let path = "/api/raw-data/export/app/app-y/installs_report/v5";
    let headers = [("Authorization", &*authorization)];
    let other = http::request("GET", &adtrail.export, path, &headers).expect("adtrail responds");
    assert_eq!(other.status, 404, "{}", other.text());
    adtrail.stop();
}
