//! The worker over any ledger: what goes in, in which order, and the rows that come out.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use adtrail_store::StoreError;
use adtrail_store::embedded::Embedded;
use adtrail_store::layout::codec::row::{self, RowView};
use adtrail_store::layout::key::RowKey;
use adtrail_store::memory::Memory;
use adtrail_store::reader::{Reader, Rows};
use attribution::facts::event::{EventTime, Fact, Pid};
use attribution::ledger::{Ledger, Position};
use attribution::rules::policy::{AppPolicy, Policy};
use attribution::worker::{Batch, Report, Worker};
use tempfile::TempDir;

use super::disk::{Restart, rows_on_disk};
use super::hbase::rows_on_hbase;
use super::rules;
use super::show::{Shown, show};

/// A ledger whose rows can be looked at.
pub trait Shelf: Ledger<Error = StoreError> {
    /// In the order of an export.
    fn shown(&self) -> Vec<Shown>;
}

impl Shelf for Memory {
    fn shown(&self) -> Vec<Shown> {
        let shown = |row: &attribution::rules::row::Row| {
            let mut value = Vec::new();
            row::encode(row, &mut value);
            let key = RowKey {
                partition: 0,
                pid: row.pid,
                event_time: row.event_time,
                spreadid: row.spreadid,
                seq: row.seq,
            };
            show(&key, &RowView::decode(&value).expect("the row was just encoded"))
        };
        self.rows().map(shown).collect()
    }
}

impl Shelf for Embedded {
    fn shown(&self) -> Vec<Shown> {
        read(&self.reader())
    }
}

/// All rows of all apps.
pub fn read(reader: &Reader) -> Vec<Shown> {
    rules::apps().iter().flat_map(|app| rows_of(reader, app, app.pid)).collect()
}

/// All rows of an app, shown as those of the given pid; read from their end they are the same.
pub fn rows_of(reader: &Reader, app: &AppPolicy, pid: Pid) -> Vec<Shown> {
    let view = reader.view();
    let range = (EventTime::default(), EventTime::MAX);
    let all = |mut rows: Rows<'_>| {
        let mut shown = Vec::new();
        while let Some((key, value)) = rows.current().expect("a row") {
            let row = RowView::decode(value).expect("a row that can be read");
            shown.push(show(&RowKey { pid, ..key }, &row));
            rows.advance();
        }
        shown
    };
    let shown = all(view.rows(app, range, None).expect("a scan"));
    let newest_first = all(view.rows_newest_first(app, range).expect("a scan"));
    assert!(shown.iter().eq(newest_first.iter().rev()), "{app:?}: from its end it is another");
    shown
}

pub fn settings(path: &Path) -> config::Store {
    config::Store {
        hbase: None,
        path: path.into(),
        partitions: 8,
        retention_ms: None,
        memory_bytes: 64 << 20,
        region_bytes_max: 1 << 30,
        fanout_above: None,
        apps: BTreeMap::new(),
    }
}

pub fn open(path: &Path, policy: &Policy) -> Embedded {
    Embedded::open(&settings(path), policy).expect("the store opens")
}

/// A store on disk that is gone with its test.
pub fn on_disk(policy: &Policy) -> (Embedded, TempDir) {
    let dir = TempDir::with_prefix("adtrail-store-").expect("a temporary folder");
    (open(dir.path(), policy), dir)
}

/// A worker that has processed the batches.
pub fn fed<L: Shelf>(ledger: L, policy: &Arc<Policy>, batches: Vec<Vec<Fact>>) -> Worker<L> {
    let mut worker = Worker::new(ledger, Arc::clone(policy));
    for facts in batches {
        give(&mut worker, facts);
    }
    worker
}

pub fn give<L: Shelf>(worker: &mut Worker<L>, facts: Vec<Fact>) -> Report {
    worker.process(Batch { facts, ..Batch::default() }).expect("the ledger works")
}

pub fn position(topic: &str, partition: i32, next_offset: i64) -> Position {
    Position { topic: topic.into(), partition, next_offset, mark: None, last: None }
}

/// The variable that has the contract's cases run on HBase instead.
pub const ON_HBASE: &str = "ADTRAIL_CONTRACT_ON_HBASE";

/// The rows of the facts, which are the same whatever the ledger, the order and the batches.
#[track_caller]
pub fn rows_however(policy: &Arc<Policy>, facts: &[Fact]) -> Vec<Shown> {
    let reversed: Vec<Fact> = facts.iter().rev().cloned().collect();
    let alone = |facts: &[Fact]| facts.iter().map(|fact| vec![fact.clone()]).collect();
    let ways: [(&str, Vec<Vec<Fact>>); 4] = [
        ("in one batch", vec![facts.to_vec()]),
        ("each alone, reversed", alone(&reversed)),
        ("in one batch, reversed", vec![reversed.clone()]),
        ("each alone", alone(facts)),
    ];
    let is_on_hbase = std::env::var_os(ON_HBASE).is_some();
    // HBase takes its time: there it is two ways that differ in the order and in the batches.
    let count = if is_on_hbase { testbed::length(2, ways.len()) } else { ways.len() };
    let rows = fed(Memory::default(), policy, ways[0].1.clone()).ledger().shown();
    for (name, batches) in ways.into_iter().take(count) {
        if is_on_hbase {
            same(&rows_on_hbase(policy, batches), &rows, &format!("on hbase, {name}"));
            continue;
        }
        let others = fed(Memory::default(), policy, batches.clone());
        same(&others.ledger().shown(), &rows, &format!("in memory, {name}"));
        let batches: Vec<_> = batches.into_iter().map(|facts| (Restart::No, facts)).collect();
        same(&rows_on_disk(policy, &batches), &rows, &format!("on disk, {name}"));
    }
    rows
}

/// Rows are equal in everything. Fails with the first difference alone.
#[track_caller]
pub fn same(found: &[Shown], expected: &[Shown], how: &str) {
    let whole = |rows: &[Shown], place: usize| rows.get(place).map(|row| row.whole.clone());
    for place in 0..found.len().max(expected.len()) {
        assert_eq!(whole(found, place), whole(expected, place), "{how}, row {place}");
    }
}
