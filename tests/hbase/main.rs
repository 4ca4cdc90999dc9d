//! Workers of one group and export processes over a real HBase: exports equal the output of `adtrail replay` for the
//! same events.
#![cfg(test)]

mod callbacks;
mod catalogue;
mod conformance_hbase;
#[path = "../support/conformance_runner.rs"]
mod conformance_runner;
mod copy;
mod fanout;
mod faults;
mod large;
#[expect(dead_code, reason = "only a part of it is used here")]
#[path = "../support/network.rs"]
mod network;
mod regions;
mod rights;
mod start;
mod tables;
mod unavailable;
mod workers;

use hbase_client::Client;
use testbed::adtrail::Adtrail;
use testbed::exports::Workload;
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::{self, APPS, FROM, TO};
use testbed::{check_exit, eventually, hbase};

const PARTITIONS: i32 = 6;
const TABLES: [&str; 7] =
    ["events", "touches", "activations", "effects", "outbox", "outbox_due", "meta"];

static WORKLOAD: Workload =
    Workload::new(|| traffic::redelivered(&traffic::records(31, 1_500), 31));

fn site(name: &str) -> Site {
    hbase::with_tables(name, PARTITIONS, traffic::SETTINGS).set("ingest.batch_records_max", "200")
}

/// Waits until the group's offsets are at the end of all partitions.
#[track_caller]
fn await_all_read(site: &Site) {
    Kafka::shared().await_committed(&site.group(), &site.topics.all());
}

/// Waits until the group has no members any more.
fn await_no_members(site: &Site) {
    eventually("the group has no members", || match Kafka::shared().group_members(&site.group()) {
        0 => Ok(()),
        members => Err(format!("{members} are members")),
    });
}

/// Starts a worker and kills it while it reads.
fn kill_while_it_reads(site: &Site) {
    let worker = site.start_role("attribute");
    worker.await_some_read();
    worker.kill9();
}

/// Runs a function with a client of the shared HBase.
fn with_client<T>(work: impl AsyncFnOnce(Client) -> T) -> T {
    let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
    runtime.block_on(async { work(hbase::cluster::HBase::shared().client().await).await })
}

/// Deletes a test's tables: the shared HBase does not have enough memory for the regions of all tests.
fn remove(prefix: &str) {
    with_client(async |client| {
        for table in TABLES.map(|table| format!("{prefix}_{table}")) {
            client.admin().disable(&table).await.expect("the table is disabled");
            client.admin().delete(&table).await.expect("the table is deleted");
        }
    });
}

/// Returns the time up to which an export is complete, if that is known.
fn complete_until(exporter: &Adtrail) -> Option<String> {
    let path = format!("/v1/apps/{}/events.csv?from={FROM}&to={TO}", APPS[0]);
    let reply = exporter.get(&path).expect("adtrail responds");
    reply.header("adtrail-complete-until").map(str::to_owned)
}

/// The group is deleted together with its offsets, so everything is read again into the same tables. Export processes
/// learn from the workers how far Kafka is read.
#[test]
fn rereading_everything_from_the_beginning_changes_nothing() {
    let site = site("hbase-again");
    traffic::produce(&site.topics, WORKLOAD.records());
    let exporter = site.start_role("export");
    assert_eq!(complete_until(&exporter), None, "nothing is read yet");
    for round in 0..2 {
        let workers = [site.start_role("attribute"), site.start_role("attribute")];
        await_all_read(&site);
        eventually("completeness is known", || complete_until(&exporter).ok_or("not yet"));
        let read = workers.each_ref().map(|worker| worker.metric("adtrail_ingest_read_total"));
        let read: f64 = read.into_iter().flatten().sum();
        assert!(read >= WORKLOAD.records().len() as f64, "{read} in round {round}");
        for worker in workers {
            worker.stop();
        }
        WORKLOAD.check(&site, &exporter);
        await_no_members(&site);
        Kafka::shared().delete_group(&site.group());
    }
}

/// An embedded store reads aggregates for some routes for which HBase reads rows; the responses are the same.
#[test]
fn every_route_responds_as_with_an_embedded_store() {
    let shared = site("hbase-routes");
    let embedded = Site::on(shared.topics.clone(), Kafka::shared().brokers(), traffic::SETTINGS)
        .set("store.partitions", "8");
    traffic::produce(&shared.topics, WORKLOAD.records());
    let (over_embedded, over_hbase) = (embedded.start(), shared.start_role("run"));
    over_embedded.await_caught_up();
    await_all_read(&shared);
    let mut paths = Vec::new();
    for app in APPS {
        let range = format!("from={FROM}&to={TO}");
        for by in ["day", "status", "channel,spreadid", "event_name,status"] {
            paths.push(format!("/v1/apps/{app}/summary?{range}&by={by}"));
        }
        paths.push(format!("/v1/apps/{app}/summary.csv?{range}&by=day&timezone=Asia/Kathmandu"));
        for spreadid in 1..=5 {
            let devices = format!("/v1/apps/{app}/campaigns/{spreadid}/devices");
            paths.push(format!("{devices}?{range}&limit=2"));
            paths.push(format!("{devices}?{range}&limit=1000"));
        }
        paths.push(format!("/v1/apps/{app}/events.ndjson?{range}&type=effect&status=attributed"));
        paths.push(format!("/v1/apps/{app}/events.csv?{range}&limit=40"));
        paths.push(format!(
            "/api/raw-data/export/app/{app}/installs_report/v5?{range}&maximum_rows=50"
        ));
    }
    let mut compared = 0;
    while let Some(path) = paths.pop() {
        let [expected, found] = [&over_embedded, &over_hbase]
            .map(|adtrail| adtrail.get(&path).expect("adtrail responds"));
        assert_eq!((found.status, found.text()), (expected.status, expected.text()), "{path}");
        let [expected_next, next] =
            [&expected, &found].map(|reply| reply.header("link").map(str::to_owned));
        assert_eq!(next, expected_next, "{path}");
        // Follow the link to the next page.
        let next =
            next.and_then(|link| Some(link.split_once('<')?.1.split_once('>')?.0.to_owned()));
        paths.extend(next);
        compared += 1;
    }
    assert!(compared > 70, "{compared} responses, further pages included");
}

/// Runs a command, and checks its exit code and standard error. Returns its standard output.
#[track_caller]
fn output_of(site: &Site, args: &[&str], code: i32, parts: &[&str]) -> String {
    let output = site.run(args);
    check_exit(&output, code, parts);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until a command succeeds.
#[track_caller]
fn await_success(site: &Site, args: &[&str]) {
    eventually(&format!("{args:?} succeeds"), || {
        let output = site.run(args);
        let stderr = || String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(()).ok_or_else(stderr)
    });
}

fn disable(table: &str) {
    with_client(async |client| client.admin().disable(table).await.expect("the table is disabled"));
}

fn enable(table: &str) {
    with_client(async |client| client.admin().enable(table).await.expect("the table is enabled"));
}

fn delete(table: &str) {
    disable(table);
    with_client(async |client| client.admin().delete(table).await.expect("the table is deleted"));
}
