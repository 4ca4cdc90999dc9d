//! A disabled table: the worker waits, and requests that need it fail.

use testbed::adtrail::Adtrail;
use testbed::check_refused;
use testbed::exports::{check_equal, downloads};
use testbed::rows;
use testbed::traffic::{self, APPS, FROM, TO};

use super::{WORKLOAD, await_all_read, disable, enable, remove, site};

/// Returns the id of an activation of the first app.
fn activation(exporter: &Adtrail) -> String {
    let path = format!("/v1/apps/{}/events.csv?from={FROM}&to={TO}&type=activation", APPS[0]);
    let reply = exporter.get(&path).expect("adtrail responds");
    let rows = rows::parse(&reply.body);
    let plain = |id: &&String| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    rows.iter().map(|row| &row["event_id"]).find(plain).expect("there is an activation").clone()
}

/// The worker waits until the table is enabled again; requests that need it get an error.
#[test]
fn a_disabled_table_blocks_only_the_worker() {
    let site = site("hbase-disabled");
    let (first, rest) = WORKLOAD.records().split_at(WORKLOAD.records().len() / 2);
    traffic::produce(&site.topics, first);
    let worker = site.start_role("attribute");
    await_all_read(&site);
    let exporter = site.start_role("export");
    let before = downloads(&site, &exporter);
    let id = activation(&exporter);
    let path = format!("/v1/apps/{}/activations/{id}/explain", APPS[0]);
    assert_eq!(exporter.get(&path).expect("adtrail responds").status, 200);
    let table = "hbase-disabled_activations";
    disable(table);
    for _ in 0..5 {
        let reply = exporter.get(&path).expect("adtrail responds");
        assert_eq!(reply.status, 500, "{}", reply.text());
        assert!(reply.text().contains("/problems/store"), "{}", reply.text());
    }
    let problem = "table hbase-disabled_activations is disabled: enable it first";
    assert!(exporter.log().contains(problem), "{}", exporter.log());
    let explained = site.run(&["explain", "--app", APPS[0], "--activation", &id]);
    check_refused(&explained, 1, &[problem]);
    traffic::produce(&site.topics, rest);
    worker.await_readiness(503, "HBase does not serve the requests of a worker");
    // An export process that starts now also serves the other tables.
    let late_exporter = site.start_role("export");
    for exporter in [&exporter, &late_exporter] {
        check_equal(&downloads(&site, exporter), &before);
        exporter.await_readiness(200, "");
    }
    enable(table);
    await_all_read(&site);
    worker.await_readiness(200, "");
    assert_eq!(exporter.get(&path).expect("adtrail responds").status, 200);
    WORKLOAD.check(&site, &exporter);
    assert!(!exporter.log().contains("HBase request failed"), "{}", exporter.log());
    for process in [worker, exporter, late_exporter] {
        process.stop();
    }
    remove("hbase-disabled");
}
