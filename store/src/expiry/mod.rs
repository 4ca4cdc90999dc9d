//! Expiry of facts that no decision needs any more, and retention of rows.

pub(crate) mod floor;
pub(crate) mod retention;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use attribution::facts::event::{EventTime, Family, Pid};
use attribution::ledger::record::{FactRecord, Lookup};
use attribution::rules::expiry::{ExpiryFloor, Needed};
use attribution::rules::policy::Policy;
use foldhash::fast::FixedState;

use floor::{ExpiryRecords, RetainedFloor};

/// The low watermark: the broker time up to which all partitions are consumed. It never decreases. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ConsumedUntil(Arc<AtomicU64>);

impl ConsumedUntil {
    pub fn get(&self) -> Option<EventTime> {
        let millis = self.0.load(Ordering::Relaxed);
        (millis > 0).then(|| EventTime::default().plus(millis))
    }

    pub fn advance(&self, until: EventTime) {
        self.0.fetch_max(until.millis(), Ordering::Relaxed);
    }
}

/// The expiry of each app's state: by the settings and the low watermark, and by the floors of earlier settings. Clones
/// share the settings and floors, which a reload replaces together.
#[derive(Debug, Clone, Default)]
pub struct Expiry {
    rules: Arc<ArcSwap<Rules>>,
    until: ConsumedUntil,
}

#[derive(Debug, Clone, Default)]
struct Rules {
    apps: HashMap<Pid, Kept, FixedState>,
    floors: HashMap<Pid, ExpiryFloor, FixedState>,
}

/// How long the state of an app is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    pub needed: Needed,
    /// How long rows are kept; `None`: forever.
    pub retention_ms: Option<u64>,
}

impl Kept {
    /// The cutoffs at a low watermark.
    pub fn expired(&self, until: EventTime) -> ExpiryFloor {
        self.needed.expired(until, self.retention_ms)
    }
}

impl Rules {
    fn floor(&self, pid: Pid) -> ExpiryFloor {
        self.floors.get(&pid).copied().unwrap_or_default()
    }
}

impl Expiry {
    /// The facts of an app without a horizon are kept as long as its rows, and forever if `retention_ms` is `None`.
    /// Facts of apps that the policy does not know are kept forever.
    pub fn new(policy: &Policy, retention_ms: impl Fn(Pid) -> Option<u64>) -> Self {
        let kept = policy.apps().filter_map(|app| {
            let retention_ms = retention_ms(app.pid);
            let late_ms = app.correction_horizon_ms.or(retention_ms)?;
            let needed = Needed::new(policy, app, late_ms);
            Some((app.pid, Kept { needed, retention_ms }))
        });
        let rules = Rules { apps: kept.collect(), floors: HashMap::default() };
        Self { rules: Arc::new(ArcSwap::from_pointee(rules)), until: ConsumedUntil::default() }
    }

    /// Returns the same expiry with a low watermark of its own, which begins at the present one.
    pub fn with_own_until(&self) -> Self {
        let until = ConsumedUntil::default();
        until.advance(self.until.get().unwrap_or_default());
        Self { until, ..self.clone() }
    }

    /// Sets the floors of all apps. Must be called before anything expires by these settings.
    pub fn set_floors(&self, records: &ExpiryRecords) {
        self.replace(self, records);
    }

    /// Takes the settings of `new`, with the floors of these records, which must cover all that has expired before.
    pub fn replace(&self, new: &Self, records: &ExpiryRecords) {
        let floors = records.iter().filter(|(_, record)| record.floor != ExpiryFloor::default());
        let floors = floors.map(|(pid, record)| (*pid, record.floor)).collect();
        let apps = new.rules.load().apps.clone();
        self.rules.store(Arc::new(Rules { apps, floors }));
    }

    /// The floor of an app that remains from earlier settings.
    pub fn floor(&self, pid: Pid) -> ExpiryFloor {
        self.rules.load().floor(pid)
    }

    /// The floors that are still in effect for apps of the policy, at a low watermark.
    pub fn retained_floors(&self, policy: &Policy, until: Option<EventTime>) -> Vec<RetainedFloor> {
        let Some(until) = until else { return Vec::new() };
        let rules = self.rules.load();
        let known = rules.floors.iter().filter(|(pid, _)| policy.app(**pid).is_some());
        let kept = |pid: &Pid| rules.apps.get(pid).copied();
        known.filter_map(|(pid, floor)| RetainedFloor::of(*pid, floor, kept(pid), until)).collect()
    }

    /// The apps with state that expires.
    pub fn pids(&self) -> Vec<Pid> {
        self.rules.load().apps.keys().copied().collect()
    }

    pub fn kept(&self, pid: Pid) -> Option<Kept> {
        self.rules.load().apps.get(&pid).copied()
    }

    pub fn until(&self) -> &ConsumedUntil {
        &self.until
    }

    /// The time before which facts of a family have expired.
    pub fn oldest(&self, pid: Pid, family: Family, lookback_ms: Option<u64>) -> EventTime {
        self.cutoff(pid, |floor| floor.oldest(family, lookback_ms))
    }

    /// The time before which records of a family are removed. Those of activations and effects stay longer than they
    /// can be needed, as tombstones.
    pub fn oldest_record(&self, pid: Pid, family: Family, lookback_ms: Option<u64>) -> EventTime {
        self.cutoff(pid, |floor| floor.oldest_record(family, lookback_ms))
    }

    /// The time of the oldest activation whose decision can still be recomputed from complete facts.
    pub fn changeable_from(&self, pid: Pid) -> EventTime {
        self.cutoff(pid, |floor| floor.late)
    }

    /// The later one of a cutoff of the present settings and that of earlier ones.
    fn cutoff(&self, pid: Pid, of: impl Fn(&ExpiryFloor) -> EventTime) -> EventTime {
        let rules = self.rules.load();
        let current = self.until.get().zip(rules.apps.get(&pid));
        let current = current.map(|(until, app)| app.expired(until)).unwrap_or_default();
        of(&current).max(of(&rules.floor(pid)))
    }

    pub fn has_expired(&self, pid: Pid, record: &FactRecord) -> bool {
        let (family, lookback_ms) = (record.family(), record.lookback_ms());
        record.time() < self.oldest(pid, family, lookback_ms)
    }

    /// The lookup result for a stored record.
    pub fn lookup(&self, pid: Pid, record: Option<FactRecord>) -> Lookup {
        let Some(record) = record else { return Lookup::Missing };
        if !self.has_expired(pid, &record) {
            return Lookup::Found(record);
        }
        let (family, lookback_ms) = (record.family(), record.lookback_ms());
        let is_removed = record.time() < self.oldest_record(pid, family, lookback_ms);
        if is_removed { Lookup::Missing } else { Lookup::Tombstone }
    }
}
