//! The alerts of deploy/alerts.yml ring on a real Prometheus when the thing happens that they are of, and not
//! before. `promtool` tests how long each waits; here nobody waits, and minutes are seconds.

use std::path::Path;

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
    kafka: Kafka,
    site: Site,
    adtrail: Adtrail,
    prometheus: Prometheus,
}

/// One that has read something, keeps up, and has alerted nobody.
fn bed(settings: &str, place: impl FnOnce(Site) -> Site) -> Bed {
    let bed = bed_after(settings, place, |_| 0);
    let looked = || bed.prometheus.query("prometheus_rule_group_iterations_total");
    eventually("the rules were looked at", || match looked()[..] {
        [times] if times >= 5.0 => Ok(()),
        ref other => Err(format!("{other:?}")),
    });
    eventually("nothing rings", || match bed.prometheus.ringing() {
        ringing if ringing.is_empty() => Ok(()),
        ringing => Err(format!("{ringing:?}")),
    });
    bed
}

/// One that nobody looks at before it has read what `first` produces, so many more records.
fn bed_after(
    settings: &str,
    place: impl FnOnce(Site) -> Site,
    first: impl FnOnce((&Kafka, &Site)) -> u64,
) -> Bed {
    let kafka = Kafka::start();
    let site = Site::new(&kafka, "alerts", 1, &format!("{ONE_CAMPAIGN}{settings}"));
    let site = place(site.set("store.retention", "off"));
    kafka.produce(&site.topics.activations, (0..50).map(event));
    let more = first((&kafka, &site));
    let adtrail = site.start();
    adtrail.await_read(50 + more);
    let prometheus = Prometheus::start_with(&[&adtrail.admin], "adtrail", &rules());
    Bed { kafka, site, adtrail, prometheus }
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

impl Bed {
    fn produce(&self, messages: impl IntoIterator<Item = Message>) {
        self.kafka.produce(&self.site.topics.activations, messages);
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
}

const BUSY: [&str; 2] = ["AdtrailDown", "AdtrailStuck"];

/// What waits is behind, and if nothing else is read, nothing is committed.
const WAITING: [&str; 2] = ["AdtrailBehind", "AdtrailStuck"];

#[test]
fn a_record_that_is_no_event() {
    let bed = bed("", |site| site);
    bed.produce([Message::new("app-x", "nonsense")]);
    bed.await_ringing(&["AdtrailDeadLetters"], &[]);
}

/// A counter that begins with one has not increased.
#[test]
fn a_record_that_was_none_before_anybody_looked() {
    let bed = bed_after(
        "",
        |site| site,
        |(kafka, site)| {
            kafka.produce(&site.topics.activations, [Message::new("app-x", "nonsense")]);
            1
        },
    );
    bed.await_ringing(&["AdtrailDeadLetters"], &[]);
}

#[test]
fn a_partition_of_records_that_are_no_events() {
    let bed = bed("[ingest]\nbad_records_max = 2\n", |site| site);
    bed.produce((0..9).map(|_| Message::new("app-x", "nonsense")));
    let ringing = ["AdtrailDeadLetters", "AdtrailPartitionStopped"];
    bed.await_ringing(&[&ringing[..], &WAITING].concat(), &[]);
}

#[test]
fn a_schema_that_nobody_knows() {
    let settings = format!("[registry]\nurls = [\"http://127.0.0.1:{}\"]\n", free_port());
    let bed = bed(&settings, |site| site);
    bed.produce([Message::new("app-x", [0, 0, 0, 0, 7, 1, 2, 3])]);
    bed.await_ringing(&[&["AdtrailSchemaMissing"][..], &WAITING].concat(), &[]);
}

#[test]
fn a_broker_that_is_gone_and_a_service() {
    let mut bed = bed("", |site| site);
    bed.kafka.kill9();
    bed.await_ringing(&["AdtrailStuck"], &[]);
    bed.kafka.restart();
    eventually("it is quiet again", || match bed.prometheus.ringing() {
        ringing if ringing.is_empty() => Ok(()),
        ringing => Err(format!("{ringing:?}")),
    });
    let Bed { adtrail, prometheus, kafka, site } = bed;
    let pid = adtrail.pid().to_string();
    testbed::run_ok(std::process::Command::new("kill").args(["-KILL", &pid]), b"");
    let bed = Bed { adtrail, prometheus, kafka, site };
    bed.await_ringing(&["AdtrailDown"], &["AdtrailStuck"]);
}

#[test]
fn a_disk_that_is_full() {
    let mut full = None;
    let bed = bed("", |site| {
        let folder = site.path().join("disk");
        full = Some(Disk::at(&folder, 256));
        site.set("store.path", folder.join("store").to_str().unwrap()).set("store.memory", "32MiB")
    });
    full.as_ref().unwrap().fill();
    // More than fits into what the log's file has left.
    let agent = "x".repeat(2_000);
    bed.produce((100..20_000).map(|number| event_of(number, &agent)));
    bed.await_ringing(&[&["AdtrailDiskFull"][..], &WAITING].concat(), &["AdtrailStoreStalls"]);
}
