//! What goes on while HBase does not do everything.

use testbed::adtrail::Adtrail;
use testbed::exports::{check_equal, downloads};
use testbed::rows;
use testbed::traffic::{self, APPS, FROM, TO};

use super::{WORKLOAD, await_all_read, done, remove, run_on, site};

/// Some activation of the first app.
fn activation(exporter: &Adtrail) -> String {
    let path = format!("/v1/apps/{}/events.csv?from={FROM}&to={TO}&type=activation", APPS[0]);
    let reply = exporter.get(&path).expect("an answer");
    let rows = rows::parse(&reply.body);
    let plain = |id: &&String| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    rows.iter().map(|row| &row["event_id"]).find(plain).expect("an activation").clone()
}

/// Only the worker waits until the table is there again; whoever asks is told that it is not.
#[test]
fn a_disabled_table_blocks_only_the_worker() {
    let site = site("hbase-disabled");
    let (some, rest) = WORKLOAD.records().split_at(WORKLOAD.records().len() / 2);
    traffic::produce(&site.topics, some);
    let worker = site.start_role("attribute");
    await_all_read(&site);
    let exporter = site.start_role("export");
    let before = downloads(&site, &exporter);
    let id = activation(&exporter);
    let path = format!("/v1/apps/{}/activations/{id}/explain", APPS[0]);
    assert_eq!(exporter.get(&path).expect("an answer").status, 200);
    let table = "hbase-disabled_activations";
    done(async |client| client.admin().disable(table).await.expect("it is disabled"));
    for _ in 0..5 {
        let reply = exporter.get(&path).expect("an answer");
        assert_eq!(reply.status, 500, "{}", reply.text());
        assert!(reply.text().contains("/problems/store"), "{}", reply.text());
    }
    let said = "table hbase-disabled_activations is disabled: enable it first";
    assert!(exporter.log().contains(said), "{}", exporter.log());
    let (code, shown, told) = run_on(&site, &["explain", "--app", APPS[0], "--activation", &id]);
    assert_eq!((code, &*shown), (Some(1), ""), "{told}");
    assert!(told.contains(said), "{told}");
    traffic::produce(&site.topics, rest);
    worker.await_readiness(503, "HBase does not serve the requests of a worker");
    // One that starts now waits too.
    let other = site.start_role("export");
    for exporter in [&exporter, &other] {
        check_equal(&downloads(&site, exporter), &before);
        exporter.await_readiness(200, "");
    }
    done(async |client| client.admin().enable(table).await.expect("it is enabled"));
    await_all_read(&site);
    worker.await_readiness(200, "");
    assert_eq!(exporter.get(&path).expect("an answer").status, 200);
    check_equal(&downloads(&site, &exporter), WORKLOAD.expected());
    assert!(!exporter.log().contains("HBase request failed"), "{}", exporter.log());
    for one in [worker, exporter, other] {
        let (status, log) = one.terminate();
        assert!(status.success(), "{log}");
    }
    remove("hbase-disabled");
}
