//! Brokers that are killed, slow or hanging: the only one or one of three, under load and while adtrail is down.
//! Nothing is lost, no row exists twice, and ingest resumes without a restart.

use std::thread;
use std::time::{Duration, Instant};

use testbed::adtrail::Adtrail;
use testbed::exports::{self, Workload};
use testbed::kafka::{Cluster, Kafka, Producer};
use testbed::site::{Site, Topics};
use testbed::traffic::{self, Record};
use testbed::{from_env, length};

const UNREACHABLE: &str = "kafka cannot be reached";

static WORKLOAD: Workload = Workload::new(|| traffic::redelivered(&traffic::records(14, 2500), 14));

fn site(kafka: &Kafka, name: &str) -> Site {
    // Many small fetches, so that a broker that stops always interrupts one.
    let settings =
        format!("[kafka.librdkafka]\nfetch.message.max.bytes = 20000\n{}", traffic::SETTINGS);
    Site::new(kafka, name, 3, &settings).set("ingest.batch_records_max", "100")
}

/// Produces 100 records at a time, acknowledged by all in-sync replicas.
fn produce(producer: &Producer, topics: &Topics, records: &[Record]) {
    for chunk in records.chunks(100) {
        producer.produce_all(chunk.iter().map(|record| (record.topic(topics), record.message())));
    }
}

/// Returns a partition that has records.
fn busy_partition(cluster: &Cluster, topic: &str) -> i32 {
    cluster.kafka().consume_all(topic)[0].partition
}

/// Slow because three JVMs start, and one of them restarts.
#[test]
fn killing_partition_leaders_in_turn_loses_nothing() {
    let kills = length(2, 3);
    let mut cluster = Cluster::start();
    let site = site(cluster.kafka(), "brokers.leaders");
    let producer = cluster.kafka().producer();
    let mut portions = traffic::portions(WORKLOAD.records(), kills + 1);
    let clicks = &site.topics.clicks;
    let adtrail = site.start();
    let mut produced = 0;
    for (number, portion) in portions.by_ref().take(kills).enumerate() {
        let leader = thread::scope(|scope| {
            scope.spawn(|| produce(&producer, &site.topics, portion));
            adtrail.await_read_more_than(produced + 100);
            let leader = cluster.leader(clicks, busy_partition(&cluster, clicks));
            cluster.kill9(leader);
            leader
        });
        produced += portion.len() as u64;
        // Two brokers remain: every acknowledged record is read exactly once.
        adtrail.await_read(produced);
        // The last killed broker is not restarted.
        if number + 1 < kills {
            cluster.restart(leader);
        }
    }
    // Further records are produced while adtrail is down.
    adtrail.kill9();
    let rest = portions.next().unwrap();
    produce(&producer, &site.topics, rest);
    let adtrail = site.start();
    adtrail.await_read(rest.len() as u64);
    WORKLOAD.check(&site, &adtrail);
    adtrail.stop();
}

/// Slow because a JVM starts several times.
#[test]
fn killing_the_only_broker_under_load_loses_nothing() {
    let (kills, kills_while_down) = length((2, 1), (3, 2));
    let mut kafka = Kafka::start();
    let site = site(&kafka, "brokers.killed");
    let producer = kafka.producer();
    let mut portions = traffic::portions(WORKLOAD.records(), kills + kills_while_down);
    let adtrail = site.start();
    let mut produced = 0;
    for portion in portions.by_ref().take(kills) {
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
    // Further records are produced while adtrail is down.
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
    WORKLOAD.check(&site, &adtrail);
}

/// Returns the time for which a broker hangs: a minute and more in manual runs.
fn outage() -> Duration {
    Duration::from_secs(from_env("ADTRAIL_TEST_OUTAGE_S", 5))
}

/// Waits for the end of the outage, and resumes the broker. Its connections stay open, so only the missing responses
/// show that it hangs.
fn await_outage(kafka: &Kafka, adtrail: &Adtrail) {
    let since = Instant::now();
    adtrail.await_readiness(503, UNREACHABLE);
    exports::by_http(adtrail, traffic::APPS[0]);
    thread::sleep(outage().saturating_sub(since.elapsed()));
    adtrail.await_readiness(503, UNREACHABLE);
    kafka.resume();
    adtrail.await_readiness(200, "");
}

/// A broker counts as hanging after fifteen seconds without a response, which happens twice here.
#[test]
fn ingest_resumes_after_a_slow_or_hanging_broker() {
    let kafka = Kafka::start_to_hang();
    let site = site(&kafka, "brokers.hangs");
    let producer = kafka.producer();
    let portions: Vec<_> = traffic::portions(WORKLOAD.records(), 4).collect();
    let [first, second, third, fourth] = portions[..] else { panic!("four portions") };
    produce(&producer, &site.topics, first);
    let adtrail = site.start();
    let slow = kafka.slow(Duration::from_millis(400), Duration::from_millis(100));
    produce(&producer, &site.topics, second);
    adtrail.await_read((first.len() + second.len()) as u64);
    // A slow broker does not count as unreachable.
    let log = adtrail.stop();
    assert!(!log.contains("does not answer any more"), "{log}");
    drop(slow);

    let adtrail = site.start();
    thread::scope(|scope| {
        scope.spawn(|| produce(&producer, &site.topics, third));
        adtrail.await_some_read();
        kafka.pause();
        await_outage(&kafka, &adtrail);
    });
    adtrail.await_read(third.len() as u64);
    let log = adtrail.stop();
    assert!(log.contains("kafka does not answer any more"), "{log}");
    assert!(log.contains("kafka answers again"), "{log}");
    // The broker hangs when adtrail starts.
    produce(&producer, &site.topics, fourth);
    kafka.pause();
    let adtrail = site.spawn();
    await_outage(&kafka, &adtrail);
    adtrail.await_read(fourth.len() as u64);
    WORKLOAD.check(&site, &adtrail);
    println!("{:?} without a response, twice", outage());
}
