//! Each alert of deploy/alerts.yml fires on a real Prometheus when its problem occurs, and not before. Here `for` is
//! removed and thresholds are lower; `promtool` tests the real ones.

mod callbacks;
mod collector;
mod records;
mod store;

use std::path::Path;
use std::thread;
use std::time::Duration;

use testbed::adtrail::Adtrail;
use testbed::disk::Disk;
use testbed::kafka::{Kafka, Message};
use testbed::prometheus::Prometheus;
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{eventually, free_port};

/// Returns the shipped rules with shorter times and lower thresholds.
fn rules() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/alerts.yml");
    let rules = std::fs::read_to_string(path).unwrap();
    let lower = [
        ("_timestamp_seconds > 300\n", "_timestamp_seconds > 3\n"),
        ("_seconds > 600\n", "_seconds > 6\n"),
        ("_spool_events[10m]", "_spool_events[3s]"),
    ];
    let rules = replace_all(rules, &lower);
    rules.split_inclusive('\n').filter(|line| !line.starts_with("        for: ")).collect()
}

fn replace_all(rules: String, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(rules, |rules, (shipped, lower)| {
        assert!(rules.contains(shipped), "no rule contains {shipped}");
        rules.replace(shipped, lower)
    })
}

struct Fixture {
    adtrail: Adtrail,
    prometheus: Prometheus,
    site: Site,
}

/// Creates a site with topics that no other test uses.
fn site(kafka: &Kafka, name: &str, settings: &str) -> Site {
    let settings = format!("{ONE_CAMPAIGN}{settings}");
    Site::new(kafka, &format!("alerts.{name}"), 1, &settings)
}

/// Starts a service that has read everything, and waits until all rules are evaluated and none fires.
fn healthy(kafka: &Kafka, site: Site) -> Fixture {
    let fixture = start(kafka, site, None);
    fixture.await_evaluated();
    fixture
}

/// Starts a service, and Prometheus after the service has read 50 events and the last message.
fn start(kafka: &Kafka, site: Site, last: Option<Message>) -> Fixture {
    let messages: Vec<_> = (0..50).map(event).chain(last).collect();
    let count = messages.len() as u64;
    kafka.produce(&site.topics.activations, messages);
    let adtrail = site.start();
    adtrail.await_read(count);
    Fixture::of(adtrail, site)
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

fn invalid() -> Message {
    Message::new("app-x", "nonsense")
}

impl Fixture {
    /// Scrapes a running service.
    fn of(adtrail: Adtrail, site: Site) -> Self {
        let prometheus = Prometheus::start_with(&[&adtrail.admin], "adtrail", &rules());
        Self { adtrail, prometheus, site }
    }

    /// Waits until all rules are evaluated and none fires.
    #[track_caller]
    fn await_evaluated(&self) {
        let evaluations = || {
            // Rules are evaluated once a second, and each query starts a process.
            thread::sleep(Duration::from_secs(1));
            self.prometheus.query("prometheus_rule_group_iterations_total")
        };
        eventually("the rules are evaluated", || match evaluations()[..] {
            [times] if times >= 5.0 => Ok(()),
            ref other => Err(format!("{other:?}")),
        });
        self.await_no_alert();
    }

    fn produce(&self, messages: impl IntoIterator<Item = Message>) {
        Kafka::shared().produce(&self.site.topics.activations, messages);
    }

    /// Waits until these alerts fire. Other alerts may fire only if they are in `allowed` or [`BUSY`].
    #[track_caller]
    fn await_alerts(&self, expected: &[&str], allowed: &[&str]) {
        self.await_alerts_while(expected, allowed, || ());
    }

    /// Like [`Fixture::await_alerts`], for an alert on the increase of a counter: `cause` increases it until then.
    #[track_caller]
    fn await_alerts_while(&self, expected: &[&str], allowed: &[&str], mut cause: impl FnMut()) {
        eventually("the alerts fire", || {
            cause();
            let firing = self.prometheus.firing();
            let known = || expected.iter().chain(allowed).chain(&BUSY);
            let is_known = |name: &String| known().any(|known| known == name);
            assert!(firing.iter().all(is_known), "{firing:?}");
            let is_all = expected.iter().all(|name| firing.contains(*name));
            is_all.then_some(()).ok_or_else(|| format!("{firing:?} of {expected:?}"))
        });
    }

    #[track_caller]
    fn await_no_alert(&self) {
        eventually("no alert fires", || match self.prometheus.firing() {
            firing if firing.is_empty() => Ok(()),
            firing => Err(format!("{firing:?}")),
        });
    }
}

/// Alerts that may fire on a busy machine, where a scrape may take longer than a second.
const BUSY: [&str; 2] = ["AdtrailDown", "AdtrailStuck"];

/// Alerts of a service that waits: it lags behind, and commits nothing.
const WAITING: [&str; 2] = ["AdtrailBehind", "AdtrailStuck"];

/// The alert fires even if the counter is already above 0 in the first scrape, and does not increase.
#[test]
fn dead_letters_and_a_paused_partition_raise_alerts() {
    let kafka = Kafka::shared();
    let site = site(kafka, "bad", "[ingest]\nbad_records_max = 2\n");
    let fixture = start(kafka, site, Some(invalid()));
    fixture.await_alerts(&["AdtrailDeadLetters"], &[]);
    // Too many dead letters pause their partition.
    fixture.produce((0..9).map(|_| invalid()));
    let alerts = ["AdtrailDeadLetters", "AdtrailPartitionStopped"];
    fixture.await_alerts(&[&alerts[..], &WAITING].concat(), &[]);
}

#[test]
fn a_missing_schema_raises_alerts() {
    let kafka = Kafka::shared();
    let settings = format!("[registry]\nurls = [\"http://127.0.0.1:{}\"]\n", free_port());
    let fixture = healthy(kafka, site(kafka, "schema", &settings));
    fixture.produce([Message::new("app-x", [0, 0, 0, 0, 7, 1, 2, 3])]);
    fixture.await_alerts(&[&["AdtrailSchemaMissing"][..], &WAITING].concat(), &[]);
}

#[test]
fn settings_that_are_refused_raise_an_alert() {
    let kafka = Kafka::shared();
    let mut fixture = healthy(kafka, site(kafka, "reload", ""));
    fixture.site.change_beside(&fixture.adtrail, "[[apps]\n");
    assert_eq!(fixture.adtrail.reload().status, 422);
    fixture.await_alerts(&["AdtrailReloadFailed"], &[]);
    fixture.site.change_beside(&fixture.adtrail, ONE_CAMPAIGN);
    assert_eq!(fixture.adtrail.reload().status, 200);
    fixture.await_no_alert();
}

#[test]
fn a_killed_broker_and_a_killed_service_raise_alerts() {
    let mut kafka = Kafka::start();
    let fixture = healthy(&kafka, site(&kafka, "gone", ""));
    kafka.kill9();
    fixture.await_alerts(&["AdtrailStuck"], &[]);
    kafka.restart();
    fixture.await_no_alert();
    fixture.adtrail.signal("KILL");
    fixture.await_alerts(&["AdtrailDown"], &["AdtrailStuck"]);
}

#[test]
fn a_full_disk_raises_alerts() {
    let kafka = Kafka::shared();
    let site = site(kafka, "full", "");
    let folder = site.path().join("disk");
    let full = Disk::at(&folder, 1024);
    let store = folder.join("store");
    let site = site.set("store.path", store.to_str().unwrap()).set("store.memory", "32MiB");
    let fixture = healthy(kafka, site);
    full.fill();
    // More data than fits into the preallocated space of the WAL.
    let agent = "x".repeat(2_000);
    fixture.produce((100..20_000).map(|number| event_of(number, &agent)));
    let of_disk = ["AdtrailDiskNearlyFull", "AdtrailDiskFull"];
    fixture.await_alerts(&[&of_disk[..], &WAITING].concat(), &["AdtrailStoreStalls"]);
    // Unmounted before its mount point is removed.
    drop(full);
}
