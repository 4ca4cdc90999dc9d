//! `adtrail copy`, from files into HBase, back, and from one HBase to another.

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
fn a_store_is_moved_there_and_back() {
    let (some, rest) = WORKLOAD.records().split_at(WORKLOAD.records().len() / 2);
    // On one machine first.
    let one = Site::new(Kafka::shared(), "hbase-moved", PARTITIONS, traffic::SETTINGS)
        .set("store.partitions", "8")
        .set("store.retention", "off");
    traffic::produce(&one.topics, some);
    let adtrail = one.start();
    adtrail.await_caught_up();
    assert!(adtrail.terminate().0.success());
    let many = one.beside();
    let many = hbase::in_hbase(many, &hbase::cluster::HBase::shared().servers(), "hbase-moved");
    run_ok(&mut many.command(&["hbase", "init"]), b"");
    let output = copy(&one, &many);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.lines().count() == 5 && shown.contains("events: "), "{shown}");
    for app in APPS {
        assert_eq!(many.download(app, FROM, TO, &[]), one.download(app, FROM, TO, &[]));
    }
    // It goes on from the same positions.
    traffic::produce(&many.topics, rest);
    let worker = many.start_role("attribute");
    worker.await_read_more_than(0);
    await_all_read(&many);
    let read = worker.metric("adtrail_ingest_read_total");
    assert_eq!(read, Some(rest.len() as f64), "nothing was read twice");
    // While a worker is there nothing is moved.
    let back = one.beside();
    let refused = copy(&many, &back);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("stop them first"), "{said}");
    assert!(worker.terminate().0.success());
    await_no_members(&many);
    let output = copy(&many, &back);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let adtrail = back.start();
    adtrail.await_caught_up();
    check_equal(&downloads(&back, &adtrail), WORKLOAD.expected());
    assert_eq!(adtrail.metric("adtrail_ingest_read_total"), Some(0.0));
    // Where something is already nothing is put.
    let again = copy(&one, &many);
    assert_eq!(again.status.code(), Some(1));
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(said.contains("it already has rows"), "{said}");
    remove("hbase-moved");
}
