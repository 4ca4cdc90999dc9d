//! The devices that were looked up lately, each by a handle: the address of what was found has the
//! handle, and the id of the device is in no address. So one can go back to it, and reload it.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use dashmap::DashMap;

use crate::http::access::Caller;

/// Of each token; the oldest go first.
const KEPT_MAX: usize = 200;
const KEPT_FOR: Duration = Duration::from_secs(60 * 60);

/// A device, and where in its timeline the page begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lookup {
    pub kind: String,
    pub value: String,
    pub after: String,
}

/// By the id of the token: nobody else's handles lead anywhere.
#[derive(Debug, Default)]
pub(crate) struct Lookups(DashMap<Box<str>, VecDeque<Kept>>);

#[derive(Debug)]
struct Kept {
    handle: String,
    since: Instant,
    lookup: Lookup,
}

impl Lookups {
    /// Its handle.
    pub(super) fn keep(&self, caller: &Caller, lookup: Lookup, now: Instant) -> String {
        // Of a random key: a service that was started anew has others.
        let handle = format!("{:016x}", RandomState::new().hash_one(now));
        let mut own = self.0.entry(caller.name().into()).or_default();
        own.retain(|kept| kept.is_fresh(now));
        own.truncate(KEPT_MAX - 1);
        own.push_front(Kept { handle: handle.clone(), since: now, lookup });
        handle
    }

    /// What the handle is of, for an hour.
    pub(super) fn find(&self, caller: &Caller, handle: &str, now: Instant) -> Option<Lookup> {
        let own = self.0.get(caller.name())?;
        let found = own.iter().find(|kept| kept.handle == handle && kept.is_fresh(now));
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
    fn a_handle_is_good_for_an_hour_and_so_many_others() {
        let access = Access::new(&[], 1);
        let caller = access.known(&axum::http::HeaderMap::new()).unwrap();
        let (lookups, start) = (Lookups::default(), Instant::now());
        let device = |number: usize| Lookup { value: number.to_string(), ..Lookup::default() };
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
