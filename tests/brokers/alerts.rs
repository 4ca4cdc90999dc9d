//! The alerts of deploy/alerts.yml ring on a real Prometheus when the thing happens that they are of, and not
//! before. `promtool` tests how long each waits; here nobody waits, and minutes are seconds.

use std::path::Path;
use std::thread;
use std::time::Duration;

use testbed::adtrail::Adtrail;
use testbed::disk::Disk;
use testbed::kafka::{Kafka, Message};
use testbed::prometheus::Prometheus;
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{eventually, free_port};

/// As shipped, but for how long things last.
fn rules() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/alerts.yml");
    let rules = std::fs::read_to_string(path).unwrap();
    let shorter = [
        ("_timestamp_seconds > 300\n", "_timestamp_seconds > 3\n"),
        ("_seconds > 600\n", "_seconds > 6\n"),
    ];
    let rules = shorter.iter().fold(rules, |rules, (minutes, seconds)| {
        assert!(rules.contains(minutes), "no rule ends with {minutes}");
        rules.replace(minutes, seconds)
    });
    rules.split_inclusive('\n').filter(|line| !line.starts_with("        for: ")).collect()
}

struct Bed {
    adtrail: Adtrail,
    prometheus: Prometheus,
    site: Site,
}

/// With topics of the test's own, so that no other test's records are read.
fn site(kafka: &Kafka, name: &str, settings: &str) -> Site {
    let settings = format!("{ONE_CAMPAIGN}{settings}");
    Site::new(kafka, &format!("alerts.{name}"), 1, &settings).set("store.retention", "off")
}

/// One that has read something, keeps up, and has alerted nobody.
fn bed(kafka: &Kafka, site: Site) -> Bed {
    let bed = bed_after(kafka, site, None);
    let looked = || {
        // It happens once a second, and each question costs a process.
        thread::sleep(Duration::from_secs(1));
        bed.prometheus.query("prometheus_rule_group_iterations_total")
    };
    eventually("the rules were looked at", || match looked()[..] {
        [times] if times >= 5.0 => Ok(()),
        ref other => Err(format!("{other:?}")),
    });
    bed.await_silence();
    bed
}

/// One that nobody looks at before it has read this record, too.
fn bed_after(kafka: &Kafka, site: Site, last: Option<Message>) -> Bed {
    let messages: Vec<_> = (0..50).map(event).chain(last).collect();
    let count = messages.len() as u64;
    kafka.produce(&site.topics.activations, messages);
    let adtrail = site.start();
    adtrail.await_read(count);
    let prometheus = Prometheus::start_with(&[&adtrail.admin], "adtrail", &rules());
    Bed { adtrail, prometheus, site }
}

fn event(number: u32) -> Message {
    event_of(number, "")
}

fn event_of(number: u32, agent: &str) -> Message {
    let now = jiff::Timestamp::now();
    let event =
        format!(r#"{{"app":"app-x","event_id":"a-{number}","time":"{now}","ua":"{agent}"}}"#);
    Message::new("app-x", event)
}

fn no_event() -> Message {
    Message::new("app-x", "nonsense")
}

impl Bed {
    fn produce(&self, messages: impl IntoIterator<Item = Message>) {
        Kafka::shared().produce(&self.site.topics.activations, messages);
    }

    /// Until these ring, and none but these and what comes with them, or on a machine that is so busy that a second
    /// is not enough to be asked.
    #[track_caller]
    fn await_ringing(&self, expected: &[&str], with: &[&str]) {
        eventually("it rings", || {
            let ringing = self.prometheus.ringing();
            let known = || expected.iter().chain(with).chain(&BUSY);
            let is_known = |name: &String| known().any(|known| known == name);
            assert!(ringing.iter().all(is_known), "{ringing:?}");
            let is_all = expected.iter().all(|name| ringing.contains(*name));
            is_all.then_some(()).ok_or_else(|| format!("{ringing:?} of {expected:?}"))
        });
    }

    #[track_caller]
    fn await_silence(&self) {
        eventually("nothing rings", || match self.prometheus.ringing() {
            ringing if ringing.is_empty() => Ok(()),
            ringing => Err(format!("{ringing:?}")),
        });
    }
}

const BUSY: [&str; 2] = ["AdtrailDown", "AdtrailStuck"];

/// What waits is behind, and if nothing else is read, nothing is committed.
const WAITING: [&str; 2] = ["AdtrailBehind", "AdtrailStuck"];

/// A counter that is above 0 when it is first looked at has not increased, and it rings all the same.
#[test]
fn records_that_are_no_events() {
    let kafka = Kafka::shared();
    let site = site(kafka, "bad", "[ingest]\nbad_records_max = 2\n");
    let bed = bed_after(kafka, site, Some(no_event()));
    bed.await_ringing(&["AdtrailDeadLetters"], &[]);
    // Too many of them: their partition is read no further.
    bed.produce((0..9).map(|_| no_event()));
    let ringing = ["AdtrailDeadLetters", "AdtrailPartitionStopped"];
    bed.await_ringing(&[&ringing[..], &WAITING].concat(), &[]);
}

#[test]
fn a_schema_that_nobody_knows() {
    let kafka = Kafka::shared();
    let settings = format!("[registry]\nurls = [\"http://127.0.0.1:{}\"]\n", free_port());
    let bed = bed(kafka, site(kafka, "schema", &settings));
    bed.produce([Message::new("app-x", [0, 0, 0, 0, 7, 1, 2, 3])]);
    bed.await_ringing(&[&["AdtrailSchemaMissing"][..], &WAITING].concat(), &[]);
}

#[test]
fn a_broker_that_is_gone_and_a_service() {
    let mut kafka = Kafka::start();
    let bed = bed(&kafka, site(&kafka, "gone", ""));
    kafka.kill9();
    bed.await_ringing(&["AdtrailStuck"], &[]);
    kafka.restart();
    bed.await_silence();
    bed.adtrail.signal("KILL");
    bed.await_ringing(&["AdtrailDown"], &["AdtrailStuck"]);
}

#[test]
fn a_disk_that_is_full() {
    let kafka = Kafka::shared();
    let site = site(kafka, "full", "");
    let folder = site.path().join("disk");
    let full = Disk::at(&folder, 256);
    let store = folder.join("store");
    let site = site.set("store.path", store.to_str().unwrap()).set("store.memory", "32MiB");
    let bed = bed(kafka, site);
    full.fill();
    // More than fits into what the log's file has left.
    let agent = "x".repeat(2_000);
    bed.produce((100..20_000).map(|number| event_of(number, &agent)));
    bed.await_ringing(&[&["AdtrailDiskFull"][..], &WAITING].concat(), &["AdtrailStoreStalls"]);
    // Before the folder that it is mounted in.
    drop(full);
}
