//! Kafka's retention deletes records that were not read yet: adtrail says which are lost and how to go on,
//! and takes none of those behind them.

use std::process::Command;

use testbed::adtrail::Adtrail;
use testbed::exports::{self, Exports, Workload, check_equal, downloads};
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::{self, APPS, FROM, Family, Record, TO};
use testbed::{eventually, rows, run_ok};

/// Of which a third is read in time, and a third never.
static WORKLOAD: Workload = Workload::new(|| traffic::records(13, 1500));

fn site(kafka: &Kafka, name: &str) -> Site {
    Site::new(kafka, name, 1, traffic::SETTINGS)
        .set("store.retention", "off")
        .set("ingest.batch_records_max", "100")
}

fn produce(kafka: &Kafka, site: &Site, part: usize) {
    let records = &WORKLOAD.records()[part * 500..][..500];
    kafka.produce_all(records.iter().map(|one| (one.topic(&site.topics), one.message())));
}

/// One that has read the first third.
fn started(kafka: &Kafka, site: &Site) -> Adtrail {
    produce(kafka, site, 0);
    let adtrail = site.start();
    adtrail.await_read(500);
    adtrail
}

/// The second third comes and goes, and the third is there.
fn overtake(kafka: &Kafka, site: &Site) {
    produce(kafka, site, 1);
    site.topics.all().iter().for_each(|topic| kafka.forget(topic));
    produce(kafka, site, 2);
}

/// Told are the topic, the offset wanted, which is behind so many records, and those that there are.
#[track_caller]
fn check_told(site: &Site, log: &str, [read, gone, end]: [usize; 3]) {
    let found =
        site.topics.all().into_iter().zip([Family::Touch, Family::Activation, Family::Effect]);
    let is_told = |(topic, family): (&str, Family)| {
        let count =
            |records: &[Record]| records.iter().filter(|record| record.family == family).count();
        let [wanted, low, high] =
            [read, gone, end].map(|until| count(&WORKLOAD.records()[..until]));
        let told = format!("wanted offset {wanted} of partition 0, the broker has {low} to {high}");
        log.contains(&told) && log.contains(topic)
    };
    assert!(log.contains("the stored position is not in the topic any more"), "{log}");
    assert!(found.into_iter().any(is_told), "{log}");
    assert!(log.contains("begin with a new store"), "{log}");
}

fn stored(site: &Site) -> Exports {
    APPS.map(|app| site.download(app, FROM, TO, &[]))
}

#[test]
fn records_deleted_while_stopped_are_reported() {
    let kafka = Kafka::shared();
    let site = site(kafka, "overtaken.stopped");
    assert!(started(kafka, &site).terminate().0.success());
    overtake(kafka, &site);
    // However often it is tried.
    for _ in 0..2 {
        let (status, log) = site.spawn().wait();
        assert_eq!(status.code(), Some(1), "{log}");
        check_told(&site, &log, [500, 1000, 1500]);
        check_equal(&stored(&site), &exports::replayed(&WORKLOAD.records()[..500]));
    }
    // As the message says: what Kafka still has, in a new store.
    let anew = site.beside();
    let adtrail = anew.start();
    adtrail.await_read(500);
    check_equal(&downloads(&anew, &adtrail), &exports::replayed(&WORKLOAD.records()[1000..]));
}

/// Where nothing was there to read yet there is a place to read on from as well.
#[test]
fn records_deleted_before_the_first_read_are_reported() {
    let kafka = Kafka::shared();
    let site = site(kafka, "overtaken.first");
    let adtrail = site.start();
    eventually("it is noted where the partitions begin", || {
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
    check_told(&site, &log, [0, 500, 1000]);
    assert!(stored(&site).iter().all(|csv| rows::parse(csv).is_empty()));
}

#[test]
fn records_deleted_while_standing_still_are_reported() {
    let mut kafka = Kafka::start();
    let site = site(&kafka, "overtaken.standing");
    let adtrail = started(&kafka, &site);
    let pid = adtrail.pid().to_string();
    run_ok(Command::new("kill").args(["-STOP", &pid]), b"");
    // Else the broker still owes it an answer, with the second third in it.
    kafka.kill9();
    kafka.restart();
    overtake(&kafka, &site);
    run_ok(Command::new("kill").args(["-CONT", &pid]), b"");
    let (status, log) = adtrail.wait();
    assert_eq!(status.code(), Some(1), "{log}");
    check_told(&site, &log, [500, 1000, 1500]);
    check_equal(&stored(&site), &exports::replayed(&WORKLOAD.records()[..500]));
}
