//! Helpers shared by the tests of ledgers: facts to record, queries, and a store that is reopened.

use adtrail_store::StoreError;
use adtrail_store::embedded::Embedded;
use attribution::facts::event::{EventTime, Fact, Family, Pid};
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::facts::match_keys::fact_key;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::record::{CurrentRow, FactRecord};
use attribution::ledger::{FactWrite, Ledger, Progress};
use attribution::rules::policy::HOUR_MS;
use config::Store;
use tempfile::TempDir;

use super::support::facts::{Draft, millis};
use super::support::folders::temp_folder;
use super::support::rules::{X, rules};
use super::support::run::settings;

/// A ledger that tests of the suite run on.
pub trait SuiteLedger: Ledger<Error = StoreError> {}

impl<L: Ledger<Error = StoreError>> SuiteLedger for L {}

/// Returns the write of a fact that is indexed under the keys.
pub fn write(fact: impl Into<Fact>, keys: &[u64]) -> FactWrite {
    let fact = fact.into();
    let key = fact_key(fact.id_space(), fact.pid(), fact.id());
    let record = FactRecord::from(fact);
    FactWrite {
        key,
        received_md5: record.device_ids().received_md5(),
        record,
        index: keys.iter().copied().map(MatchKey).collect(),
        bucket_markers: Vec::new(),
        stale: Vec::new(),
        superseded: None,
    }
}

/// Returns the write of a touch that is indexed under the keys.
pub fn touch(id: &str, ms: i64, keys: &[u64]) -> FactWrite {
    write(super::support::facts::click(id, millis(ms)), keys)
}

/// Returns a scan of the touches of app X under a key, with inclusive bounds.
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

/// Records facts as a worker does: looks up conflicting writes and records them again.
pub fn record_facts(ledger: &mut impl SuiteLedger, writes: impl IntoIterator<Item = FactWrite>) {
    let conflicts = ledger.record(writes.into_iter().collect()).expect("facts are recorded");
    if conflicts.is_empty() {
        return;
    }
    let keys: Vec<FactKey> = conflicts.iter().map(|write| write.key).collect();
    ledger.lookup(&keys).expect("the lookup succeeds");
    let conflicts = ledger.record(conflicts).expect("facts are recorded");
    assert!(conflicts.is_empty(), "conflicts without another writer");
}

pub fn commit(ledger: &mut impl SuiteLedger) {
    begin_commit(ledger);
    ledger.wait_for_commit().expect("the commit succeeds");
}

/// Commits facts without waiting.
pub fn begin_commit(ledger: &mut impl SuiteLedger) {
    let conflicts = ledger.commit(Vec::new(), &Progress::default()).expect("facts are committed");
    assert!(conflicts.is_empty(), "conflicts without another writer");
}

pub fn entries(ledger: &mut impl SuiteLedger, scan: Scan) -> Vec<IndexEntry> {
    ledger.scan(&[scan]).expect("the scan succeeds").remove(0)
}

/// Returns the times of a scan's entries.
pub fn times(ledger: &mut impl SuiteLedger, scan: Scan) -> Vec<u64> {
    entries(ledger, scan).iter().map(|entry| entry.time.millis()).collect()
}

pub fn record_of(ledger: &mut impl SuiteLedger, key: FactKey) -> Option<FactRecord> {
    ledger.records(&[key]).expect("the lookup succeeds").remove(0)
}

pub fn entry(write: &FactWrite) -> IndexEntry {
    IndexEntry { time: write.record.time(), fact: write.key }
}

pub fn end_of_time() -> i64 {
    EventTime::MAX.millis() as i64
}

/// Returns the write of a fact of app `pid` that is indexed under the keys.
pub fn of_app(pid: Pid, draft: Draft, keys: &[u64]) -> FactWrite {
    let draft = if pid == X { draft } else { draft.of_app_y() };
    write(draft, keys)
}

/// How long a [`StoreFixture`] keeps rows.
pub const RETENTION_HOURS: u64 = 96;

/// A store on disk that is reopened with other settings.
pub struct StoreFixture {
    _dir: TempDir,
    pub settings: Store,
    /// None while it is closed.
    pub store: Option<Embedded>,
    pub consumed_ms: u64,
}

impl StoreFixture {
    pub fn new(change: impl FnOnce(&mut Store)) -> Self {
        let dir = temp_folder();
        let mut settings = settings(dir.path());
        settings.retention_ms = Some(RETENTION_HOURS * HOUR_MS);
        change(&mut settings);
        let mut fixture =
            Self { _dir: dir, settings, store: None, consumed_ms: 20_000 * 24 * HOUR_MS };
        fixture.advance(0);
        fixture
    }

    /// Returns the store; opens it if it is closed.
    pub fn store(&mut self) -> &mut Embedded {
        let open = || Embedded::open(&self.settings, &rules()).expect("the store opens");
        self.store.get_or_insert_with(open)
    }

    /// Advances the consumed time.
    pub fn advance(&mut self, hours: u64) {
        self.consumed_ms += hours * HOUR_MS;
        let consumed_until = Some(EventTime::default().plus(self.consumed_ms));
        let progress = Progress { consumed_until, ..Progress::default() };
        self.store().commit(Vec::new(), &progress).expect("the commit begins");
        self.store().wait_for_commit().expect("the commit succeeds");
    }

    /// Returns the stored row of an event.
    pub fn current_row(&mut self, event: Draft) -> Option<CurrentRow> {
        let record = record_of(self.store(), write(event, &[]).key);
        record.and_then(|record| record.current_row().copied())
    }
}
