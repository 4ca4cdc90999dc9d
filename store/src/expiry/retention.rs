//! Retention of rows.
//!
//! The rows of an app expire in whole hours of event time. While a store is open, the cutoff never moves backwards,
//! even if the clock does. It is stored, because counts exclude expired rows. A longer setting shows again those rows
//! that no compaction has removed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use attribution::facts::event::{EventTime, Pid};
use foldhash::fast::FixedState;

use crate::layout::hourly_counts::hour_start;

/// The cutoff of each app: rows with an earlier event time are neither returned nor kept.
#[derive(Debug, Clone, Default)]
pub struct Retention(Arc<ArcSwap<HashMap<Pid, AtomicU64, FixedState>>>);

impl Retention {
    /// Sets the cutoffs of all apps, when the store is opened and when apps are added. Only the thread that advances
    /// them may call this. Rows of other apps, and all rows before the first call, are kept.
    pub fn start(&self, apps: impl IntoIterator<Item = (Pid, EventTime)>) {
        let oldest = |(pid, time): (Pid, EventTime)| (pid, AtomicU64::new(time.millis()));
        self.0.store(Arc::new(apps.into_iter().map(oldest).collect()));
    }

    /// Moves the cutoff of an app forward.
    pub fn advance(&self, pid: Pid, oldest: EventTime) {
        if let Some(app) = self.0.load().get(&pid) {
            app.fetch_max(oldest.millis(), Ordering::Relaxed);
        }
    }

    pub fn oldest(&self, pid: Pid) -> EventTime {
        let apps = self.0.load();
        let oldest = apps.get(&pid).map_or(0, |oldest| oldest.load(Ordering::Relaxed));
        EventTime::default().plus(oldest)
    }
}

/// The cutoff of rows that are kept for `keep_ms` by the clock of [`clock`]; 1970 if they are kept forever.
pub fn cutoff(keep_ms: Option<u64>, clock: EventTime) -> EventTime {
    keep_ms.map_or(EventTime::default(), |keep_ms| hour_start(clock.minus(keep_ms)))
}

/// The time by which age is measured: the earlier of the machine's time and the low watermark, so that a machine whose
/// clock is ahead removes no rows.
pub fn clock(now: EventTime, consumed_until: Option<EventTime>) -> EventTime {
    consumed_until.map_or(now, |until| until.min(now))
}
