//! `adtrail copy` from an embedded store into HBase and back.

use std::process::Output;

use testbed::exports::{check_equal, downloads};
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::traffic::{self, APPS, FROM, TO};
use testbed::{hbase, run, run_ok};

use super::{PARTITIONS, WORKLOAD, await_all_read, await_no_members, remove};

fn copy(from: &Site, to: &Site) -> Output {
    let mut command = testbed::adtrail::adtrail();
    command.arg("copy").arg("--from").arg(from.written()).arg("--to").arg(to.written());
    run(&mut command, b"")
}

#[test]
fn a_store_is_copied_into_hbase_and_back() {
    let (some, rest) = WORKLOAD.records().split_at(WORKLOAD.records().len() / 2);
    let embedded = Site::new(Kafka::shared(), "hbase-moved", PARTITIONS, traffic::SETTINGS)
        .set("store.partitions", "8")
        .set("store.retention", "off");
    traffic::produce(&embedded.topics, some);
    let adtrail = embedded.start();
    adtrail.await_caught_up();
    assert!(adtrail.terminate().0.success());
    let shared = embedded.beside();
    let shared = hbase::in_hbase(shared, &hbase::cluster::HBase::shared().servers(), "hbase-moved");
    run_ok(&mut shared.command(&["hbase", "init"]), b"");
    let output = copy(&embedded, &shared);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.lines().count() == 5 && shown.contains("events: "), "{shown}");
    for app in APPS {
        assert_eq!(shared.download(app, FROM, TO, &[]), embedded.download(app, FROM, TO, &[]));
    }
    // The worker resumes from the copied positions.
    traffic::produce(&shared.topics, rest);
    let worker = shared.start_role("attribute");
    worker.await_read_more_than(0);
    await_all_read(&shared);
    let read = worker.metric("adtrail_ingest_read_total");
    assert_eq!(read, Some(rest.len() as f64), "no record is read twice");
    // Nothing is copied while a worker runs.
    let back = embedded.beside();
    let refused = copy(&shared, &back);
    assert_eq!(refused.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(stderr.contains("stop them first"), "{stderr}");
    assert!(worker.terminate().0.success());
    await_no_members(&shared);
    let output = copy(&shared, &back);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let adtrail = back.start();
    adtrail.await_caught_up();
    check_equal(&downloads(&back, &adtrail), WORKLOAD.expected());
    assert_eq!(adtrail.metric("adtrail_ingest_read_total"), Some(0.0));
    // A store that has rows is not overwritten.
    let again = copy(&embedded, &shared);
    assert_eq!(again.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&again.stderr);
    assert!(stderr.contains("it already has rows"), "{stderr}");
    remove("hbase-moved");
}
