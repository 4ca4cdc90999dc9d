//! A real HBase for ledgers, started by the tests and gone with them. Each run is of apps of its own, told
//! apart by their pids alone.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use adtrail_store::Timing;
use adtrail_store::apps::spread::App;
use adtrail_store::hbase::cluster::Cluster;
use adtrail_store::hbase::ledger::SharedLedger;
use adtrail_store::hbase::read::rows::Rows;
use adtrail_store::hbase::schema::tables;
use adtrail_store::layout::key;
use adtrail_store::layout::stored_row::StoredRow;
use attribution::facts::event::{EventTime, Fact, Pid};
use attribution::rules::policy::Policy;
use attribution::worker::{Batch, Worker};
use hbase_client::Client;
use testbed::hbase::cluster::HBase;

use super::disk::{fact_in, pid_in, policy_in};
use super::rules::{X, Y};
use super::show::{Shown, show_all};

const PARTITIONS: u16 = 8;

pub fn settings(prefix: &str) -> config::HBase {
    let servers = HBase::shared().servers().into_iter().map(String::into_boxed_str);
    let (prefix, user) = (prefix.into(), "adtrail".into());
    config::HBase { servers: servers.collect(), prefix, user, tls: None }
}

/// One that waits for as long as a busy machine takes to make tables and to remove them.
fn patient(cluster: &Cluster) -> Client {
    let mut config = HBase::shared().config();
    config.operation_timeout = Duration::from_secs(300);
    cluster.wait(Client::connect(config)).expect("hbase answers")
}

/// The tables of one store, which are made, with a region for each of so many partitions.
pub fn tables_of(prefix: &str, partitions: u16) -> Cluster {
    let cluster = Cluster::connect(&settings(prefix), Timing::default()).expect("hbase answers");
    let admin = patient(&cluster).admin();
    for layout in tables::layouts(prefix, &tables::Kept::default(), partitions) {
        let splits: Vec<_> = layout.splits.into_iter().map(Into::into).collect();
        let made = cluster.wait(admin.create(&layout.spec, &splits));
        made.expect("the table is made");
    }
    cluster
}

/// They are needed no more.
pub fn remove(cluster: &Cluster) {
    let admin = patient(cluster).admin();
    for name in tables::names(cluster.prefix()) {
        cluster.wait(admin.disable(&name)).expect("the table is disabled");
        cluster.wait(admin.delete(&name)).expect("the table is gone");
    }
}

pub fn ledger(cluster: &Cluster, policy: &Policy) -> SharedLedger<Cluster> {
    let base = |key: &str| App::new(key::partition(key, PARTITIONS));
    let apps = policy.apps().map(|app| (app.pid, base(&app.key)));
    SharedLedger::new(cluster.clone(), apps, PARTITIONS)
}

/// The rows of the batches.
pub fn rows_on_hbase(policy: &Policy, batches: Vec<Vec<Fact>>) -> Vec<Shown> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    static STORE: OnceLock<Cluster> = OnceLock::new();
    let cluster = STORE.get_or_init(|| tables_of("contract", PARTITIONS));
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let policy_there = Arc::new(policy_in(run, policy));
    let mut worker = Worker::new(ledger(cluster, &policy_there), policy_there);
    for facts in batches {
        let facts = facts.iter().map(|fact| fact_in(run, fact)).collect();
        worker.process(Batch { facts, ..Batch::default() }).expect("hbase works");
    }
    let rows = [X, Y].map(|pid| {
        let mut rows = rows_of(cluster, pid_in(run, pid));
        rows.iter_mut().for_each(|(key, _)| key.pid = pid);
        show_all(&rows)
    });
    rows.concat()
}

/// The rows of an app in the order of an export; from the middle on they are the same.
fn rows_of(cluster: &Cluster, pid: Pid) -> Vec<StoredRow> {
    let read = |after| {
        let times = (EventTime::default(), EventTime::MAX);
        let mut rows = Rows::open(cluster, pid, 0..PARTITIONS, times, after).expect("a scan");
        let mut all = Vec::new();
        while let Some((key, value)) = rows.current().expect("a scan") {
            all.push((key, value.to_vec()));
            rows.advance();
        }
        all
    };
    let all = read(None);
    let middle = all.len() / 2;
    if let Some((key, _)) = all.get(middle) {
        assert_eq!(read(Some(*key)), all[middle + 1..]);
    }
    all
}
