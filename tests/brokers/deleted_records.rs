//! Kafka's retention deletes unread records: adtrail reports the lost offsets and a remedy, and reads no later record.

use testbed::adtrail::Adtrail;
use testbed::exports::{self, Workload, by_command, check_equal, downloads};
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::{self, Family, Record};

/// One third of the records is read in time, one third is deleted unread.
static WORKLOAD: Workload = Workload::new(|| traffic::records(13, 1500));

fn site(kafka: &Kafka, name: &str) -> Site {
    Site::new(kafka, name, 1, traffic::SETTINGS).set("ingest.batch_records_max", "100")
}

fn produce(kafka: &Kafka, site: &Site, part: usize) {
    let records = &WORKLOAD.records()[part * 500..][..500];
    traffic::produce_to(kafka, &site.topics, records);
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
    site.topics.all().iter().for_each(|topic| kafka.delete_records(topic));
    produce(kafka, site, 2);
}

/// Checks that the process ends, and that its log names a topic, the stored position, and the topic's offsets. `read`,
/// `deleted` and `end` are the numbers of the workload's records that are read, deleted (read ones included), and
/// produced.
#[track_caller]
fn check_reported(site: &Site, adtrail: Adtrail, [read, deleted, end]: [usize; 3]) {
    let parts = ["the stored position is not in the topic any more", "start with a new store"];
    let log = adtrail.check_ended(1, &parts);
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
    assert!(topics.into_iter().any(is_reported), "{log}");
}

#[test]
fn records_deleted_while_stopped_are_reported() {
    let kafka = Kafka::shared();
    let site = site(kafka, "deleted.stopped");
    started(kafka, &site).stop();
    delete_unread(kafka, &site);
    // Every start reports the loss.
    for _ in 0..2 {
        check_reported(&site, site.spawn(), [500, 1000, 1500]);
        check_equal(&by_command(&site), &exports::replayed(&WORKLOAD.records()[..500]));
    }
    // As the message advises: a new store reads what Kafka still has.
    let new = site.beside();
    let adtrail = new.start();
    adtrail.await_read(500);
    check_equal(&downloads(&new, &adtrail), &exports::replayed(&WORKLOAD.records()[1000..]));
}

#[test]
fn records_deleted_while_paused_are_reported() {
    let mut kafka = Kafka::start();
    let site = site(&kafka, "deleted.paused");
    let adtrail = started(&kafka, &site);
    adtrail.signal("STOP");
    // Restarts the broker, which would otherwise respond to a pending fetch with the second third.
    kafka.kill9();
    kafka.restart();
    delete_unread(&kafka, &site);
    adtrail.signal("CONT");
    check_reported(&site, adtrail, [500, 1000, 1500]);
    check_equal(&by_command(&site), &exports::replayed(&WORKLOAD.records()[..500]));
}
