//! Which rows are too old to show and to keep.
//!
//! Rows go by whole hours of event time, app by app. While a store is open they only go further,
//! even if the clock steps back; how far is kept with the store, because its figures are without
//! them. A longer setting shows again what no compaction has left out yet.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use attribution::facts::event::{EventTime, Pid};
use foldhash::fast::FixedState;

use crate::layout::hourly_counts::hour_start;

/// The event time of each app before which its rows are neither shown nor kept.
#[derive(Debug, Clone, Default)]
pub struct Retention(Arc<OnceLock<HashMap<Pid, AtomicU64, FixedState>>>);

impl Retention {
    /// Names the apps, once, with how far the rows of each have gone. Until then all are kept, and
    /// so are those of apps that are not named.
    pub fn start(&self, apps: impl IntoIterator<Item = (Pid, EventTime)>) {
        let oldest = |(pid, time): (Pid, EventTime)| (pid, AtomicU64::new(time.millis()));
        // Called once, by who opens the store.
        let _ = self.0.set(apps.into_iter().map(oldest).collect());
    }

    /// An app's rows before a time are gone.
    pub fn advance(&self, pid: Pid, oldest: EventTime) {
        if let Some(app) = self.0.get().and_then(|apps| apps.get(&pid)) {
            app.fetch_max(oldest.millis(), Ordering::Relaxed);
        }
    }

    pub fn oldest(&self, pid: Pid) -> EventTime {
        let app = self.0.get().and_then(|apps| apps.get(&pid));
        EventTime::default().plus(app.map_or(0, |oldest| oldest.load(Ordering::Relaxed)))
    }
}

/// How far rows that are kept so long have gone, by the clock of [`clock`].
pub fn gone_before(keep_ms: Option<u64>, clock: EventTime) -> EventTime {
    keep_ms.map_or(EventTime::default(), |keep_ms| hour_start(clock.minus(keep_ms)))
}

/// The time by which age is measured: the machine's or, where that is earlier, the broker's up to
/// which everything is consumed. So a machine whose clock is ahead takes no rows away.
pub fn clock(now: EventTime, consumed_until: Option<EventTime>) -> EventTime {
    consumed_until.map_or(now, |until| until.min(now))
}
