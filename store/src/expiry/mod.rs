//! Which facts nothing depends on any more.

pub(crate) mod floor;
pub(crate) mod retention;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use attribution::facts::event::{EventTime, Family, Pid};
use attribution::ledger::record::{FactRecord, Lookup};
use attribution::rules::expiry::{ExpiryFloor, Needed};
use attribution::rules::policy::Policy;
use foldhash::fast::FixedState;

use floor::{ExpiryRecords, RetainedFloor};

/// The broker time up to which everything is consumed. It only grows.
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

/// Per app, how long its facts are kept, by which time that is measured, and what has expired before.
#[derive(Debug, Clone, Default)]
pub struct Expiry {
    apps: Arc<HashMap<Pid, Kept, FixedState>>,
    until: ConsumedUntil,
    held: Arc<OnceLock<HashMap<Pid, ExpiryFloor, FixedState>>>,
}

/// How long the state of an app is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    pub needed: Needed,
    /// How long rows are kept; `None`: for ever.
    pub retention_ms: Option<u64>,
}

impl Kept {
    /// What has expired once all is consumed up to a time.
    pub fn expired(&self, until: EventTime) -> ExpiryFloor {
        self.needed.expired(until, self.retention_ms)
    }
}

impl Expiry {
    /// Where an app has no horizon its facts are kept as long as its rows are, and for ever where
    /// `retention_ms` is none. So are those of apps that the policy does not know.
    pub fn new(policy: &Policy, retention_ms: impl Fn(Pid) -> Option<u64>) -> Self {
        let kept = policy.apps().filter_map(|app| {
            let retention_ms = retention_ms(app.pid);
            let late_ms = app.correction_horizon_ms.or(retention_ms)?;
            let needed = Needed::new(policy, app, late_ms);
            Some((app.pid, Kept { needed, retention_ms }))
        });
        Self { apps: Arc::new(kept.collect()), ..Self::default() }
    }

    /// Takes what is held of each app, once, and before anything expires by these settings.
    pub fn hold(&self, noted: &ExpiryRecords) {
        let held = noted.iter().filter(|(_, noted)| noted.held != ExpiryFloor::default());
        // Called once, by who opens the store.
        let _ = self.held.set(held.map(|(pid, noted)| (*pid, noted.held)).collect());
    }

    pub fn held(&self, pid: Pid) -> ExpiryFloor {
        self.held.get().and_then(|held| held.get(&pid)).copied().unwrap_or_default()
    }

    /// What is held of apps of the settings, and by which of these, once all is consumed up to a time.
    pub fn held_back(&self, policy: &Policy, until: Option<EventTime>) -> Vec<RetainedFloor> {
        let Some(until) = until else { return Vec::new() };
        let held = self.held.get().into_iter().flatten();
        let known = held.filter(|(pid, _)| policy.app(**pid).is_some());
        known
            .filter_map(|(pid, held)| RetainedFloor::of(*pid, held, self.kept(*pid), until))
            .collect()
    }

    /// The apps of which anything expires.
    pub fn pids(&self) -> impl Iterator<Item = Pid> {
        self.apps.keys().copied()
    }

    pub fn kept(&self, pid: Pid) -> Option<Kept> {
        self.apps.get(&pid).copied()
    }

    pub fn until(&self) -> &ConsumedUntil {
        &self.until
    }

    /// The time before which facts of a family have expired.
    pub fn oldest(&self, pid: Pid, family: Family, lookback_ms: Option<u64>) -> EventTime {
        let [own, held] = self.both(pid).map(|of| of.oldest(family, lookback_ms));
        own.max(held)
    }

    /// The time before which homes of a family are gone.
    pub fn oldest_record(&self, pid: Pid, family: Family, lookback_ms: Option<u64>) -> EventTime {
        let [own, held] = self.both(pid).map(|of| of.oldest_record(family, lookback_ms));
        own.max(held)
    }

    /// The time of the oldest activation of which all is there that it was decided from.
    pub fn changeable_from(&self, pid: Pid) -> EventTime {
        let [own, held] = self.both(pid).map(|of| of.late);
        own.max(held)
    }

    /// By the settings, and by those before them.
    fn both(&self, pid: Pid) -> [ExpiryFloor; 2] {
        let own = self.until.get().zip(self.apps.get(&pid));
        let own = own.map(|(until, app)| app.expired(until)).unwrap_or_default();
        [own, self.held(pid)]
    }

    pub fn has_expired(&self, pid: Pid, record: &FactRecord) -> bool {
        let (family, lookback_ms) = kind(record);
        record.time() < self.oldest(pid, family, lookback_ms)
    }

    /// What is known by the identity of a home.
    pub fn known(&self, pid: Pid, record: Option<FactRecord>) -> Lookup {
        let Some(record) = record else { return Lookup::Missing };
        if !self.has_expired(pid, &record) {
            return Lookup::Found(record);
        }
        let (family, lookback_ms) = kind(&record);
        let is_gone = record.time() < self.oldest_record(pid, family, lookback_ms);
        if is_gone { Lookup::Missing } else { Lookup::Tombstone }
    }
}

fn kind(record: &FactRecord) -> (Family, Option<u64>) {
    match record {
        FactRecord::Touch(touch) => (Family::Touch, touch.lookback_ms),
        FactRecord::Activation(_) => (Family::Activation, None),
        FactRecord::Effect(_) => (Family::Effect, None),
    }
}
