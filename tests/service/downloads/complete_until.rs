//! `Adtrail-Complete-Until`: the response contains every event that Kafka had received before that time.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use testbed::DEADLINE;
use testbed::adtrail::Adtrail;
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site};

const EVENTS: usize = 1_000;

/// All rows.
const ALL: &str = "/v1/apps/app-x/events.csv?from=2026-01-01&to=2099-01-01&fields=event_id";

/// Returns the time up to which a download is complete, and its number of rows.
fn download(adtrail: &Adtrail) -> (Option<Timestamp>, usize) {
    let reply = adtrail.get(ALL).expect("adtrail responds");
    assert!(reply.is_whole && reply.status == 200);
    let until =
        reply.header("adtrail-complete-until").map(|text| text.parse().expect("the time is valid"));
    (until, reply.text().lines().count() - 1)
}

#[test]
fn a_download_has_all_events_received_before_complete_until() {
    let kafka = Kafka::shared();
    // Batches are committed late, so that at nearly any time some records are read and not committed.
    let site = Site::new(kafka, "complete", 3, ONE_CAMPAIGN).set("ingest.batch_age_max", "1500ms");
    let adtrail = site.start();
    // Times of acknowledgements, with the number of records acknowledged until then.
    let mut acknowledged: Vec<(Timestamp, usize)> = Vec::new();
    let (mut started, mut produced) = (Instant::now(), 0);
    loop {
        if produced < EVENTS {
            let message = |number: usize| {
                let (id, time) = (produced + number, Timestamp::now());
                let line = format!(r#"{{"app":"app-x","event_id":"a-{id}","time":"{time}"}}"#);
                Message::new(format!("key-{id}"), line)
            };
            kafka.produce(&site.topics.activations, (0..100).map(message));
            produced += 100;
            acknowledged.push((Timestamp::now(), produced));
            started = Instant::now();
        }
        let (until, rows) = download(&adtrail);
        let before = acknowledged.iter().filter(|(at, _)| until.is_some_and(|until| until > *at));
        let least = before.map(|(_, count)| *count).max().unwrap_or(0);
        assert!(
            rows >= least,
            "{rows} rows, expected at least the {least} received before {until:?}"
        );
        // The time catches up eventually.
        if least == EVENTS {
            break;
        }
        assert!(started.elapsed() < DEADLINE, "complete until {until:?}, {rows} rows");
        std::thread::sleep(Duration::from_millis(400));
    }
    adtrail.stop();
}
