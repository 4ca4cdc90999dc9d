//! The collector's spool: requests succeed while Kafka is away, and what was answered with success reaches Kafka.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use testbed::adtrail::Adtrail;
use testbed::disk::Disk;
use testbed::http::{self, Reply};
use testbed::kafka::Kafka;
use testbed::site::{Site, Topics};
use testbed::{SetOnDrop, check_refused, eventually, free_port, length};

use super::collector::{NOON_MS, settings};

/// A site with a spool in `spool` of its directory, and the address of its collector.
fn site(kafka: &Kafka, name: &str) -> (Site, String) {
    let port = free_port();
    let site = Site::new(kafka, name, 2, &settings(port, ""));
    (site.set("collect.spool", "spool"), format!("127.0.0.1:{port}"))
}

fn click_url(id: &str) -> String {
    format!("/click/app-x/toutiao?spreadid=7&click_id={id}&time={NOON_MS}")
}

fn click(address: &str, id: &str) -> Reply {
    http::get(address, &click_url(id)).expect("the collector responds")
}

/// Returns the ids of all clicks in Kafka.
fn ids(kafka: &Kafka, site: &Site) -> BTreeSet<String> {
    let records = kafka.consume_all(&site.topics.clicks);
    let id = |value: &[u8]| {
        let event: Value = serde_json::from_slice(value).expect("the event is JSON");
        event["click_id"].as_str().expect("the event has an id").to_owned()
    };
    records.iter().map(|record| id(record.value.as_deref().expect("a value"))).collect()
}

fn await_drained(collector: &Adtrail) {
    collector.await_metric("adtrail_collect_spool_events", "", |events| events == 0.0);
}

/// Checks that every event of this process is accounted for.
#[track_caller]
fn check_conservation(collector: &Adtrail) {
    let of = |name: &str| collector.metric(&format!("adtrail_collect_{name}")).unwrap_or(0.0);
    let answered = of("produced_total") + of("spooled_total") + of("refused_total");
    assert_eq!(of("received_total"), answered, "{}", collector.metrics());
    let taken = of("spool_recovered_total") + of("spooled_total");
    let left = of("spool_drained_total") + of("spool_rejected_total") + of("spool_events");
    assert_eq!(taken, left, "{}", collector.metrics());
}

#[test]
fn events_on_disk_reach_kafka_once_it_is_back() {
    let mut kafka = Kafka::start();
    let (site, address) = site(&kafka, "spool.outage");
    let collector = site.start_role("collect");
    assert_eq!(click(&address, "before").status, 200);
    kafka.kill9();
    for id in ["away-1", "away-2"] {
        let reply = click(&address, id);
        assert_eq!((reply.status, reply.text().as_str()), (200, "ok"));
    }
    let link = "/requests?app=app-x&channel=toutiao&campaign=7&kind=click";
    let requests = collector.admin(link).expect("the process responds");
    let requests: Value = serde_json::from_slice(&requests.body).expect("JSON");
    // The newest ones are first.
    let outcomes = [0_usize, 1].map(|request| &requests["requests"][request]["outcome"]);
    assert_eq!(outcomes, ["spooled", "spooled"]);
    check_conservation(&collector);
    assert_eq!(collector.admin("/readyz").expect("the process responds").status, 200);
    collector.kill9();
    // The next process has Kafka's events, too, and takes more of them.
    let collector = site.start_role("collect");
    let recovered = collector.metric("adtrail_collect_spool_recovered_total").unwrap_or(0.0);
    assert!(recovered >= 2.0, "{recovered}");
    assert_eq!(click(&address, "away-3").status, 200);
    kafka.restart();
    await_drained(&collector);
    check_conservation(&collector);
    let expected = ["before", "away-1", "away-2", "away-3"].map(str::to_owned);
    assert_eq!(ids(&kafka, &site), BTreeSet::from(expected));
    eventually("events go to Kafka directly again", || {
        let produced = || collector.metric("adtrail_collect_produced_total").unwrap_or(0.0);
        let before = produced();
        assert_eq!(click(&address, "after").status, 200);
        if produced() > before { Ok(()) } else { Err("not yet") }
    });
    let log = collector.stop();
    assert!(!log.contains("away-1"), "{log}");
}

/// Clicks with unique ids, from several clients, while the collector is killed again and again and Kafka is away for a
/// part of the time.
#[test]
fn what_was_acknowledged_survives_kills_of_the_collector_and_of_kafka() {
    let mut kafka = Kafka::start();
    let (site, address) = site(&kafka, "spool.kills");
    let (acknowledged, next, is_over) =
        (Mutex::new(BTreeSet::new()), AtomicUsize::new(0), AtomicBool::new(false));
    let send = || {
        while !is_over.load(Ordering::Relaxed) {
            let id = format!("c-{}", next.fetch_add(1, Ordering::Relaxed));
            // Fails while the collector is not running.
            if http::get(&address, &click_url(&id)).is_ok_and(|reply| reply.status == 200) {
                acknowledged.lock().unwrap().insert(id);
            }
        }
    };
    let await_more = || {
        let before = acknowledged.lock().unwrap().len();
        eventually("clicks are acknowledged", || match acknowledged.lock().unwrap().len() {
            count if count >= before + 100 => Ok(()),
            count => Err(count),
        });
    };
    let mut is_up = true;
    thread::scope(|scope| {
        let _over = SetOnDrop(&is_over);
        for _ in 0..4 {
            scope.spawn(send);
        }
        for kill in 0..length(4, 50) {
            let collector = site.start_role("collect");
            await_more();
            match kill % 4 {
                0 => kafka.kill9(),
                2 => kafka.restart(),
                _ => {}
            }
            is_up = matches!(kill % 4, 2 | 3);
            await_more();
            collector.kill9();
        }
    });
    if !is_up {
        kafka.restart();
    }
    let collector = site.start_role("collect");
    await_drained(&collector);
    check_conservation(&collector);
    let (acknowledged, found) = (acknowledged.into_inner().unwrap(), ids(&kafka, &site));
    let lost: Vec<_> = acknowledged.difference(&found).collect();
    assert!(lost.is_empty(), "{} of {} clicks: {lost:?}", lost.len(), acknowledged.len());
}

/// Some events are acknowledged while the broker runs, others time out, and some do both. Takes the time of several
/// stalls.
#[test]
fn what_was_acknowledged_while_the_broker_stalls_is_in_kafka() {
    let kafka = Kafka::start_to_hang();
    let (site, address) = site(&kafka, "spool.slow");
    let collector = site.start_role("collect");
    // Longer than `acknowledgement_timeout`.
    let slow = kafka.slow(Duration::from_secs(3), Duration::from_millis(500));
    let send = |client: usize| {
        for number in 0..25 {
            let reply = click(&address, &format!("c-{client}-{number}"));
            assert_eq!(reply.status, 200, "{reply:?}");
            // Over several stalls.
            thread::sleep(Duration::from_millis(300));
        }
    };
    thread::scope(|scope| {
        for client in 0..4 {
            scope.spawn(move || send(client));
        }
    });
    drop(slow);
    await_drained(&collector);
    check_conservation(&collector);
    let all = (0..4).flat_map(|client| (0..25).map(move |number| format!("c-{client}-{number}")));
    assert_eq!(ids(&kafka, &site), all.collect::<BTreeSet<_>>());
    let spooled = collector.metric("adtrail_collect_spooled_total");
    assert!(spooled.is_some_and(|spooled| spooled > 0.0), "{spooled:?}");
}

/// A person does not wait for Kafka, and their click does not depend on how long the process does.
#[test]
fn a_click_that_waits_for_kafka_survives_a_stop() {
    let kafka = Kafka::start_to_hang();
    let port = free_port();
    let link = "[[links]]\nid = \"poster\"\nspreadid = 7\nfallback = \"https://example.com/\"\n";
    let site = Site::new(&kafka, "spool.stop", 2, &settings(port, link))
        .set("collect.spool", "spool")
        .set("collect.acknowledgement_timeout", "60s");
    let address = format!("127.0.0.1:{port}");
    let collector = site.start_role("collect");
    assert_eq!(click(&address, "before").status, 200);
    // The click of the person is then the only event that the next process can find.
    await_drained(&collector);
    kafka.pause();
    let reply = http::get(&address, "/go/poster").expect("the collector responds");
    assert_eq!(reply.status, 302, "{reply:?}");
    collector.stop();
    kafka.resume();
    let collector = site.start_role("collect");
    // A paused broker may still take what was sent to it, so that the click in Kafka shows nothing.
    assert_eq!(collector.metric("adtrail_collect_spool_recovered_total"), Some(1.0));
    await_drained(&collector);
    let ids = ids(&kafka, &site);
    assert!(ids.iter().any(|id| id.starts_with("go-")), "{ids:?}");
}

/// There is no Kafka, and the disk of the spool is full for a while.
#[test]
fn a_full_disk_is_answered_with_503() {
    let port = free_port();
    let settings = settings(port, "");
    let site = Site::on(Topics::of("spool.disk"), "127.0.0.1:1".to_owned(), &settings)
        .set("collect.spool", "disk/spool");
    let disk = Disk::at(&site.path().join("disk"), 1);
    let address = format!("127.0.0.1:{port}");
    let collector = site.start_role("collect");
    assert_eq!(click(&address, "before").status, 200);
    disk.fill();
    // There is room in the last page of the file.
    let mut replies = (2..100).map(|number| click(&address, &format!("c-{number}")));
    let refused = replies.find(|reply| reply.status != 200).expect("a refusal");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("10")), "{refused:?}");
    collector.await_readiness(503, "kafka cannot be reached, and the spool has no room");
    disk.make_room();
    assert_eq!(click(&address, "c-100").status, 200);
    check_conservation(&collector);
    let refused = |label: &str| collector.metric_of("adtrail_collect_refused_total", label);
    assert_eq!(refused("reason=\"unavailable\""), Some(1.0));
    let failures = collector.metric_of("adtrail_collect_spool_failures_total", "reason=\"disk\"");
    assert_eq!(failures, Some(1.0));
    collector.await_line(&["the spool cannot be written", "No space left"]);
    let waiting = collector.metric("adtrail_collect_spool_events");
    let spooled = collector.metric("adtrail_collect_spooled_total");
    assert_eq!(waiting, spooled);
}

#[test]
fn a_spool_is_of_one_process() {
    let (site, _) = site(Kafka::shared(), "spool.lock");
    let _collector = site.start_role("collect");
    let other = settings(free_port(), "");
    let beside = Site::on(site.topics.clone(), Kafka::shared().brokers(), &other)
        .set("collect.spool", site.path().join("spool").to_str().expect("a path in UTF-8"));
    check_refused(&beside.run(&["collect"]), 1, &["collect.spool", "another process uses"]);
}
