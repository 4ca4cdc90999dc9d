//! Which facts nothing depends on any more.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use attribution::event::{EventTime, Family, Pid};
use attribution::expiry::Needed;
use attribution::ledger::{Home, Known};
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
    apps: Arc<HashMap<Pid, Kept, FixedState>>,
    until: ConsumedUntil,
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    needed: Needed,
    /// How long rows are kept; `None`: for ever.
    retention_ms: Option<u64>,
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
        Self { apps: Arc::new(kept.collect()), until: ConsumedUntil::default() }
    }

    pub fn until(&self) -> &ConsumedUntil {
        &self.until
    }

    /// The time before which facts of a family have expired.
    pub fn oldest(&self, pid: Pid, family: Family, lookback_ms: Option<u64>) -> EventTime {
        match (self.until.get(), self.apps.get(&pid)) {
            (Some(until), Some(app)) => app.needed.oldest(family, lookback_ms, until),
            _ => EventTime::default(),
        }
    }

    /// The time before which homes of a family are gone. Those of activations and effects last as
    /// long as rows do, however little depends on them: an id that returns is not a second event.
    pub fn oldest_home(&self, pid: Pid, family: Family, lookback_ms: Option<u64>) -> EventTime {
        let oldest = self.oldest(pid, family, lookback_ms);
        if family == Family::Touch {
            return oldest;
        }
        let retention_ms = self.apps.get(&pid).and_then(|app| app.retention_ms);
        let row = match (self.until.get(), retention_ms) {
            (Some(until), Some(retention_ms)) => until.minus(retention_ms),
            _ => EventTime::default(),
        };
        oldest.min(row)
    }

    pub fn has_expired(&self, pid: Pid, home: &Home) -> bool {
        let (family, lookback_ms) = kind(home);
        home.time() < self.oldest(pid, family, lookback_ms)
    }

    /// What is known by the identity of a home.
    pub fn known(&self, pid: Pid, home: Option<Home>) -> Known {
        let Some(home) = home else { return Known::Nothing };
        if !self.has_expired(pid, &home) {
            return Known::Home(home);
        }
        let (family, lookback_ms) = kind(&home);
        let is_gone = home.time() < self.oldest_home(pid, family, lookback_ms);
        if is_gone { Known::Nothing } else { Known::Row }
    }
}

fn kind(home: &Home) -> (Family, Option<u64>) {
    match home {
        Home::Touch(touch) => (Family::Touch, touch.lookback_ms),
        Home::Activation(_) => (Family::Activation, None),
        Home::Effect(_) => (Family::Effect, None),
    }
}
