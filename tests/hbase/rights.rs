//! An HBase that asks who may do what.

use hbase_client::{Client, Put};
use testbed::exports::{check_equal, downloads};
use testbed::hbase::cluster::HBase;
use testbed::{eventually, hbase, run_ok, traffic};

use super::{PARTITIONS, WORKLOAD, await_all_read, run_on};

const ACCESS: &str = "org.apache.hadoop.hbase.security.access.AccessController";
const NAME: &str = "hbase-rights";
const TABLES: [&str; 5] = ["events", "touches", "activations", "effects", "meta"];

/// As `grant` of HBase's shell does it: of a table, or with `@` of a namespace.
fn grant(cluster: &HBase, user: &str, rights: &str, on: &[String]) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut config = cluster.config();
        config.user = "admin".to_owned();
        let client = Client::connect(config).await.expect("hbase answers");
        let granted = client.table("hbase:acl").expect("a name");
        for on in on {
            let put = Put::new(on.clone()).cell("l", user.to_owned(), rights.to_owned());
            granted.mutate(put).await.expect("it is granted");
        }
    });
}

#[test]
fn no_process_needs_more_rights_than_documented() {
    let cluster = HBase::start(|site, _| {
        site.set("hbase.security.authorization", true)
            .set("hbase.superuser", "root,admin")
            .set("hbase.coprocessor.master.classes", ACCESS)
            .set("hbase.coprocessor.region.classes", ACCESS)
            .set("hbase.coprocessor.regionserver.classes", ACCESS)
    });
    let site = hbase::on(&cluster.servers(), NAME, PARTITIONS, traffic::SETTINGS);
    let site_of = |user: &str| site.beside().set("store.hbase.user", user);
    let check_denied = |user: &str, args: &[&str]| {
        let (code, shown, said) = run_on(&site_of(user), args);
        assert_eq!((code, &*shown), (Some(1), ""), "{said}");
        let is_told = said.contains("AccessDeniedException") && said.contains("grant this user");
        assert!(is_told, "{said}");
    };
    check_denied("stranger", &["hbase", "init"]);
    grant(&cluster, "maker", "C", &["@default".to_owned()]);
    eventually("the tables are made", || {
        let (code, _, said) = run_on(&site_of("maker"), &["hbase", "init"]);
        if code == Some(0) { Ok(()) } else { Err(said) }
    });
    check_denied("stranger", &["attribute"]);
    check_denied("stranger", &["regions"]);
    let tables = TABLES.map(|table| format!("{NAME}_{table}"));
    grant(&cluster, "worker", "RW", &tables);
    grant(&cluster, "reader", "R", &tables);
    // Servers hear of it a little later.
    for user in ["worker", "reader"] {
        eventually("it may read", || {
            let (code, _, said) = run_on(&site_of(user), &["regions"]);
            if code == Some(0) { Ok(()) } else { Err(said) }
        });
    }
    check_denied("reader", &["attribute"]);
    let (of_worker, of_reader) = (site_of("worker"), site_of("reader"));
    traffic::produce(&site.topics, WORKLOAD.records());
    let worker = of_worker.start_role("attribute");
    let log = worker.log();
    assert!(
        log.contains("the settings of the tables cannot be read") && log.contains("AccessDenied"),
        "{log}"
    );
    await_all_read(&of_worker);
    let exporter = of_reader.start_role("export");
    check_equal(&downloads(&of_reader, &exporter), WORKLOAD.expected());
    eventually("regions are told of", || {
        exporter.metric_of("adtrail_store_region_skew", "by=\"bytes\"").ok_or("not yet")
    });
    // Who has made them may look at them.
    run_ok(&mut site_of("maker").command(&["hbase", "init", "--dry-run"]), b"");
}
