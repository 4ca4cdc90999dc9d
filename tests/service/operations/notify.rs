//! What the service reports to systemd, over a socket that takes systemd's place.

use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};
use std::thread;

use tempfile::TempDir;
use testbed::adtrail::Adtrail;
use testbed::eventually;
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site, Topics};

const FED: &str = "WATCHDOG=1\n";

/// The place of systemd: it receives the messages of one process.
struct Manager {
    dir: TempDir,
    messages: Arc<Mutex<Vec<String>>>,
}

impl Manager {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        let messages = Arc::<Mutex<Vec<String>>>::default();
        let received = Arc::clone(&messages);
        thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(length) = socket.recv(&mut buffer) {
                let message = String::from_utf8(buffer[..length].to_vec()).unwrap();
                received.lock().unwrap().push(message);
            }
        });
        Self { dir, messages }
    }

    fn start(&self, site: &Site, environment: &[(&str, &str)]) -> Adtrail {
        let socket = self.dir.path().join("notify");
        let socket = [("NOTIFY_SOCKET", socket.to_str().unwrap())];
        site.spawn_with(&[&socket[..], environment].concat())
    }

    fn messages(&self) -> Vec<String> {
        self.messages.lock().unwrap().clone()
    }

    fn count(&self, message: &str) -> usize {
        self.messages().iter().filter(|received| *received == message).count()
    }

    /// Waits until the messages fulfil a condition.
    #[track_caller]
    fn await_that(&self, what: &str, is_fulfilled: impl Fn(&[String]) -> bool) {
        eventually(what, || {
            let messages = self.messages();
            if is_fulfilled(&messages) { Ok(()) } else { Err(messages.concat()) }
        });
    }

    #[track_caller]
    fn await_message(&self, message: &str) {
        self.await_that(message, |received| received.iter().any(|text| text == message));
    }
}

#[test]
fn ready_is_sent_once_partitions_are_found() {
    const READY: &str = "READY=1\nSTATUS=ready; lag 0 records, 0 s\n";
    let kafka = Kafka::shared();
    let site = Site::on(Topics::of("notify.ready"), kafka.brokers(), ONE_CAMPAIGN);
    let manager = Manager::new();
    let adtrail = manager.start(&site, &[]);
    manager.await_message("STATUS=not ready: no partitions are assigned yet\n");
    assert!(!manager.messages().concat().contains("READY=1"));
    for topic in site.topics.all() {
        kafka.create_topic(&format!("{topic}.dlq"), 1, &[]);
        kafka.create_topic(topic, 1, &[]);
    }
    manager.await_message(READY);
    assert_eq!(adtrail.admin("/readyz").unwrap().status, 200);
    adtrail.stop();
    manager.await_message("STOPPING=1\nSTATUS=stopping\n");
    assert_eq!(manager.messages().concat().matches("READY=1").count(), 1);
    assert_eq!(manager.count(FED), 0, "no watchdog was requested");
}

#[test]
fn a_reload_is_announced() {
    let site = Site::new(Kafka::shared(), "notify.reload", 1, ONE_CAMPAIGN);
    let manager = Manager::new();
    let adtrail = manager.start(&site, &[]);
    manager.await_that("the service is ready", |messages| messages.concat().contains("READY=1"));
    adtrail.signal("HUP");
    manager.await_that("the reload begins and ends", |messages| {
        let mut since = messages.iter().skip_while(|message| !message.starts_with("RELOADING=1\n"));
        since.next().is_some_and(|message| message.contains("\nMONOTONIC_USEC="))
            && since.any(|message| message == "READY=1\n")
    });
    adtrail.stop();
}

/// Between two messages with a status there is time to feed the watchdog, so a process that feeds it does.
#[test]
fn a_stalled_attribution_does_not_feed_the_watchdog() {
    let watchdog = ("WATCHDOG_USEC", "1000000");
    let site = Site::new(Kafka::shared(), "notify.watchdog", 1, ONE_CAMPAIGN).impatient();
    let manager = Manager::new();
    let adtrail = manager.start(&site, &[watchdog]);
    manager.await_that("the service is ready and feeds the watchdog", |messages| {
        let since_ready = messages.iter().skip_while(|message| !message.contains("READY=1"));
        since_ready.filter(|message| *message == FED).count() >= 5
    });
    adtrail.stop();

    let line = r#"{"app":"app-x","event_id":"a-1","time":"2025-03-10T12:00:00Z"}"#;
    Kafka::shared().produce(&site.topics.activations, [Message::new("app-x", line)]);
    let manager = Manager::new();
    let stalled = ("FAILPOINTS", "batch-received=sleep(3600000)");
    let adtrail = manager.start(&site, &[watchdog, stalled]);
    manager.await_that("the lag grows, and the watchdog is not fed", |messages| {
        let last = messages.iter().rev().take_while(|message| *message != FED);
        last.filter(|message| message.starts_with("STATUS=ready; lag 1 records, ")).count() >= 3
    });
    assert!(manager.messages().concat().contains("READY=1"));
    adtrail.await_readiness(200, "ready");
    adtrail.kill9();
}
