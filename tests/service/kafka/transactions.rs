//! Transactions that are committed, aborted and left open.

use jiff::Timestamp;
use testbed::adtrail::Adtrail;
use testbed::eventually;
use testbed::kafka::{Kafka, Message};
use testbed::site::{Site, Topics};

use super::{NOON_MS, check_rows, ids, messages, site};

#[test]
fn only_committed_transactions_are_read() {
    let kafka = Kafka::shared();
    let site = site("transactions");
    let topic = &*site.topics.activations;
    let [committed, aborted, open, later] =
        ["committed", "aborted", "open", "later"].map(|prefix| ids(prefix, 50));
    let transaction = |ids: &[String]| {
        let producer = kafka.transactional(&format!("{topic}-{}", ids[0]));
        producer.begin();
        producer.produce_all(messages(ids).into_iter().map(|message| (topic, message)));
        producer
    };
    // The log begins and ends with aborted transactions, which are never delivered.
    transaction(&aborted[..25]).abort();
    transaction(&committed).commit();
    transaction(&aborted[25..]).abort();
    let adtrail = site.start();
    adtrail.await_read(50);
    check_rows(&site, &[&committed]);

    // Records after an open transaction wait for its end, and count as lag.
    let waiting = transaction(&open);
    kafka.produce(topic, messages(&later));
    adtrail.await_metric("adtrail_ingest_lag_messages", "", |lag| lag >= 100.0);
    check_rows(&site, &[&committed]);
    waiting.commit();
    adtrail.await_read(150);
    check_rows(&site, &[&committed, &open, &later]);

    // After a restart the position is before a control record, and no other record is left to read.
    transaction(&aborted).abort();
    adtrail.stop();
    let adtrail = site.start();
    adtrail.await_caught_up();
    assert_eq!(adtrail.metric("adtrail_ingest_read_total"), Some(0.0));
    // A new store reads from the beginning, across all control records.
    let beside = site.beside();
    let adtrail = beside.start();
    adtrail.await_read(150);
    check_rows(&beside, &[&committed, &open, &later]);
}

/// A service that has read one event of each topic. The second partition of each topic has no records.
struct Fixture {
    site: Site,
    adtrail: Adtrail,
}

impl Fixture {
    fn start(name: &str) -> Self {
        let site = site(name);
        let adtrail = site.start();
        let fixture = Self { site, adtrail };
        for (topic, number) in fixture.site.topics.all().into_iter().zip(0..) {
            fixture.produce(topic, number, 0);
        }
        fixture.adtrail.await_read(3);
        eventually("completeness is known", || fixture.complete_until().ok_or("not yet"));
        fixture
    }

    /// Returns an event with a broker timestamp this many minutes after noon.
    fn message(&self, topic: &str, number: i64, minutes: i64) -> Message {
        let Topics { clicks, effects, .. } = &self.site.topics;
        let fields = match topic {
            _ if topic == clicks => {
                format!(r#","type":"click","click_id":"c-{number}","spreadid":7"#)
            }
            _ if topic == effects => r#","name":"n""#.to_owned(),
            _ => String::new(),
        };
        let line = format!(r#"{{"app":"app-x","event_id":"e-{number}","time":{NOON_MS}{fields}}}"#);
        Message::new("app-x", line).at(NOON_MS + minutes * 60_000)
    }

    fn produce(&self, topic: &str, number: i64, minutes: i64) {
        Kafka::shared().produce(topic, [self.message(topic, number, minutes)]);
    }

    fn complete_until(&self) -> Option<Timestamp> {
        let path = "/v1/apps/app-x/events.csv?from=2025-03-10&to=2025-03-10";
        let reply = self.adtrail.get(path).expect("adtrail responds");
        let until = reply.header("adtrail-complete-until")?;
        Some(until.parse().expect("the time is in RFC 3339"))
    }

    /// Waits until everything written so far counts as complete and committed, although nothing more is written.
    #[track_caller]
    fn await_idle(self) -> Self {
        let written = Timestamp::now();
        eventually("completeness advances", || {
            let complete = self.complete_until();
            if complete > Some(written) { Ok(()) } else { Err(format!("{complete:?}")) }
        });
        self.adtrail.await_caught_up();
        let lag = |name| testbed::adtrail::sum(&self.adtrail.metrics(), name, "");
        assert_eq!(lag("adtrail_ingest_lag_messages"), Some(0.0));
        assert_eq!(lag("adtrail_ingest_lag_seconds"), Some(0.0));
        assert!(lag("adtrail_ingest_last_progress_timestamp_seconds") > Some(0.0));
        Kafka::shared().await_committed(&self.site.group(), &self.site.topics.all());
        self
    }

    fn restart(self) -> Self {
        self.adtrail.stop();
        let adtrail = self.site.start();
        Self { site: self.site, adtrail }
    }

    /// Returns the low watermark, in minutes after noon.
    fn consumed_until(&self) -> Option<f64> {
        let until = self.adtrail.metric("adtrail_ingest_consumed_until_timestamp_seconds")?;
        Some((until - NOON_MS as f64 / 1e3) / 60.0)
    }

    /// Checks that neither completeness nor the low watermark is later than the transaction, whose first record is a
    /// minute after noon.
    #[track_caller]
    fn check_held_back(&self, opened: Timestamp) {
        let (complete, consumed) = (self.complete_until(), self.consumed_until());
        assert!(complete <= Some(opened) && consumed <= Some(1.0), "{complete:?} {consumed:?}");
    }

    /// Waits until completeness and the low watermark are later than the transaction.
    #[track_caller]
    fn await_advance(&self, opened: Timestamp) {
        let mut number = 300;
        eventually("completeness and expiry advance again", || {
            number += 1;
            self.produce(&self.site.topics.activations, number, 60);
            let (complete, consumed) = (self.complete_until(), self.consumed_until());
            let has_advanced = complete > Some(opened) && consumed > Some(1.0);
            if has_advanced { Ok(()) } else { Err(format!("{complete:?} {consumed:?}")) }
        });
    }
}

/// The last offset of a partition is then that of a transaction marker, not of a record.
#[test]
fn completeness_advances_while_transactions_are_the_last_thing_in_a_partition() {
    let fixture = Fixture::start("transactions.last");
    let Topics { activations, effects, .. } = &fixture.site.topics;
    let producer = Kafka::shared().transactional("transactions.last");
    producer.begin();
    producer.produce_all([(effects.as_str(), fixture.message(effects, 3, 1))]);
    producer.commit();
    producer.begin();
    producer.produce_all([(activations.as_str(), fixture.message(activations, 4, 1))]);
    producer.abort();
    fixture.adtrail.await_read(4);
    fixture.await_idle().restart().await_idle();
}

/// Partitions are assigned again whenever one of them is paused, here right after a transaction marker was consumed.
#[test]
fn the_last_marker_is_committed_although_partitions_are_assigned_again() {
    let kafka = Kafka::shared();
    let site = site("transactions.assigned").set("ingest.bad_records_max", "0");
    let Topics { clicks, activations, effects } = &site.topics;
    let adtrail = site.start();
    let producer = kafka.transactional("transactions.assigned");
    let invalid = |partition| Message { partition: Some(partition), ..Message::new("app-x", "{}") };
    for (topic, partition, paused) in
        [(clicks, 0, 1.0), (clicks, 1, 2.0), (activations, 0, 3.0), (activations, 1, 4.0)]
    {
        let effect =
            format!(r#"{{"app":"app-x","event_id":"e-{paused}","time":{NOON_MS},"name":"n"}}"#);
        producer.begin();
        producer.produce_all([(effects.as_str(), Message::new("app-x", effect).at(NOON_MS))]);
        producer.commit();
        kafka.produce(topic, [invalid(partition)]);
        let reason = "reason=\"bad\"";
        adtrail.await_metric("adtrail_ingest_paused_partitions", reason, |count| count == paused);
        kafka.await_committed(&site.group(), &[effects.as_str()]);
    }
}

/// `Adtrail-Complete-Until` stays before the transaction, and records of other topics expire no state.
#[test]
fn an_open_transaction_holds_back_completeness_and_expiry() {
    let fixture = Fixture::start("transactions.open");
    let (adtrail, Topics { clicks, activations, effects }) =
        (&fixture.adtrail, &fixture.site.topics);
    let waiting = Kafka::shared().transactional("transactions.open");
    waiting.begin();
    waiting.produce_all([(activations.as_str(), fixture.message(activations, 3, 1))]);
    let opened = Timestamp::now();
    fixture.produce(activations, 4, 2);
    let topic = format!("topic=\"{activations}\"");
    // Produces batches of the other topics, waits until each is read, and then for a refresh of the watermarks.
    for round in 0..4 {
        for number in 5 * round..5 * (round + 1) {
            fixture.produce(clicks, 100 + number, 10 + number);
            fixture.produce(effects, 200 + number, 10 + number);
            // The lag is not 0, since the transaction's topic waits.
            adtrail.await_read_more_than(3 + 2 * number as u64 + 1);
            fixture.check_held_back(opened);
        }
        fixture.produce(activations, 400 + round, 2);
        let waiting = 3.0 + round as f64;
        adtrail.await_metric("adtrail_ingest_lag_messages", &topic, |lag| lag == waiting);
        fixture.check_held_back(opened);
    }
    assert!(adtrail.metric_of("adtrail_ingest_lag_seconds", &topic) > Some(3.0));
    assert_eq!(adtrail.admin("/readyz").expect("adtrail responds").status, 200);

    waiting.commit();
    adtrail.await_read(3 + 2 + 4 + 2 * 20);
    fixture.await_advance(opened);
}
