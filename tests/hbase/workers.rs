//! Workers that stall while other workers take over their partitions, and workers that are stopped while the group
//! changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use testbed::adtrail::Adtrail;
use testbed::exports::{self, check_equal, downloads};
use testbed::kafka::{Kafka, Message};
use testbed::site::Site;
use testbed::traffic::{self, APPS, Family, Record};
use testbed::{eventually, length};

use super::{PARTITIONS, WORKLOAD, await_all_read, remove, site};

/// Session timeout after which a member is removed; the shortest that the broker accepts.
const SHORT_MS: &str = "6000";
/// A session timeout that even a slow machine does not exceed, but short enough to remove a killed member in time.
const LONG_MS: &str = "20000";
const BATCH: usize = 20;

fn stops() -> usize {
    length(5, 10)
}

/// Returns a site whose workers quickly detect changes of the group.
fn site_with_timeout(name: &str, session_timeout_ms: &str) -> Site {
    site(name)
        .set("ingest.batch_records_max", &BATCH.to_string())
        .set("kafka.librdkafka.session.timeout.ms", session_timeout_ms)
        .set("kafka.librdkafka.heartbeat.interval.ms", "500")
}

/// A worker stalls with uncommitted batches. Another worker takes over its partitions and reads them to the end; then
/// the stalled worker continues its writes.
#[test]
fn a_stalled_worker_that_lost_its_partitions_does_not_change_rows() {
    let site = site_with_timeout("hbase-still", SHORT_MS)
        .set("kafka.librdkafka.max.poll.interval.ms", SHORT_MS);
    let workers = [site.start_role("attribute"), site.start_role("attribute")];
    for (round, portion) in traffic::portions(WORKLOAD.records(), length(2, 4)).enumerate() {
        let stalled = &workers[round % 2];
        let read = stalled.metric("adtrail_ingest_read_total").unwrap_or_default() as u64;
        eventually("both have partitions", || match workers.iter().all(has_partitions) {
            true => Ok(()),
            false => Err("a worker has none"),
        });
        let (first, rest) = portion.split_at(portion.len() / 2);
        produce_scattered(&site, first);
        stalled.await_read_more_than(read + [0, 50, 30, 40][round]);
        stalled.signal("STOP");
        produce_scattered(&site, rest);
        eventually("the stalled worker is removed from the group", || {
            match Kafka::shared().group_members(&site.group()) {
                1 => Ok(()),
                members => Err(members),
            }
        });
        await_all_read(&site);
        stalled.signal("CONT");
        stalled.await_readiness(200, "");
    }
    await_all_read(&site);
    let exporter = site.start_role("export");
    WORKLOAD.check(&site, &exporter);
    for worker in workers {
        worker.stop();
    }
    remove("hbase-still");
}

/// The remaining worker takes over the partitions of a killed one, and whatever it had not committed.
#[test]
fn workers_killed_while_others_work_lose_and_repeat_no_row() {
    let site = site_with_timeout("hbase-killed", SHORT_MS);
    let permanent = site.start_role("attribute");
    for portion in traffic::portions(WORKLOAD.records(), length(3, 8)) {
        let killed = site.start_role("attribute");
        produce_scattered(&site, portion);
        killed.await_some_read();
        killed.kill9();
    }
    await_all_read(&site);
    WORKLOAD.check(&site, &site.start_role("export"));
    check_clean_shutdown(permanent);
    remove("hbase-killed");
}

/// Produces each record to a random partition, so that several workers handle facts of one device at the same time.
fn produce_scattered(site: &Site, records: &[Record]) {
    let mut rng = fastrand::Rng::with_seed(records.len() as u64);
    Kafka::shared().produce_all(records.iter().map(|record| {
        let partition = Some(rng.i32(0..PARTITIONS));
        (record.topic(&site.topics), Message { partition, ..record.message() })
    }));
}

fn has_partitions(worker: &Adtrail) -> bool {
    worker.admin("/readyz").is_ok_and(|reply| reply.status == 200)
}

/// Returns distinct records, so that redeliveries can be counted: two clicks, an activation and an effect of each
/// device. The last two records are invalid.
fn unique(count: usize) -> Vec<Record> {
    let record = |number: usize| {
        let device = number / 4;
        let (app, spreadid) = (APPS[device % 3], [1, 3, 5][device % 3]);
        let time_ms = 1_741_608_000_000_u64 + 60_000 * number as u64;
        let (family, fields) = match number % 4 {
            0 | 1 => {
                let id = format!("c-{number}");
                (Family::Touch, json!({"type": "click", "click_id": id, "spreadid": spreadid}))
            }
            2 => {
                let id = format!("a-{number}");
                (Family::Activation, json!({"type": "activation", "event_id": id}))
            }
            _ => {
                let id = format!("e-{number}");
                (Family::Effect, json!({"type": "effect", "name": "pay", "event_id": id}))
            }
        };
        let ids = json!({"caid": format!("caid-{device}")});
        let mut event = json!({"app": app, "time": time_ms, "ids": ids});
        let members = event.as_object_mut().expect("it is an object");
        members.extend(fields.as_object().expect("it is an object").clone());
        Record { family, app: app.to_owned(), line: event.to_string(), is_bad: false }
    };
    let bad = || Record {
        family: Family::Effect,
        app: APPS[0].to_owned(),
        line: "no event".to_owned(),
        is_bad: true,
    };
    (0..count).map(record).chain([bad(), bad()]).collect()
}

/// Workers join and are stopped all the time, so the group keeps changing.
#[test]
fn stopped_workers_leave_at_most_one_batch_each_uncommitted() {
    // A worker that is removed by timeout has more uncommitted records.
    let site = site_with_timeout("hbase-leaving", LONG_MS);
    let records = unique(60_000);
    let permanent = site.start_role("attribute");
    let is_over = AtomicBool::new(false);
    let (produced, reread) = thread::scope(|scope| {
        let producing = scope.spawn(|| keep_producing(&site, &records, &is_over));
        let reread = join_and_leave(&site);
        is_over.store(true, Ordering::Relaxed);
        (producing.join().expect("the thread does not panic"), reread)
    });
    await_all_read(&site);
    let reread = reread + redelivered(&permanent);
    println!("{reread} of {produced} records were read again after {} stops", stops());
    assert!(reread <= (stops() * BATCH) as f64, "{reread} records were read again");
    let exporter = site.start_role("export");
    let known = [&records[..produced], &records[records.len() - 2..]].concat();
    check_equal(&downloads(&site, &exporter), &exports::replayed(&known));
    check_clean_shutdown(permanent);
    remove("hbase-leaving");
}

/// Keeps the group's lag above zero until `is_over`. Returns the number of events produced.
fn keep_producing(site: &Site, records: &[Record], is_over: &AtomicBool) -> usize {
    let (events, bad) = records.split_at(records.len() - 2);
    traffic::produce(&site.topics, bad);
    let mut produced = 0;
    for portion in events.chunks(1_000) {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        traffic::produce(&site.topics, portion);
        produced += portion.len();
        eventually("some records are read", || {
            let lag = Kafka::shared().group_lag(&site.group(), &site.topics.all());
            if lag < 2_000 || is_over.load(Ordering::Relaxed) { Ok(()) } else { Err(lag) }
        });
    }
    produced
}

/// Starts and stops workers. Returns the number of redelivered messages that they have counted.
fn join_and_leave(site: &Site) -> f64 {
    let mut rng = fastrand::Rng::with_seed(12);
    let (mut joined, mut reread) = (Vec::<Adtrail>::new(), 0.0);
    for _ in 0..stops() {
        let worker = site.spawn();
        eventually("the worker is alive", || worker.admin("/livez"));
        joined.push(worker);
        thread::sleep(Duration::from_millis(rng.u64(..5_000)));
        // Sometimes two leave at once.
        let leaves = if joined.len() > 1 { 2 } else { rng.usize(..2) };
        for worker in joined.drain(..leaves) {
            reread += redelivered(&worker);
            check_clean_shutdown(worker);
        }
    }
    for worker in joined {
        reread += redelivered(&worker);
        check_clean_shutdown(worker);
    }
    reread
}

fn redelivered(worker: &Adtrail) -> f64 {
    worker.metric("adtrail_attribution_redelivered_total").unwrap_or(0.0)
}

/// Checks that a worker shuts down cleanly and in time.
fn check_clean_shutdown(worker: Adtrail) {
    /// Default of `run.shutdown_deadline`.
    const DEADLINE: Duration = Duration::from_secs(30);
    let since = Instant::now();
    let log = worker.stop();
    assert!(since.elapsed() < DEADLINE, "{:?}: {log}", since.elapsed());
}
