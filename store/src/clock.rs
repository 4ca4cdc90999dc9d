//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use attribution::facts::event::EventTime;

/// The machine's time. Only rates and retention use it; no decision depends on it.
pub fn now() -> EventTime {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    i64::try_from(millis).ok().and_then(EventTime::from_millis).unwrap_or_default()
}
