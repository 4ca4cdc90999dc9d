//! Ledgers on a real HBase, which is started and stopped by the tests. Each run has its own apps, which differ from
//! those of other runs only by their pids.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use adtrail_store::Timing;
use adtrail_store::apps::record::App;
use adtrail_store::hbase::cluster::Cluster;
use adtrail_store::hbase::ledger::SharedLedger;
use adtrail_store::hbase::read::rows::SharedRows;
use adtrail_store::hbase::schema::tables;
use adtrail_store::layout::key;
use adtrail_store::layout::stored_row::StoredRow;
use attribution::facts::event::{EventTime, Fact, Pid};
use attribution::rules::policy::Policy;
use attribution::worker::{Batch, Worker};
use hbase_client::Client;
use testbed::hbase::cluster::HBase;

use super::disk::{fact_in, pid_in, policy_in};
use super::row_text::{RowText, row_texts};
use super::rules::{X, Y};

const PARTITIONS: u16 = 8;

pub fn settings(prefix: &str) -> config::HBase {
    let servers = HBase::shared().servers().into_iter().map(String::into_boxed_str);
    let (prefix, user) = (prefix.into(), "adtrail".into());
    config::HBase { servers: servers.collect(), prefix, user, tls: None }
}

/// Returns a client whose timeout suffices to create and delete tables on a busy machine.
fn admin_client(cluster: &Cluster) -> Client {
    let mut config = HBase::shared().config();
    config.operation_timeout = Duration::from_secs(300);
    cluster.wait(Client::connect(config)).expect("HBase is reachable")
}

/// Creates the tables of a store, with a region for each of `partitions` partitions.
pub fn create_tables(prefix: &str, partitions: u16) -> Cluster {
    let cluster =
        Cluster::connect(&settings(prefix), Timing::default()).expect("HBase is reachable");
    let admin = admin_client(&cluster).admin();
    for layout in tables::layouts(prefix, &tables::TableTtls::default(), partitions) {
        let splits: Vec<_> = layout.splits.into_iter().map(Into::into).collect();
        let created = cluster.wait(admin.create(&layout.spec, &splits));
        created.expect("the table is created");
    }
    cluster
}

/// Deletes all tables of the store.
pub fn delete_tables(cluster: &Cluster) {
    let admin = admin_client(cluster).admin();
    for name in tables::names(cluster.prefix()) {
        cluster.wait(admin.disable(&name)).expect("the table is disabled");
        cluster.wait(admin.delete(&name)).expect("the table is deleted");
    }
}

pub fn ledger(cluster: &Cluster, policy: &Policy) -> SharedLedger<Cluster> {
    let base = |key: &str| App::new(key::partition(key, PARTITIONS));
    let apps = policy.apps().map(|app| (app.pid, base(&app.key)));
    SharedLedger::new(cluster.clone(), apps, PARTITIONS)
}

/// Processes the batches with fresh apps and returns their rows.
pub fn rows_on_hbase(policy: &Policy, batches: Vec<Vec<Fact>>) -> Vec<RowText> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    static STORE: OnceLock<Cluster> = OnceLock::new();
    let cluster = STORE.get_or_init(|| create_tables("contract", PARTITIONS));
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let run_policy = Arc::new(policy_in(run, policy));
    let mut worker = Worker::new(ledger(cluster, &run_policy), run_policy);
    for facts in batches {
        let facts = facts.iter().map(|fact| fact_in(run, fact)).collect();
        worker.process(Batch { facts, ..Batch::default() }).expect("HBase works");
    }
    let rows = [X, Y].map(|pid| {
        let mut rows = rows_of(cluster, pid_in(run, pid));
        rows.iter_mut().for_each(|(key, _)| key.pid = pid);
        row_texts(&rows)
    });
    rows.concat()
}

/// Returns the rows of an app in export order. Checks that a scan resumed in the middle returns the same rows.
fn rows_of(cluster: &Cluster, pid: Pid) -> Vec<StoredRow> {
    let read = |after| {
        let times = EventTime::default()..EventTime::MAX;
        let mut rows =
            SharedRows::open(cluster, pid, 0..PARTITIONS, times, after).expect("the scan succeeds");
        let mut all = Vec::new();
        while let Some((key, value)) = rows.current().expect("the scan succeeds") {
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
