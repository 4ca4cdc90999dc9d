//! `adtrail copy` from an embedded store into HBase and back.

use std::process::Output;

use testbed::exports::{by_command, check_equal};
use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::{check_exit, hbase, run, run_ok, traffic};

use super::{PARTITIONS, WORKLOAD, await_all_read, await_no_members, remove};

fn copy(from: &Site, to: &Site) -> Output {
    let mut command = testbed::adtrail::adtrail();
    command
        .arg("copy")
        .arg("--from")
        .arg(from.write_all_settings())
        .arg("--to")
        .arg(to.write_all_settings());
    run(&mut command, b"")
}

#[test]
fn a_store_is_copied_into_hbase_and_back() {
    let (first, rest) = WORKLOAD.records().split_at(WORKLOAD.records().len() / 2);
    let embedded = traffic::site("hbase-copy", PARTITIONS).set("store.partitions", "8");
    traffic::produce(&embedded.topics, first);
    embedded.read_all();
    let shared = embedded.beside();
    let shared = hbase::in_hbase(shared, &hbase::cluster::HBase::shared().servers(), "hbase-copy");
    run_ok(&mut shared.command(&["hbase", "init"]), b"");
    let other = Site::on(embedded.topics.clone(), "nowhere:1".into(), traffic::SETTINGS)
        .set("store.partitions", "16");
    let other = hbase::in_hbase(other, &["nowhere:1".to_owned()], "hbase-copy");
    let parts = ["store.partitions is 8 in --from and 16 in --to"];
    check_exit(&copy(&embedded, &other), 2, &parts);
    let output = copy(&embedded, &shared);
    check_exit(&output, 0, &[]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.lines().count() == 5 && shown.contains("events: "), "{shown}");
    check_equal(&by_command(&shared), &by_command(&embedded));
    // The worker resumes from the copied positions.
    traffic::produce(&shared.topics, rest);
    let worker = shared.start_role("attribute");
    worker.await_read_more_than(0);
    await_all_read(&shared);
    let read = worker.metric("adtrail_ingest_read_total");
    assert_eq!(read, Some(rest.len() as f64), "no record is read twice");
    // Nothing is copied while a worker runs.
    let back = embedded.beside();
    check_exit(&copy(&shared, &back), 1, &["stop them first"]);
    worker.stop();
    await_no_members(&shared);
    // The source can go on after a copy into other tables, as after one that was interrupted.
    let servers = hbase::cluster::HBase::shared().servers();
    let trial = hbase::in_hbase(embedded.beside(), &servers, "hbase-copy-trial")
        .set("kafka.group", &shared.group());
    run_ok(&mut trial.command(&["hbase", "init"]), b"");
    check_exit(&copy(&shared, &trial), 0, &[]);
    check_equal(&by_command(&trial), &by_command(&shared));
    remove("hbase-copy-trial");
    check_exit(&copy(&shared, &back), 0, &[]);
    let adtrail = back.start();
    adtrail.await_caught_up();
    WORKLOAD.check(&back, &adtrail);
    assert_eq!(adtrail.metric("adtrail_ingest_read_total"), Some(0.0));
    // A store that has rows is not overwritten.
    check_exit(&copy(&embedded, &shared), 1, &["it already has rows"]);
    remove("hbase-copy");
}

/// Positions over HBase are those of the group. An embedded store commits its own to the group, too.
#[test]
fn events_that_another_store_has_read_are_not_skipped() {
    let (first, rest) = WORKLOAD.records().split_at(WORKLOAD.records().len() / 2);
    let shared = super::site("hbase-skip");
    let embedded = || {
        Site::on(shared.topics.clone(), Kafka::shared().brokers(), traffic::SETTINGS)
            .set("store.partitions", "8")
    };
    traffic::produce(&shared.topics, first);
    let worker = shared.start_role("attribute");
    await_all_read(&shared);
    worker.stop();
    await_no_members(&shared);
    let other = embedded().set("kafka.group", &shared.group());
    traffic::produce(&shared.topics, rest);
    other.read_all();
    let parts = [" by embedded", "hbase:hbase-skip lacks", "adtrail copy", "--to-earliest"];
    check_exit(&shared.run(&["attribute"]), 1, &parts);
    await_no_members(&shared);
    check_exit(&copy(&shared, &embedded()), 1, &parts);
    // Without offsets, everything is read again.
    Kafka::shared().delete_group(&shared.group());
    let worker = shared.start_role("attribute");
    await_all_read(&shared);
    worker.stop();
    check_equal(&by_command(&shared), &by_command(&other));
    remove("hbase-skip");
}
