//! Brokers that are killed, slow, or hang, one of three or the only one, under load, and while
//! adtrail itself is down: nothing is lost, nothing comes twice, and it goes on by itself.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use testbed::crowd::{self, Record};
use testbed::exports::{self, Exports, check_equal, downloads};
use testbed::kafka::{Cluster, Kafka, Producer};
use testbed::site::{Site, Topics};

const UNREACHABLE: &str = "kafka can not be reached";

fn records() -> &'static [Record] {
    static RECORDS: OnceLock<Vec<Record>> = OnceLock::new();
    RECORDS.get_or_init(|| crowd::redelivered(&crowd::records(14, 2500), 14))
}

fn replayed() -> &'static Exports {
    static REPLAYED: OnceLock<Exports> = OnceLock::new();
    REPLAYED.get_or_init(|| exports::replayed(records()))
}

fn site(kafka: &Kafka, name: &str) -> Site {
    // Many fetches of little each: there is always one that can be broken off.
    let settings =
        format!("[kafka.librdkafka]\nfetch.message.max.bytes = 20000\n{}", crowd::SETTINGS);
    Site::new(kafka, name, 3, &settings)
        .set("store.retention", "off")
        .set("ingest.batch_records_max", "100")
}

/// A few records at a time, each acknowledged by all replicas in sync.
fn produce(producer: &Producer, topics: &Topics, records: &[Record]) {
    for some in records.chunks(100) {
        producer.produce_all(some.iter().map(|one| (one.topic(topics), one.message())));
    }
}

/// The records in so many portions.
fn portions(count: usize) -> Vec<&'static [Record]> {
    records().chunks(records().len().div_ceil(count)).collect()
}

/// One that apps are on.
fn busy_partition(cluster: &Cluster, topic: &str) -> i32 {
    cluster.kafka().consume_all(topic)[0].partition
}

#[test]
fn leaders_are_killed_one_after_the_other() {
    const KILLS: usize = 3;
    let mut cluster = Cluster::start();
    let site = site(cluster.kafka(), "brokers.leaders");
    let producer = cluster.kafka().producer();
    let mut portions = portions(KILLS + 1).into_iter();
    let clicks = &site.topics.clicks;
    let adtrail = site.start();
    let mut produced = 0;
    for portion in portions.by_ref().take(KILLS) {
        let leader = thread::scope(|scope| {
            scope.spawn(|| produce(&producer, &site.topics, portion));
            adtrail.await_read_more_than(produced + 100);
            let leader = cluster.leader(clicks, busy_partition(&cluster, clicks));
            cluster.kill9(leader);
            leader
        });
        produced += portion.len() as u64;
        // All that was acknowledged, of two brokers, and each once.
        adtrail.await_read(produced);
        cluster.restart(leader);
    }
    // And with one gone for good, while adtrail is down too.
    adtrail.kill9();
    let leader = cluster.leader(clicks, busy_partition(&cluster, clicks));
    cluster.kill9(leader);
    let rest = portions.next().unwrap();
    produce(&producer, &site.topics, rest);
    let adtrail = site.start();
    adtrail.await_read(rest.len() as u64);
    check_equal(&downloads(&site, &adtrail), replayed());
    let (status, log) = adtrail.terminate();
    assert!(status.success(), "{log}");
}

#[test]
fn the_only_broker_is_killed_under_load() {
    const KILLS: usize = 3;
    let mut kafka = Kafka::start();
    let site = site(&kafka, "brokers.killed");
    let producer = kafka.producer();
    let mut portions = portions(KILLS + 2).into_iter();
    let adtrail = site.start();
    let mut produced = 0;
    for portion in portions.by_ref().take(KILLS) {
        thread::scope(|scope| {
            scope.spawn(|| produce(&producer, &site.topics, portion));
            adtrail.await_read_more_than(produced);
            kafka.kill9();
            adtrail.await_readiness(503, UNREACHABLE);
            kafka.restart();
        });
        produced += portion.len() as u64;
        adtrail.await_read(produced);
    }
    // While adtrail is down, too.
    adtrail.kill9();
    let mut rest = 0;
    for portion in portions {
        produce(&producer, &site.topics, portion);
        rest += portion.len() as u64;
        kafka.kill9();
        kafka.restart();
    }
    let adtrail = site.start();
    adtrail.await_read(rest);
    check_equal(&downloads(&site, &adtrail), replayed());
}

#[test]
fn a_slow_broker_is_waited_for() {
    let kafka = Kafka::start_to_hang();
    let site = site(&kafka, "brokers.slow");
    let (first, second) = records().split_at(records().len() / 2);
    produce(&kafka.producer(), &site.topics, first);
    let adtrail = site.start();
    let slow = kafka.slow(Duration::from_millis(400), Duration::from_millis(100));
    produce(&kafka.producer(), &site.topics, second);
    adtrail.await_read(records().len() as u64);
    check_equal(&downloads(&site, &adtrail), replayed());
    // Slow is not gone.
    let (status, log) = adtrail.terminate();
    assert!(status.success() && !log.contains("does not answer any more"), "{log}");
    drop(slow);
}

/// For how long a broker hangs: a minute, and more, by hand.
fn outage() -> Duration {
    let seconds = std::env::var("ADTRAIL_TEST_OUTAGE_S").ok();
    Duration::from_secs(seconds.map_or(5, |seconds| seconds.parse().expect("seconds")))
}

/// Its connections stand, so that only its silence tells.
#[test]
fn a_broker_that_hangs_is_told_and_waited_for() {
    let kafka = Kafka::start_to_hang();
    let site = site(&kafka, "brokers.hangs");
    let producer = kafka.producer();
    let (first, second) = records().split_at(records().len() / 2);
    let adtrail = site.start();
    let hang = |adtrail: &testbed::adtrail::Adtrail| {
        let since = Instant::now();
        adtrail.await_readiness(503, UNREACHABLE);
        exports::by_http(adtrail, crowd::APPS[0]);
        thread::sleep(outage().saturating_sub(since.elapsed()));
        adtrail.await_readiness(503, UNREACHABLE);
        kafka.resume();
        adtrail.await_readiness(200, "");
    };
    thread::scope(|scope| {
        scope.spawn(|| produce(&producer, &site.topics, first));
        adtrail.await_some_read();
        kafka.pause();
        hang(&adtrail);
    });
    adtrail.await_read(first.len() as u64);
    let (status, log) = adtrail.terminate();
    assert!(status.success(), "{log}");
    assert!(log.contains("kafka does not answer any more"), "{log}");
    assert!(log.contains("kafka answers again"), "{log}");
    // It is there already when adtrail starts.
    produce(&producer, &site.topics, second);
    kafka.pause();
    let adtrail = site.spawn();
    hang(&adtrail);
    adtrail.await_read(second.len() as u64);
    check_equal(&downloads(&site, &adtrail), replayed());
    println!("{:?} without an answer, twice", outage());
}
