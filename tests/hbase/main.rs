//! Workers of one group and processes that export, over one HBase: what they show is what `adtrail replay`
//! makes of the same events.
#![cfg(test)]

mod faults;
mod large;
mod moved;
mod regions;
mod rights;
mod spread;
mod tables;
mod unavailable;
mod workers;

use hbase_client::Client;
use testbed::adtrail::Adtrail;
use testbed::exports::{Workload, check_equal, downloads};
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::{self, APPS, FROM, TO};
use testbed::{eventually, hbase};

const PARTITIONS: i32 = 6;

static WORKLOAD: Workload =
    Workload::new(|| traffic::redelivered(&traffic::records(31, 1_500), 31));

fn site(name: &str) -> Site {
    hbase::made(name, PARTITIONS, traffic::SETTINGS).set("ingest.batch_records_max", "200")
}

/// Until the group's positions are at the end of all partitions.
#[track_caller]
fn await_all_read(site: &Site) {
    Kafka::shared().await_told(&site.group(), &site.topics.all());
}

/// Until the group has heard of all who have left it.
fn await_no_members(site: &Site) {
    eventually("nobody is in the group", || match Kafka::shared().group_members(&site.group()) {
        0 => Ok(()),
        members => Err(format!("{members} are members")),
    });
}

/// A worker that is killed amid what it reads.
fn kill_while_it_reads(site: &Site) {
    let worker = site.start_role("attribute");
    worker.await_some_read();
    worker.kill9();
}

/// Has the shared HBase do something.
fn done<T>(work: impl AsyncFnOnce(Client) -> T) -> T {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async { work(hbase::cluster::HBase::shared().client().await).await })
}

/// The shared HBase has memory for the regions of some tests, and not of all.
fn remove(prefix: &str) {
    done(async |client| {
        let admin = client.admin();
        for table in ["events", "touches", "activations", "effects", "meta"] {
            let table = format!("{prefix}_{table}");
            admin.disable(&table).await.expect("it is disabled");
            admin.delete(&table).await.expect("it is deleted");
        }
    });
}

/// Up to when an export is complete, if that is known.
fn complete_until(exporter: &Adtrail) -> Option<String> {
    let path = format!("/v1/apps/{}/events.csv?from={FROM}&to={TO}", APPS[0]);
    let reply = exporter.get(&path).expect("an answer");
    reply.header("adtrail-complete-until").map(str::to_owned)
}

/// The group is gone, and with it how far it was: all is read once more, onto what it has led to. Those who export
/// know how far all is read from those who read.
#[test]
fn positions_set_back_to_the_beginning_change_nothing() {
    let site = site("hbase-again");
    traffic::produce(&site.topics, WORKLOAD.records());
    let exporter = site.start_role("export");
    assert_eq!(complete_until(&exporter), None, "nobody has read anything yet");
    for round in 0..2 {
        let workers = [site.start_role("attribute"), site.start_role("attribute")];
        await_all_read(&site);
        eventually("it is known how far all is in", || complete_until(&exporter).ok_or("not yet"));
        let read = workers.each_ref().map(|one| one.metric("adtrail_ingest_read_total"));
        let read: f64 = read.into_iter().flatten().sum();
        assert!(read >= WORKLOAD.records().len() as f64, "{read} in round {round}");
        for worker in workers {
            let (status, log) = worker.terminate();
            assert!(status.success(), "{log}");
        }
        check_equal(&downloads(&site, &exporter), WORKLOAD.expected());
        await_no_members(&site);
        Kafka::shared().delete_group(&site.group());
    }
}

/// What an embedded store has figures for is read here; the answers are the same.
#[test]
fn every_question_is_answered_as_by_an_embedded_store() {
    let many = site("hbase-routes");
    let one = Site::on(many.topics.clone(), Kafka::shared().brokers(), traffic::SETTINGS)
        .set("store.partitions", "8")
        .set("store.retention", "off");
    traffic::produce(&many.topics, WORKLOAD.records());
    let (one_process, other) = (one.start(), many.start_role("run"));
    one_process.await_caught_up();
    await_all_read(&many);
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
        let [expected, found] =
            [&one_process, &other].map(|adtrail| adtrail.get(&path).expect("an answer"));
        assert_eq!((found.status, found.text()), (expected.status, expected.text()), "{path}");
        let [next, same] = [&expected, &found].map(|reply| reply.header("link").map(str::to_owned));
        assert_eq!(next, same, "{path}");
        // Pages go on where the other one's ended.
        let next =
            next.and_then(|link| Some(link.split_once('<')?.1.split_once('>')?.0.to_owned()));
        paths.extend(next);
        compared += 1;
    }
    assert!(compared > 70, "{compared} answers, pages among them");
}

/// Code, standard output and standard error.
fn run_on(site: &Site, args: &[&str]) -> (Option<i32>, String, String) {
    let output = site.run(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}
