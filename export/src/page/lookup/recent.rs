//! The latest device lookups, each with a handle. The URL of a result has the handle instead of the device id, so
//! that the page can be reloaded and revisited.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use dashmap::DashMap;

use crate::http::access::Caller;

/// Lookups of each token; the oldest are dropped first.
const KEPT_MAX: usize = 200;
const KEPT_FOR: Duration = Duration::from_secs(60 * 60);

/// A device, and the cursor at which the page of its timeline begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeviceLookup {
    pub kind: String,
    pub value: String,
    pub after: String,
}

/// Lookups by the id of the token, which alone can use their handles.
#[derive(Debug, Default)]
pub(crate) struct DeviceLookups(DashMap<Box<str>, VecDeque<Kept>>);

#[derive(Debug)]
struct Kept {
    handle: String,
    since: Instant,
    lookup: DeviceLookup,
}

impl DeviceLookups {
    /// Stores a lookup and returns its handle.
    pub(super) fn keep(&self, caller: &Caller, lookup: DeviceLookup, now: Instant) -> String {
        // The hash key is random, so handles differ between processes.
        let handle = format!("{:016x}", RandomState::new().hash_one(now));
        let mut of_token = self.0.entry(caller.name().into()).or_default();
        of_token.retain(|kept| kept.is_fresh(now));
        of_token.truncate(KEPT_MAX - 1);
        of_token.push_front(Kept { handle: handle.clone(), since: now, lookup });
        handle
    }

    /// Returns the lookup of a handle, for an hour.
    pub(super) fn find(&self, caller: &Caller, handle: &str, now: Instant) -> Option<DeviceLookup> {
        let of_token = self.0.get(caller.name())?;
        let found = of_token.iter().find(|kept| kept.handle == handle && kept.is_fresh(now));
        found.map(|kept| kept.lookup.clone())
    }
}

impl Kept {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < KEPT_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;

    #[test]
    fn a_handle_is_valid_for_an_hour_or_until_newer_ones_replace_it() {
        let access = Access::new(&[], 1);
        let caller = access.known(&axum::http::HeaderMap::new()).unwrap();
        let (lookups, start) = (DeviceLookups::default(), Instant::now());
        let device =
            |number: usize| DeviceLookup { value: number.to_string(), ..DeviceLookup::default() };
        let keep = |number, now| lookups.keep(&caller, device(number), now);
        let found = |handle: &str, now| lookups.find(&caller, handle, now);
        let first = keep(0, start);
        assert_eq!(first.len(), 16);
        assert_eq!(found(&first, start + KEPT_FOR / 2), Some(device(0)));
        assert_eq!(found(&first, start + KEPT_FOR), None);
        assert_eq!(found("", start), None);
        let others: Vec<String> = (1..KEPT_MAX).map(|number| keep(number, start)).collect();
        assert_eq!(found(&first, start), Some(device(0)));
        keep(KEPT_MAX, start);
        assert_eq!(found(&first, start), None);
        assert_eq!(found(&others[0], start), Some(device(1)));
    }
}
