//! What tests of ledgers give them and ask of them.

use adtrail_store::StoreError;
use attribution::facts::event::{EventTime, Fact, Family, Pid};
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::facts::match_keys::fact_key;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::record::FactRecord;
use attribution::ledger::{FactWrite, Ledger, Progress};

use super::support::facts::{Draft, millis};
use super::support::rules::X;

/// A ledger that a test of the suite runs on.
pub trait Kept: Ledger<Error = StoreError> {}

impl<L: Ledger<Error = StoreError>> Kept for L {}

/// A fact to record, found under the keys.
pub fn write(fact: impl Into<Fact>, keys: &[u64]) -> FactWrite {
    let fact = fact.into();
    FactWrite {
        key: fact_key(fact.family(), fact.pid(), fact.id()),
        record: fact.into(),
        index: keys.iter().copied().map(MatchKey).collect(),
        bucket_markers: Vec::new(),
        stale: Vec::new(),
        outgoing: None,
    }
}

/// A touch at a time, found under the keys.
pub fn touch(id: &str, ms: i64, keys: &[u64]) -> FactWrite {
    write(super::support::facts::click(id, millis(ms)), keys)
}

/// A scan of the touches of app X under a key, from the newest to the oldest time.
pub fn scan(key: u64, newest: i64, oldest: i64) -> Scan {
    Scan {
        family: Family::Touch,
        key: MatchKey(key),
        pid: X,
        oldest: millis(oldest),
        newest: millis(newest),
        after: None,
        limit: 1_000,
    }
}

/// As a worker does it: what is given back was known otherwise than thought, and is looked at.
pub fn record_facts(ledger: &mut impl Kept, writes: impl IntoIterator<Item = FactWrite>) {
    let lost = ledger.record(writes.into_iter().collect()).expect("facts are recorded");
    if lost.is_empty() {
        return;
    }
    let keys: Vec<FactKey> = lost.iter().map(|write| write.key).collect();
    ledger.lookup(&keys).expect("a look-up");
    let lost = ledger.record(lost).expect("facts are recorded");
    assert!(lost.is_empty(), "nobody else writes");
}

pub fn commit(ledger: &mut impl Kept) {
    let lost = ledger.commit(Vec::new(), &Progress::default()).expect("facts are committed");
    assert!(lost.is_empty(), "nobody else writes");
}

pub fn entries(ledger: &mut impl Kept, scan: Scan) -> Vec<IndexEntry> {
    ledger.scan(&[scan]).expect("a scan").remove(0)
}

/// The times of a scan's entries.
pub fn times(ledger: &mut impl Kept, scan: Scan) -> Vec<u64> {
    entries(ledger, scan).iter().map(|entry| entry.time.millis()).collect()
}

pub fn home_of(ledger: &mut impl Kept, key: FactKey) -> Option<FactRecord> {
    ledger.records(&[key]).expect("a look-up").remove(0)
}

pub fn entry(of: &FactWrite) -> IndexEntry {
    IndexEntry { time: of.record.time(), fact: of.key }
}

pub fn end_of_time() -> i64 {
    EventTime::MAX.millis() as i64
}

/// The same write of another app.
pub fn of_app(pid: Pid, draft: Draft, keys: &[u64]) -> FactWrite {
    let draft = if pid == X { draft } else { draft.of_app_y() };
    write(draft, keys)
}
