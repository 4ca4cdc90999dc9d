//! Where a scan of the due index begins. Entries are deleted at its start all the time, and a scan has to skip what is
//! left of them, so it begins where the last one found the first entry.

use std::collections::BTreeMap;

use attribution::facts::event::EventTime;
use attribution::outbox::record::EndpointId;

/// How much earlier a scan begins, because a commit takes time.
const SLACK_MS: u64 = 5_000;
/// How often all entries are scanned, because a commit can take longer on a full disk.
const FULL_SCAN_MS: u64 = 60_000;

/// Where the scans of each endpoint begin.
#[derive(Debug, Clone, Default)]
pub struct DueStarts(BTreeMap<EndpointId, DueStart>);

impl DueStarts {
    pub fn of(&mut self, endpoint: &EndpointId) -> &mut DueStart {
        self.0.entry(endpoint.clone()).or_default()
    }
}

#[derive(Debug, Clone, Default)]
pub struct DueStart {
    start: EventTime,
    /// When everything was last scanned; `None`: never.
    scanned: Option<EventTime>,
}

impl DueStart {
    /// Returns the time from which on entries are scanned.
    pub fn begin(&mut self, now: EventTime) -> EventTime {
        let elapsed = self.scanned.and_then(|scanned| now.since(scanned));
        if elapsed.is_none_or(|ms| ms >= FULL_SCAN_MS) {
            self.scanned = Some(now);
            self.start = EventTime::default();
        }
        self.start
    }

    /// Notes the first entry that was found; `None` if there is none up to `now`.
    pub fn found(&mut self, first: Option<EventTime>, now: EventTime) {
        self.start = first.unwrap_or(now).min(now).minus(SLACK_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_begins_at_the_first_entry_and_once_a_minute_at_the_beginning() {
        let at = |ms| EventTime::default().plus(1_000_000 + ms);
        let mut start = DueStart::default();
        assert_eq!(start.begin(at(0)), EventTime::default());
        start.found(Some(at(0).minus(500_000)), at(0));
        assert_eq!(start.begin(at(1)), at(0).minus(500_000 + SLACK_MS));
        start.found(None, at(1));
        assert_eq!(start.begin(at(2)), at(1).minus(SLACK_MS));
        assert_eq!(start.begin(at(FULL_SCAN_MS)), EventTime::default());
        start.found(None, at(FULL_SCAN_MS));
        // The clock was set back.
        assert_eq!(start.begin(at(0)), EventTime::default());
    }
}
