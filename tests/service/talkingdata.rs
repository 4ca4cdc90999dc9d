//! TalkingData's clicks end to end: kcat, a real Kafka, the service and HTTP, over the embedded store and over a real
//! HBase.
//!
//! The sample of the AdTracking data set of 2017 has 100,000 clicks, 227 of which led to an install. It has no device
//! ids, so a click and its install match by address, model and operating system. The project may not redistribute the
//! data: `make test` runs this test if the file is present, and otherwise prints that it did not run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use testbed::adtrail::Adtrail;
use testbed::kafka::Kafka;
use testbed::site::{Site, Topics};
use testbed::{exports, hbase, rows, run_ok};

const CLICKS: usize = 100_000;
const ACTIVATIONS: usize = 227;

/// One line of the sample.
#[derive(Debug)]
struct Sample {
    ip: u32,
    app: u32,
    device: u32,
    os: u32,
    channel: u32,
    click_time: String,
    attributed_time: String,
}

/// The columns in the file's order, `is_attributed` last.
type Columns = (u32, u32, u32, u32, u32, String, String, u8);

impl From<Columns> for Sample {
    fn from(columns: Columns) -> Self {
        let (ip, app, device, os, channel, click_time, attributed_time, _) = columns;
        Self { ip, app, device, os, channel, click_time, attributed_time }
    }
}

impl Sample {
    fn app_key(&self) -> String {
        format!("app-{}", self.app)
    }

    /// Fields that the click and its activation have in common.
    fn common(&self) -> serde_json::Value {
        serde_json::json!({
            "app": self.app_key(),
            // The sample's addresses are numbers; each is mapped to an address reserved for documentation.
            "ip": format!("2001:db8::{:x}:{:x}", self.ip >> 16, self.ip & 0xffff),
            "device_model": format!("m-{}", self.device),
            "os": format!("os-{}", self.os),
            "os_version": "1",
        })
    }

    fn event(&self, fields: serde_json::Value) -> String {
        let mut event = self.common();
        let fields = fields.as_object().unwrap().clone();
        event.as_object_mut().unwrap().extend(fields);
        format!("{}|{event}\n", self.app_key())
    }
}

/// Converts `2017-11-07 09:30:38`, in UTC, to RFC 3339.
fn rfc3339(time: &str, fraction: &str) -> String {
    format!("{}{fraction}Z", time.replace(' ', "T"))
}

/// Reads the file that `ADTRAIL_TALKINGDATA` names.
fn sample(path: &Path) -> Vec<Sample> {
    let usage = "ADTRAIL_TALKINGDATA names train_sample.csv, gzipped; see docs/testing.md";
    assert!(path.is_file(), "no file: {}; {usage}", path.display());
    let text = run_ok(Command::new("gzip").arg("-dc").arg(path), b"");
    let lines = csv::Reader::from_reader(&text[..]).into_deserialize::<Columns>();
    lines.map(|line| line.unwrap().into()).collect()
}

/// Campaign numbers by app and channel.
type Campaigns = BTreeMap<(u32, u32), usize>;

fn campaigns(sample: &[Sample]) -> Campaigns {
    let pairs: BTreeSet<_> = sample.iter().map(|line| (line.app, line.channel)).collect();
    pairs.into_iter().zip(1..).collect()
}

fn settings(campaigns: &Campaigns) -> String {
    let mut text = String::from(
        "[attribution]\nprobabilistic = true\nclick_probabilistic_window = \"24h\"\n\
         correction_horizon = \"off\"\n",
    );
    for app in campaigns.keys().map(|(app, _)| app).collect::<BTreeSet<_>>() {
        writeln!(text, "[[apps]]\npid = {app}\nkey = \"app-{app}\"").unwrap();
    }
    for channel in campaigns.keys().map(|(_, channel)| channel).collect::<BTreeSet<_>>() {
        writeln!(text, "[[channels]]\nid = \"ch-{channel}\"").unwrap();
    }
    for ((app, channel), spreadid) in campaigns {
        let keys = format!("spreadid = {spreadid}\npid = {app}\nchannel = \"ch-{channel}\"");
        writeln!(text, "[[campaigns]]\n{keys}").unwrap();
    }
    text
}

/// The events to produce, one per line with its key, in kcat's format.
struct Lines {
    clicks: String,
    activations: String,
}

impl Lines {
    fn new(sample: &[Sample], campaigns: &Campaigns) -> Self {
        let (mut clicks, mut activations) = (String::new(), String::new());
        for (line, number) in sample.iter().zip(1..) {
            clicks += &line.event(serde_json::json!({
                "type": "click",
                "click_id": number.to_string(),
                "spreadid": campaigns[&(line.app, line.channel)],
                "time": rfc3339(&line.click_time, ""),
            }));
            if !line.attributed_time.is_empty() {
                activations += &line.event(serde_json::json!({
                    "type": "activation",
                    "event_id": format!("a-{number}"),
                    "time": rfc3339(&line.attributed_time, ""),
                }));
            }
        }
        Self { clicks, activations }
    }

    fn produce(&self, kafka: &Kafka, site: &Site) {
        let topics = &site.topics;
        kafka.kcat(&["-P", "-t", &topics.activations, "-K", "|"], self.activations.as_bytes());
        kafka.kcat(&["-P", "-t", &topics.clicks, "-K", "|"], self.clicks.as_bytes());
    }

    /// Runs `adtrail replay` on the events.
    fn replayed(&self, campaigns: &Campaigns) -> Vec<u8> {
        let site = Site::on(Topics::of("replayed"), "nowhere:1".into(), &settings(campaigns));
        let lines = self.activations.lines().chain(self.clicks.lines());
        let events: String =
            lines.filter_map(|line| Some(format!("{}\n", line.split_once('|')?.1))).collect();
        run_ok(&mut site.command(&["replay", "-"]), events.as_bytes())
    }
}

/// Downloads the CSV of all apps, under one header line.
fn download(adtrail: &Adtrail, campaigns: &Campaigns) -> Vec<u8> {
    let mut all = Vec::new();
    for app in campaigns.keys().map(|(app, _)| app).collect::<BTreeSet<_>>() {
        let path = format!("/v1/apps/app-{app}/events.csv?from=2017-11-06&to=2017-11-10");
        let reply = adtrail.get(&path).unwrap();
        assert!(reply.status == 200 && reply.is_whole, "{path}: {reply:?}");
        let names = reply.body.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        all.extend_from_slice(&reply.body[if all.is_empty() { 0 } else { names }..]);
    }
    all
}

#[test]
fn every_activation_is_credited_to_its_own_click() {
    let Some(path) = std::env::var_os("ADTRAIL_TALKINGDATA").filter(|path| !path.is_empty()) else {
        eprintln!(
            "NOT RUN: the sample may not be redistributed; docs/testing.md says where to get it"
        );
        return;
    };
    let sample = sample(Path::new(&path));
    assert_eq!(sample.len(), CLICKS);
    let campaigns = campaigns(&sample);
    let lines = Lines::new(&sample, &campaigns);
    let kafka = Kafka::shared();
    let embedded = Site::new(kafka, "talkingdata", 4, &settings(&campaigns));
    lines.produce(kafka, &embedded);
    let servers = hbase::cluster::HBase::shared().servers();
    let shared = hbase::in_hbase(embedded.beside(), &servers, "talkingdata");
    run_ok(&mut shared.command(&["hbase", "init"]), b"");

    let expected = lines.replayed(&campaigns);
    check_credit(&expected, &sample, &campaigns);
    for (site, store) in [(embedded, "embedded"), (shared, "hbase")] {
        let adtrail = site.start();
        adtrail.await_read((CLICKS + ACTIVATIONS) as u64);
        assert_eq!(adtrail.metric("adtrail_ingest_dead_lettered_total"), Some(0.0));
        exports::check_same(store, &download(&adtrail, &campaigns), &expected);
        adtrail.stop();
    }
}

fn check_credit(csv: &[u8], sample: &[Sample], campaigns: &Campaigns) {
    let found = rows::by_event_id(rows::parse(csv));
    assert_eq!(found.len(), ACTIVATIONS);
    let mut credited = 0;
    for (line, number) in sample.iter().zip(1..) {
        if line.attributed_time.is_empty() {
            continue;
        }
        let row = &found[&format!("a-{number}")];
        check_row(row, line, number, campaigns[&(line.app, line.channel)]);
        credited += 1;
    }
    println!("credited to their own click's channel: {credited} of {ACTIVATIONS}");
    assert_eq!(credited, ACTIVATIONS);
}

#[track_caller]
fn check_row(row: &rows::Row, line: &Sample, number: u32, spreadid: usize) {
    let expected = [
        ("event_type", "activation".into()),
        ("event_time", rfc3339(&line.attributed_time, ".000")),
        ("app", line.app_key()),
        ("pid", line.app.to_string()),
        ("status", "attributed".into()),
        ("install_type", "install".into()),
        ("spreadid", spreadid.to_string()),
        ("channel", format!("ch-{}", line.channel)),
        ("match_type", "ip_device".into()),
        ("touch_type", "click".into()),
        ("touch_time", rfc3339(&line.click_time, ".000")),
        ("click_id", number.to_string()),
    ];
    for (column, value) in expected {
        assert_eq!(row[column], value, "{column} of click {number}: {row:?}");
    }
}
