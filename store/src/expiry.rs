//! Which facts nothing depends on any more.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use attribution::event::{EventTime, Family, Pid};
use attribution::expiry::Needed;
use attribution::ledger::Home;
use attribution::policy::Policy;
use foldhash::fast::FixedState;

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

/// Per app, how long its facts are kept, and by which time that is measured.
#[derive(Debug, Clone, Default)]
pub struct Expiry {
    apps: Arc<HashMap<Pid, Needed, FixedState>>,
    until: ConsumedUntil,
}

impl Expiry {
    /// Where an app has no horizon its facts are kept as long as rows are, and for ever where
    /// `retention_ms` is none. So are those of apps that the policy does not know.
    pub fn new(policy: &Policy, retention_ms: Option<u64>) -> Self {
        let needed = policy.apps().filter_map(|app| {
            let late_ms = app.correction_horizon_ms.or(retention_ms)?;
            Some((app.pid, Needed::new(policy, app, late_ms)))
        });
        Self { apps: Arc::new(needed.collect()), until: ConsumedUntil::default() }
    }

    pub fn until(&self) -> &ConsumedUntil {
        &self.until
    }

    /// The time before which facts of a family have expired.
    pub fn oldest(&self, pid: Pid, family: Family, lookback_ms: Option<u64>) -> EventTime {
        match (self.until.get(), self.apps.get(&pid)) {
            (Some(until), Some(needed)) => needed.oldest(family, lookback_ms, until),
            _ => EventTime::default(),
        }
    }

    pub fn has_expired(&self, pid: Pid, home: &Home) -> bool {
        let (family, lookback_ms) = match home {
            Home::Touch(touch) => (Family::Touch, touch.lookback_ms),
            Home::Activation(_) => (Family::Activation, None),
            Home::Effect(_) => (Family::Effect, None),
        };
        home.time() < self.oldest(pid, family, lookback_ms)
    }
}
