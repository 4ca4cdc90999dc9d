//! Which rows are too old to show and to keep.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use attribution::event::EventTime;

/// The event time before which rows are neither shown nor kept.
#[derive(Debug, Clone)]
pub struct Retention {
    keep_ms: Option<u64>,
    oldest_ms: Arc<AtomicU64>,
}

impl Retention {
    /// `None` keeps all.
    pub fn new(keep_ms: Option<u64>) -> Self {
        Self { keep_ms, oldest_ms: Arc::default() }
    }

    pub fn update(&self, now: EventTime) {
        if let Some(keep_ms) = self.keep_ms {
            self.oldest_ms.store(now.minus(keep_ms).millis(), Ordering::Relaxed);
        }
    }

    pub fn oldest(&self) -> EventTime {
        EventTime::default().plus(self.oldest_ms.load(Ordering::Relaxed))
    }
}
