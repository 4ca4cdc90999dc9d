//! A real HBase, started by the code that the tests of `hbase-client` use, and sites whose store is in it.

use super::kafka::Kafka;
use super::{child_guard, class_data, maven, shared};
use crate::site::Site;
use crate::{free_port, run_ok};

#[path = "../../../hbase-client/tests/support/hbase.rs"]
pub mod cluster;
#[expect(dead_code, reason = "only a part of it is used here")]
#[path = "../../../hbase-client/tests/support/helpers.rs"]
mod helpers;
#[path = "../../../hbase-client/tests/support/processes.rs"]
pub mod processes;
#[path = "../../../hbase-client/tests/support/site.rs"]
mod site;

use self::cluster as hbase;
use helpers::{DEADLINE, eventually};

/// Creates a site on the shared Kafka whose store is in the shared HBase, and its tables.
pub fn with_tables(name: &str, partitions: i32, more_settings: &str) -> Site {
    let site = on(&cluster::HBase::shared().servers(), name, partitions, more_settings);
    run_ok(&mut site.command(&["hbase", "init"]), b"");
    site
}

/// Changes a site to keep its store in HBase.
pub fn in_hbase(site: Site, servers: &[String], prefix: &str) -> Site {
    site.set("store.kind", "hbase")
        .set("store.hbase.servers", &format!("{servers:?}"))
        .set("store.hbase.prefix", prefix)
}

/// Like [`with_tables`], in any HBase, and without creating the tables.
pub fn on(servers: &[String], name: &str, partitions: i32, more_settings: &str) -> Site {
    in_hbase(Site::new(Kafka::shared(), name, partitions, more_settings), servers, name)
        .set("store.partitions", "8")
}
