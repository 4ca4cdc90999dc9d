//! Apps that are spread over more and fewer partitions.

use testbed::exports::{check_equal, downloads};
use testbed::hbase;
use testbed::traffic::{self, APPS};

use super::{PARTITIONS, WORKLOAD, await_all_read, kill_while_it_reads, remove, run_on};

/// The settings of the crowd, with the first app spread so far; of a member that is gone without a word the group
/// learns soon.
fn settings(fanout: u16) -> String {
    let app = format!("key = \"{}\"\n", APPS[0]);
    let spread =
        traffic::SETTINGS.replace(&app, &format!("{app}[apps.store]\nfanout = {fanout}\n"));
    let kafka = "\"session.timeout.ms\" = \"6000\"\n\"heartbeat.interval.ms\" = \"500\"\n";
    format!("{spread}[kafka.librdkafka]\n{kafka}")
}

#[test]
fn an_app_is_spread_further_and_back_while_workers_are_killed() {
    let mut site =
        hbase::made("hbase-spread", PARTITIONS, &settings(1)).set("ingest.batch_records_max", "40");
    let fans = [1, 8, 2, 4];
    for (fanout, portion) in fans.into_iter().zip(traffic::portions(WORKLOAD.records(), fans.len()))
    {
        site.change(&settings(fanout));
        traffic::produce(&site.topics, portion);
        kill_while_it_reads(&site);
    }
    let last = site.start_role("run");
    await_all_read(&site);
    check_equal(&downloads(&site, &last), WORKLOAD.expected());
    let (code, shown, said) = run_on(&site, &["regions"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        shown.contains("app-x is spread over 4 partitions; its rows are in 5, 1, 7, 3, 6, 2, 0, 4"),
        "{shown}"
    );
    remove("hbase-spread");
}
