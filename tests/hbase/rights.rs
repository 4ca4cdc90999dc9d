//! An HBase with access control.

use hbase_client::{Client, Put};
use testbed::hbase::cluster::HBase;
use testbed::{check_refused, hbase, run_ok, traffic};

use super::{PARTITIONS, TABLES, WORKLOAD, await_all_read, await_success};

const ACCESS: &str = "org.apache.hadoop.hbase.security.access.AccessController";
const NAME: &str = "hbase-rights";

/// Grants rights on tables, or on a namespace with `@`, as `grant` in HBase's shell does.
fn grant(cluster: &HBase, user: &str, rights: &str, on: &[String]) {
    let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
    runtime.block_on(async {
        let mut config = cluster.config();
        config.user = "admin".to_owned();
        let client = Client::connect(config).await.expect("hbase responds");
        let acl = client.table("hbase:acl").expect("the name is valid");
        for target in on {
            let put = Put::new(target.clone()).cell("l", user.to_owned(), rights.to_owned());
            acl.mutate(put).await.expect("the right is granted");
        }
    });
}

#[test]
fn the_documented_rights_are_sufficient() {
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
        let parts = ["AccessDeniedException", "grant this user"];
        check_refused(&site_of(user).run(args), 1, &parts);
    };
    check_denied("stranger", &["hbase", "init"]);
    grant(&cluster, "maker", "C", &["@default".to_owned()]);
    await_success(&site_of("maker"), &["hbase", "init"]);
    check_denied("stranger", &["attribute"]);
    check_denied("stranger", &["regions"]);
    let tables = TABLES.map(|table| format!("{NAME}_{table}"));
    grant(&cluster, "worker", "RW", &tables);
    grant(&cluster, "reader", "R", &tables);
    // Servers learn of the grants with a delay.
    for user in ["worker", "reader"] {
        await_success(&site_of(user), &["regions"]);
    }
    check_denied("reader", &["attribute"]);
    let (worker_site, reader_site) = (site_of("worker"), site_of("reader"));
    traffic::produce(&site.topics, WORKLOAD.records());
    let worker = worker_site.start_role("attribute");
    let log = worker.log();
    assert!(
        log.contains("the table descriptors cannot be read") && log.contains("AccessDenied"),
        "{log}"
    );
    await_all_read(&worker_site);
    let exporter = reader_site.start_role("export");
    WORKLOAD.check(&reader_site, &exporter);
    exporter.await_metric("adtrail_store_region_skew", "by=\"bytes\"", |_| true);
    // The user who created the tables may check them.
    run_ok(&mut site_of("maker").command(&["hbase", "init", "--dry-run"]), b"");
}
