//! Kafka's retention deletes unread records: adtrail reports the lost offsets and a remedy, and reads no later record.

use std::process::Command;

use testbed::adtrail::Adtrail;
use testbed::exports::{self, Exports, Workload, check_equal, downloads};
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::{self, APPS, FROM, Family, Record, TO};
use testbed::{eventually, rows, run_ok};

/// One third of the records is read in time, one third is deleted before.
static WORKLOAD: Workload = Workload::new(|| traffic::records(13, 1500));

fn site(kafka: &Kafka, name: &str) -> Site {
    Site::new(kafka, name, 1, traffic::SETTINGS)
        .set("store.retention", "off")
        .set("ingest.batch_records_max", "100")
}

fn produce(kafka: &Kafka, site: &Site, part: usize) {
    let records = &WORKLOAD.records()[part * 500..][..500];
    kafka.produce_all(records.iter().map(|record| (record.topic(&site.topics), record.message())));
}

/// Starts a service that has read the first third.
fn started(kafka: &Kafka, site: &Site) -> Adtrail {
    produce(kafka, site, 0);
    let adtrail = site.start();
    adtrail.await_read(500);
    adtrail
}

/// Produces and deletes the second third, and produces the last third.
fn delete_unread(kafka: &Kafka, site: &Site) {
    produce(kafka, site, 1);
    site.topics.all().iter().for_each(|topic| kafka.forget(topic));
    produce(kafka, site, 2);
}

/// Checks that the log names a topic, the stored position, and the topic's offsets. Arguments are counts of the
/// workload's records: read, deleted up to, produced.
#[track_caller]
fn check_reported(site: &Site, log: &str, [read, deleted, end]: [usize; 3]) {
    let topics =
        site.topics.all().into_iter().zip([Family::Touch, Family::Activation, Family::Effect]);
    let is_reported = |(topic, family): (&str, Family)| {
        let count =
            |records: &[Record]| records.iter().filter(|record| record.family == family).count();
        let [wanted, low, high] =
            [read, deleted, end].map(|until| count(&WORKLOAD.records()[..until]));
        let message =
            format!("wanted offset {wanted} of partition 0, the broker has {low} to {high}");
        log.contains(&message) && log.contains(topic)
    };
    assert!(log.contains("the stored position is not in the topic any more"), "{log}");
    assert!(topics.into_iter().any(is_reported), "{log}");
    assert!(log.contains("start with a new store"), "{log}");
}

fn stored(site: &Site) -> Exports {
    APPS.map(|app| site.download(app, FROM, TO, &[]))
}

#[test]
fn records_deleted_while_stopped_are_reported() {
    let kafka = Kafka::shared();
    let site = site(kafka, "overtaken.stopped");
    assert!(started(kafka, &site).terminate().0.success());
    delete_unread(kafka, &site);
    // Every start reports it.
    for _ in 0..2 {
        let (status, log) = site.spawn().wait();
        assert_eq!(status.code(), Some(1), "{log}");
        check_reported(&site, &log, [500, 1000, 1500]);
        check_equal(&stored(&site), &exports::replayed(&WORKLOAD.records()[..500]));
    }
    // As the message advises: a new store reads what Kafka still has.
    let new = site.beside();
    let adtrail = new.start();
    adtrail.await_read(500);
    check_equal(&downloads(&new, &adtrail), &exports::replayed(&WORKLOAD.records()[1000..]));
}

/// Start positions are stored even if the topics are empty.
#[test]
fn records_deleted_before_the_first_read_are_reported() {
    let kafka = Kafka::shared();
    let site = site(kafka, "overtaken.first");
    let adtrail = site.start();
    eventually("the start positions are stored", || {
        let has_position = |topic: &&str| kafka.has_position(&site.group(), topic, 0);
        match site.topics.all().iter().all(has_position) {
            true => Ok(()),
            false => Err(adtrail.log()),
        }
    });
    assert!(adtrail.terminate().0.success());
    produce(kafka, &site, 0);
    site.topics.all().iter().for_each(|topic| kafka.forget(topic));
    produce(kafka, &site, 1);
    let (status, log) = site.spawn().wait();
    assert_eq!(status.code(), Some(1), "{log}");
    check_reported(&site, &log, [0, 500, 1000]);
    assert!(stored(&site).iter().all(|csv| rows::parse(csv).is_empty()));
}

#[test]
fn records_deleted_while_paused_are_reported() {
    let mut kafka = Kafka::start();
    let site = site(&kafka, "overtaken.standing");
    let adtrail = started(&kafka, &site);
    let pid = adtrail.pid().to_string();
    run_ok(Command::new("kill").args(["-STOP", &pid]), b"");
    // Otherwise the broker would still answer a pending fetch with the second third.
    kafka.kill9();
    kafka.restart();
    delete_unread(&kafka, &site);
    run_ok(Command::new("kill").args(["-CONT", &pid]), b"");
    let (status, log) = adtrail.wait();
    assert_eq!(status.code(), Some(1), "{log}");
    check_reported(&site, &log, [500, 1000, 1500]);
    check_equal(&stored(&site), &exports::replayed(&WORKLOAD.records()[..500]));
}
