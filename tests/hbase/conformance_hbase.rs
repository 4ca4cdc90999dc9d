//! The conformance suite through Kafka, the service over HBase, and HTTP.

use hbase_client::{Family, TableSpec};
use testbed::site::Site;
use testbed::{check_exit, hbase};

use super::conformance_runner::{Backend, check_cases};
use super::{TABLES, remove, with_client};

#[test]
fn contract_cases_hold_over_hbase() {
    check_cases(&Backend {
        name: "conformance-hbase",
        // The cases between those that run over RocksDB.
        first_case: 2,
        prepare: in_few_regions,
        remove,
    });
}

/// Gives a site its own tables, because the cases have the same apps. `hbase init` would create 50 regions for each of
/// them; here each table but `meta` exists before, with one region.
fn in_few_regions(site: Site, prefix: &str) -> Site {
    let site = hbase::in_hbase(site, &hbase::cluster::HBase::shared().servers(), prefix);
    let site = site.set("store.partitions", "1");
    with_client(async |client| {
        for table in TABLES.into_iter().filter(|table| *table != "meta") {
            let spec = TableSpec::new(format!("{prefix}_{table}")).family(Family::new("d"));
            client.admin().create(&spec, &[]).await.expect("the table is created");
        }
    });
    // It creates `meta`, and reports the missing regions.
    check_exit(&site.run(&["hbase", "init"]), 1, &["results are not affected"]);
    site
}
