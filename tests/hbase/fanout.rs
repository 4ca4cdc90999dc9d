//! Changes of an app's fanout.

use testbed::hbase;
use testbed::traffic::{self, APPS};

use super::{PARTITIONS, WORKLOAD, await_all_read, kill_while_it_reads, output_of, remove};

/// Returns the settings of the traffic with this fanout of the first app, and with a short session timeout, so that the
/// group soon detects a killed member.
fn settings(fanout: u16) -> String {
    let app = format!("key = \"{}\"\n", APPS[0]);
    let settings =
        traffic::SETTINGS.replace(&app, &format!("{app}[apps.store]\nfanout = {fanout}\n"));
    let kafka = "\"session.timeout.ms\" = \"6000\"\n\"heartbeat.interval.ms\" = \"500\"\n";
    format!("{settings}[kafka.librdkafka]\n{kafka}")
}

#[test]
fn fanout_changes_and_killed_workers_do_not_change_exports() {
    let mut site = hbase::with_tables("hbase-fanout", PARTITIONS, &settings(1))
        .set("ingest.batch_records_max", "40");
    let fanouts = [1, 8, 2, 4];
    for (fanout, portion) in
        fanouts.into_iter().zip(traffic::portions(WORKLOAD.records(), fanouts.len()))
    {
        site.change(&settings(fanout));
        traffic::produce(&site.topics, portion);
        kill_while_it_reads(&site);
    }
    let last = site.start_role("run");
    await_all_read(&site);
    WORKLOAD.check(&site, &last);
    let shown = output_of(&site, &["regions"], 0, &[]);
    assert!(
        shown.contains("app-x is spread over 4 partitions; its rows are in 5, 1, 7, 3, 6, 2, 0, 4"),
        "{shown}"
    );
    remove("hbase-fanout");
}
