//! Runs the worker over any ledger and reads the resulting rows.

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
use attribution::worker::{Batch, BatchReport, Worker};
use tempfile::TempDir;

use super::disk::{Restart, rows_on_disk};
use super::folders::temp_folder;
use super::hbase::rows_on_hbase;
use super::row_text::{RowText, row_text};
use super::rules;

/// A ledger whose rows tests can read.
pub trait LedgerUnderTest: Ledger<Error = StoreError> {
    /// Returns all rows in export order.
    fn row_texts(&self) -> Vec<RowText>;
}

impl LedgerUnderTest for Memory {
    fn row_texts(&self) -> Vec<RowText> {
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
            row_text(&key, &RowView::decode(&value).expect("the row was just encoded"))
        };
        self.rows().map(shown).collect()
    }
}

impl LedgerUnderTest for Embedded {
    fn row_texts(&self) -> Vec<RowText> {
        read(&self.reader())
    }
}

/// Returns all rows of all apps.
pub fn read(reader: &Reader) -> Vec<RowText> {
    rules::apps().iter().flat_map(|app| rows_of(reader, app, app.pid)).collect()
}

/// Returns all rows of an app, with its pid replaced by `pid`. Checks that a scan newest first returns the same rows.
pub fn rows_of(reader: &Reader, app: &AppPolicy, pid: Pid) -> Vec<RowText> {
    let view = reader.view();
    let range = EventTime::default()..EventTime::MAX;
    let all = |mut rows: Rows<'_>| {
        let mut shown = Vec::new();
        while let Some((key, value)) = rows.current().expect("the scan succeeds") {
            let row = RowView::decode(value).expect("a valid row");
            shown.push(row_text(&RowKey { pid, ..key }, &row));
            rows.advance();
        }
        shown
    };
    let shown = all(view.rows(app, range.clone(), None).expect("the scan succeeds"));
    let newest_first = all(view.rows_newest_first(app, range).expect("the scan succeeds"));
    assert!(
        shown.iter().eq(newest_first.iter().rev()),
        "{app:?}: a scan newest first returns different rows"
    );
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

/// Returns a store in a temporary folder.
pub fn on_disk(policy: &Policy) -> (Embedded, TempDir) {
    let dir = temp_folder();
    (open(dir.path(), policy), dir)
}

/// Returns a worker that has processed the batches.
pub fn worker_after<L: LedgerUnderTest>(
    ledger: L,
    policy: &Arc<Policy>,
    batches: Vec<Vec<Fact>>,
) -> Worker<L> {
    let mut worker = Worker::new(ledger, Arc::clone(policy));
    for facts in batches {
        process(&mut worker, facts);
    }
    worker
}

pub fn process<L: LedgerUnderTest>(worker: &mut Worker<L>, facts: Vec<Fact>) -> BatchReport {
    worker.process(Batch { facts, ..Batch::default() }).expect("the ledger works")
}

pub fn position(topic: &str, partition: i32, next_offset: i64) -> Position {
    Position { topic: topic.into(), partition, next_offset, known: None, last: None }
}

/// The environment variable that makes the contract's tests run on HBase.
pub const ON_HBASE: &str = "ADTRAIL_CONTRACT_ON_HBASE";

/// Returns the rows of the facts. Checks that they are the same for every ledger, order and batching.
#[track_caller]
pub fn rows_in_any_order(policy: &Arc<Policy>, facts: &[Fact]) -> Vec<RowText> {
    let reversed: Vec<Fact> = facts.iter().rev().cloned().collect();
    let one_by_one = |facts: &[Fact]| facts.iter().map(|fact| vec![fact.clone()]).collect();
    let deliveries: [(&str, Vec<Vec<Fact>>); 4] = [
        ("in one batch", vec![facts.to_vec()]),
        ("one by one, reversed", one_by_one(&reversed)),
        ("in one batch, reversed", vec![reversed.clone()]),
        ("one by one", one_by_one(facts)),
    ];
    let is_on_hbase = std::env::var_os(ON_HBASE).is_some();
    // HBase is slow, so only the two deliveries that differ in both order and batching run there.
    let count = if is_on_hbase { testbed::length(2, deliveries.len()) } else { deliveries.len() };
    let rows =
        worker_after(Memory::default(), policy, deliveries[0].1.clone()).ledger().row_texts();
    for (index, (name, batches)) in deliveries.into_iter().take(count).enumerate() {
        if is_on_hbase {
            assert_same_rows(&rows_on_hbase(policy, batches), &rows, &format!("on HBase, {name}"));
            continue;
        }
        let worker = worker_after(Memory::default(), policy, batches.clone());
        assert_same_rows(&worker.ledger().row_texts(), &rows, &format!("in memory, {name}"));
        let restart = if index < 2 { Restart::No } else { Restart::InFlight };
        let batches: Vec<_> = batches.into_iter().map(|facts| (restart, facts)).collect();
        assert_same_rows(&rows_on_disk(policy, &batches), &rows, &format!("on disk, {name}"));
    }
    rows
}

/// Checks that rows are equal in every column, and reports only the first difference.
#[track_caller]
pub fn assert_same_rows(found: &[RowText], expected: &[RowText], context: &str) {
    let whole = |rows: &[RowText], index: usize| rows.get(index).map(|row| row.whole.clone());
    for index in 0..found.len().max(expected.len()) {
        assert_eq!(whole(found, index), whole(expected, index), "{context}, row {index}");
    }
}
