//! A real HBase for the whole of adtrail: the one that the client's own tests start.

use crate::support::kafka::Kafka;
use crate::support::site::Site;
use crate::support::{leash, maven, run_ok};

#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../../hbase-client/tests/support/bed.rs"]
mod bed;
#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../../hbase-client/tests/support/hbase.rs"]
pub mod cluster;
#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../../hbase-client/tests/support/site.rs"]
mod site;

use bed::{eventually, free_port};

/// A site on the shared Kafka whose store is in the shared HBase, and made.
pub fn made(name: &str, partitions: i32, more_settings: &str) -> Site {
    let site = on(&cluster::HBase::shared().servers(), name, partitions, more_settings);
    run_ok(&mut site.command(&["hbase", "init"]), b"");
    site
}

/// As [`made`], in any HBase, and not made.
pub fn on(servers: &[String], name: &str, partitions: i32, more_settings: &str) -> Site {
    Site::new(Kafka::shared(), name, partitions, more_settings)
        .set("store.kind", "hbase")
        .set("store.hbase.servers", &format!("{servers:?}"))
        .set("store.hbase.prefix", name)
        .set("store.partitions", "8")
        .set("store.retention", "off")
}
