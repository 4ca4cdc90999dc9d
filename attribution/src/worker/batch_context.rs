//! What one batch has loaded and decided so far, over the ledger.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;

use crate::facts::event::{EventTime, Family, Pid};
use crate::facts::keys::{FactKey, MatchKey};
use crate::ledger::index::{IndexEntry, Scan};
use crate::ledger::record::{Causes, CurrentRow, FactRecord, RowRef};
use crate::ledger::{DecisionWrite, Facts, Ledger, Progress};
use crate::rules::classify::InstallChains;
use crate::rules::policy::{AppPolicy, Policy};
use crate::rules::row::Row;
use crate::rules::winner::Decision;
use crate::rules::{build_row, expiry};

/// Entries that one look into the index brings at first: most keys have fewer.
pub const PAGE: usize = 16;
/// Entries that a further look brings.
pub const NEXT_PAGE: usize = 256;

pub struct BatchContext<'a, L> {
    ledger: &'a mut L,
    pub policy: &'a Policy,
    /// Activations and effects as decided in this batch, or as loaded.
    records: HashMap<FactKey, Option<FactRecord>, FixedState>,
    decided: HashMap<FactKey, Decided, FixedState>,
    /// Activations that were decided otherwise before this batch.
    pub redecided: Vec<FactKey>,
    /// Activations whose walks were others before this batch.
    pub changed_chains: HashSet<FactKey, FixedState>,
    /// Whose rows are put whatever they show.
    pub concurrent: ConcurrentWrites,
}

/// Events whose decision stands on a shared store, and whose row whoever decided may not have put.
#[derive(Debug, Default)]
pub struct ConcurrentWrites {
    /// All that the batch reaches: somebody else may have the same messages.
    pub covers_all: bool,
    /// Those about which somebody has decided meanwhile, this worker itself perhaps.
    lost: HashSet<FactKey, FixedState>,
    put: HashSet<FactKey, FixedState>,
}

/// A new row and the one that it replaces.
struct Decided {
    row: Row,
    replaced: Option<CurrentRow>,
}

impl<'a, L: Facts> BatchContext<'a, L> {
    pub fn new(ledger: &'a mut L, policy: &'a Policy) -> Self {
        let (records, decided) = (HashMap::default(), HashMap::default());
        let (redecided, changed_chains) = (Vec::new(), HashSet::default());
        let concurrent = ConcurrentWrites::default();
        Self { ledger, policy, records, decided, redecided, changed_chains, concurrent }
    }

    /// Has an event decided on as if it never was. Gives it back as it stands, if it does.
    pub fn forget_decision(&mut self, key: &FactKey) -> Option<FactRecord> {
        let record = self.records.get_mut(key)?.as_mut()?;
        let standing = record.clone();
        match record {
            FactRecord::Touch(_) => return None,
            FactRecord::Activation(record) => record.current_row = None,
            FactRecord::Effect(record) => record.current_row = None,
        }
        Some(standing)
    }

    /// Forgets all that was loaded and decided, not what was recorded.
    pub fn clear(&mut self) {
        self.records.clear();
        self.decided.clear();
        self.redecided.clear();
        self.changed_chains.clear();
    }

    pub fn app(&self, key: &FactKey) -> Option<&'a AppPolicy> {
        self.policy.app(key.pid)
    }

    /// Whether a fact of this time can still be changed, or what is decided about it.
    pub fn is_changeable(&self, key: &FactKey, time: EventTime) -> bool {
        self.app(key).is_some_and(|app| {
            let (until, floor) = (self.ledger.consumed_until(), self.ledger.expiry_floor(key.pid));
            time >= expiry::changeable_from(app, until, &floor)
        })
    }

    pub fn ledger(&mut self) -> &mut L {
        self.ledger
    }

    /// Puts a home that is known without loading.
    pub fn put(&mut self, key: FactKey, record: FactRecord) {
        self.records.insert(key, Some(record));
    }

    /// Makes room: touches are read for a few decisions at a time.
    pub fn forget_touches(&mut self) {
        self.retain_records(|key| key.family != Family::Touch);
    }

    pub fn retain_records(&mut self, mut is_needed: impl FnMut(&FactKey) -> bool) {
        self.records.retain(|key, _| is_needed(key));
    }

    /// Makes the homes of all keys available to [`BatchContext::record`].
    pub fn load(&mut self, keys: impl IntoIterator<Item = FactKey>) -> Result<(), L::Error> {
        let mut missing: Vec<FactKey> =
            keys.into_iter().filter(|key| !self.records.contains_key(key)).collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return Ok(());
        }
        let records = self.ledger.records(&missing)?;
        self.records.extend(missing.into_iter().zip(records));
        Ok(())
    }

    /// A loaded home.
    pub fn record(&self, key: &FactKey) -> Option<&FactRecord> {
        self.records.get(key)?.as_ref()
    }

    /// The home that an index entry leads to, unless the entry is stale.
    pub fn at(&self, entry: &IndexEntry) -> Option<&FactRecord> {
        self.record(&entry.fact).filter(|record| record.time() == entry.time)
    }

    /// Gives every entry of every scan to `visit`, with the scan's place.
    pub fn scan_all(
        &mut self,
        scans: &[Scan],
        mut visit: impl FnMut(usize, IndexEntry),
    ) -> Result<(), L::Error> {
        let mut open: Vec<Scan> = Vec::new();
        let mut places: Vec<usize> = (0..scans.len()).collect();
        loop {
            let asked = if open.is_empty() { scans } else { &open };
            let pages = self.ledger.scan(asked)?;
            let mut rest = Vec::new();
            let mut rest_places = Vec::new();
            for ((scan, place), page) in asked.iter().zip(places).zip(pages) {
                if page.len() >= scan.limit {
                    rest.push(Scan { after: page.last().copied(), limit: NEXT_PAGE, ..*scan });
                    rest_places.push(place);
                }
                page.into_iter().for_each(|entry| visit(place, entry));
            }
            if rest.is_empty() {
                return Ok(());
            }
            (open, places) = (rest, rest_places);
        }
    }

    /// Keeps the walks that end with an activation, and says whether they are others than before.
    pub fn keep_chains(&mut self, key: &FactKey, chains: InstallChains) -> bool {
        let Some(Some(FactRecord::Activation(record))) = self.records.get_mut(key) else {
            return false;
        };
        if record.chains != chains {
            record.chains = chains;
            self.changed_chains.insert(*key);
        }
        self.changed_chains.contains(key)
    }

    /// Takes a decision on an activation and says whether it differs from the present one. It is
    /// written where it does or `must_write`.
    pub fn decide_activation(
        &mut self,
        key: FactKey,
        decision: Decision,
        must_write: bool,
    ) -> bool {
        let Some(Some(FactRecord::Activation(record))) = self.records.get_mut(&key) else {
            return false;
        };
        let row = build_row::activation_row(&record.fact, &decision);
        let digest = build_row::digest(&(&row, &decision.original));
        let before = record.decision.replace(decision);
        let is_new = record.current_row.is_none_or(|current_row| current_row.digest != digest);
        if is_new {
            self.redecided.extend(before.is_some().then_some(key));
            record.previous = before;
        }
        if is_new || must_write {
            self.decided.insert(key, Decided::new(row, digest, &mut record.current_row));
        } else if self.concurrent.has(&key) {
            self.decided.insert(key, Decided::rewrite(row, record.current_row));
        }
        is_new
    }

    /// Keeps what an activation was decided otherwise for.
    pub fn keep_causes(&mut self, key: &FactKey, causes: Causes) {
        if let Some(Some(FactRecord::Activation(record))) = self.records.get_mut(key) {
            record.changed_by = causes;
        }
    }

    /// Takes a decision on an effect.
    pub fn decide_effect(&mut self, key: FactKey, row: Row) {
        let Some(Some(FactRecord::Effect(record))) = self.records.get_mut(&key) else { return };
        let digest = build_row::digest(&row);
        if record.current_row.is_none_or(|current_row| current_row.digest != digest) {
            self.decided.insert(key, Decided::new(row, digest, &mut record.current_row));
        } else if self.concurrent.has(&key) {
            self.decided.insert(key, Decided::rewrite(row, record.current_row));
        }
    }

    /// Whether anything is there to be written.
    pub fn has_decided(&self) -> bool {
        !self.decided.is_empty()
    }

    /// Takes the homes that were decided on, to be written.
    pub fn take_decisions(&mut self) -> Vec<DecisionWrite> {
        let decided = std::mem::take(&mut self.decided);
        let mut writes: Vec<_> = decided
            .into_iter()
            .filter_map(|(key, Decided { row, replaced })| {
                let record = self.records.remove(&key)??;
                Some(DecisionWrite { key, record, row, replaced })
            })
            .collect();
        writes.sort_unstable_by_key(|write| write.key);
        writes
    }
}

impl<L: Ledger> BatchContext<'_, L> {
    pub fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        progress: &Progress,
    ) -> Result<Vec<FactKey>, L::Error> {
        if !L::SHARED {
            return self.ledger.commit(decisions, progress);
        }
        let keys: Vec<_> = decisions.iter().map(|write| write.key).collect();
        let lost = self.ledger.commit(decisions, progress)?;
        let ConcurrentWrites { lost: concurrent, put, .. } = &mut self.concurrent;
        *concurrent = lost.iter().copied().collect();
        put.extend(keys.into_iter().filter(|key| !concurrent.contains(key)));
        Ok(lost)
    }
}

impl ConcurrentWrites {
    fn has(&self, key: &FactKey) -> bool {
        self.lost.contains(key) || (self.covers_all && !self.put.contains(key))
    }
}

impl Decided {
    /// The row of a decision that stands.
    fn rewrite(mut row: Row, current_row: Option<CurrentRow>) -> Self {
        row.revision = current_row.map_or(0, |current_row| current_row.revision);
        Self { row, replaced: current_row }
    }

    fn new(mut row: Row, digest: u64, current_row: &mut Option<CurrentRow>) -> Self {
        let replaced = *current_row;
        row.revision = replaced.map_or(0, |current_row| current_row.revision).saturating_add(1);
        *current_row = Some(CurrentRow {
            revision: row.revision,
            event_time: row.event_time,
            spreadid: row.spreadid,
            status: row.status,
            digest,
            place: RowRef::default(),
        });
        Self { row, replaced }
    }
}

/// The scan of one key between two times, both inclusive.
pub fn scan(
    pid: Pid,
    family: Family,
    key: MatchKey,
    (oldest, newest): (EventTime, EventTime),
) -> Scan {
    Scan { family, key, pid, oldest, newest, after: None, limit: PAGE }
}

/// The scans with those of one key made one where they meet.
pub fn merged(mut scans: Vec<Scan>) -> Vec<Scan> {
    scans.sort_unstable_by_key(|scan| (scan.family, scan.pid, scan.key, scan.oldest));
    scans.dedup_by(|later, earlier| {
        let is_one = (later.family, later.pid, later.key)
            == (earlier.family, earlier.pid, earlier.key)
            && later.oldest <= earlier.newest;
        if is_one {
            earlier.newest = earlier.newest.max(later.newest);
        }
        is_one
    });
    scans
}
