//! The state of each schema, in bounded memory. Reads no clock: callers pass `now`.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::schema_key::SchemaKey;
use super::{SchemaLookup, Unusable};

/// The bounds of the cache. Records may name arbitrary schema keys, so each of its maps is bounded.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Beyond it, the least recently used schema is evicted; it is still on disk.
    pub ready_max: usize,
    /// Larger than `ready_max`, because entries are small and an evicted one costs another request.
    pub unusable_max: usize,
    /// Beyond it, no further key is fetched until one is settled; callers retry the lookup.
    pub waiting_max: usize,
    /// After this time an unusable schema is fetched again.
    pub unusable_ttl: Duration,
}

pub struct Cache<T> {
    limits: Limits,
    ready: HashMap<SchemaKey, Ready<T>>,
    unusable: HashMap<SchemaKey, UnusableEntry>,
    waiting: HashSet<SchemaKey>,
    /// Number of lookups so far; orders entries by their last use.
    uses: u64,
}

struct Ready<T> {
    schema: Arc<T>,
    last_use: u64,
}

struct UnusableEntry {
    reason: Arc<Unusable>,
    until: Instant,
    /// Each result is returned at least once, even after `until`: otherwise a slow caller would never get one.
    was_reported: bool,
}

/// The result of a lookup in the cache.
pub enum CacheLookup<T> {
    Known(SchemaLookup<T>),
    /// Neither known nor being fetched. It now counts as waiting, and the caller must fetch it.
    New,
}

impl<T> Cache<T> {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ready: HashMap::new(),
            unusable: HashMap::new(),
            waiting: HashSet::new(),
            uses: 0,
        }
    }

    pub fn look_up(&mut self, key: SchemaKey, now: Instant) -> CacheLookup<T> {
        self.uses += 1;
        if let Some(ready) = self.ready.get_mut(&key) {
            ready.last_use = self.uses;
            return CacheLookup::Known(SchemaLookup::Ready(ready.schema.clone()));
        }
        if let Some(entry) = self.unusable.get_mut(&key) {
            if now < entry.until || !entry.was_reported {
                entry.was_reported = true;
                return CacheLookup::Known(SchemaLookup::Unusable(entry.reason.clone()));
            }
            self.unusable.remove(&key);
        }
        if self.waiting.len() >= self.limits.waiting_max || !self.waiting.insert(key) {
            return CacheLookup::Known(SchemaLookup::Waiting);
        }
        CacheLookup::New
    }

    /// Stores the result for a key that was waiting.
    pub fn settle(&mut self, key: SchemaKey, outcome: Result<Arc<T>, Unusable>, now: Instant) {
        self.waiting.remove(&key);
        match outcome {
            Ok(schema) => {
                evict_if_full(&mut self.ready, self.limits.ready_max, |ready| ready.last_use);
                self.uses += 1;
                self.ready.insert(key, Ready { schema, last_use: self.uses });
            }
            Err(unusable) => {
                let order = |entry: &UnusableEntry| (!entry.was_reported, entry.until);
                evict_if_full(&mut self.unusable, self.limits.unusable_max, order);
                let until = now + self.limits.unusable_ttl;
                self.unusable.insert(
                    key,
                    UnusableEntry { reason: Arc::new(unusable), until, was_reported: false },
                );
            }
        }
    }

    /// Removes a key that is no longer being fetched: the next lookup returns `New`.
    pub fn forget(&mut self, key: SchemaKey) {
        self.waiting.remove(&key);
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// Removes the entry that is first in `order` if the map is full.
fn evict_if_full<K: Hash + Eq + Copy, V, O: Ord>(
    map: &mut HashMap<K, V>,
    max: usize,
    order: impl Fn(&V) -> O,
) {
    if map.len() >= max
        && let Some(first) = map.iter().min_by_key(|(_, value)| order(value)).map(|(key, _)| *key)
    {
        map.remove(&first);
    }
}

#[cfg(test)]
mod tests {
    use super::super::UnusableKind;
    use super::*;

    const LIMITS: Limits = Limits {
        ready_max: 2,
        unusable_max: 2,
        waiting_max: 3,
        unusable_ttl: Duration::from_secs(60),
    };

    fn unknown() -> Result<Arc<u32>, Unusable> {
        Err(Unusable { kind: UnusableKind::Unknown, reason: "no".into() })
    }

    #[track_caller]
    fn check(cache: &mut Cache<u32>, id: u32, now: Instant, expected: &str) {
        let found = match cache.look_up(SchemaKey::Id(id), now) {
            CacheLookup::New => "new",
            CacheLookup::Known(SchemaLookup::Ready(_)) => "ready",
            CacheLookup::Known(SchemaLookup::Unusable(_)) => "unusable",
            CacheLookup::Known(SchemaLookup::Waiting) => "waiting",
        };
        assert_eq!(found, expected, "{id}");
    }

    #[test]
    fn the_number_of_waiting_keys_is_bounded() {
        let (mut cache, now) = (Cache::new(LIMITS), Instant::now());
        for id in 0..3 {
            check(&mut cache, id, now, "new");
        }
        check(&mut cache, 3, now, "waiting");
        check(&mut cache, 4, now, "waiting");
        assert_eq!(cache.waiting(), 3);
        cache.settle(SchemaKey::Id(0), unknown(), now);
        check(&mut cache, 4, now, "new");
        cache.forget(SchemaKey::Id(4));
        check(&mut cache, 4, now, "new");
    }

    #[test]
    fn the_least_recently_used_schema_is_evicted() {
        let (mut cache, now) = (Cache::new(LIMITS), Instant::now());
        cache.settle(SchemaKey::Id(1), Ok(Arc::new(1)), now);
        cache.settle(SchemaKey::Id(2), Ok(Arc::new(2)), now);
        check(&mut cache, 1, now, "ready");
        cache.settle(SchemaKey::Id(3), Ok(Arc::new(3)), now);
        check(&mut cache, 1, now, "ready");
        check(&mut cache, 3, now, "ready");
        check(&mut cache, 2, now, "new");
    }

    #[test]
    fn an_unusable_schema_is_fetched_again_after_its_ttl_once_reported() {
        let (mut cache, now) = (Cache::new(LIMITS), Instant::now());
        let later = now + Duration::from_secs(60);
        cache.settle(SchemaKey::Id(1), unknown(), now);
        check(&mut cache, 1, now, "unusable");
        check(&mut cache, 1, later - Duration::from_millis(1), "unusable");
        check(&mut cache, 1, later, "new");
        cache.settle(SchemaKey::Id(2), unknown(), now);
        check(&mut cache, 2, later, "unusable");
        check(&mut cache, 2, later, "new");
    }

    #[test]
    fn unusable_schemas_that_were_reported_are_evicted_first() {
        let (mut cache, now) = (Cache::new(LIMITS), Instant::now());
        cache.settle(SchemaKey::Id(1), unknown(), now);
        cache.settle(SchemaKey::Id(2), unknown(), now + Duration::from_secs(1));
        check(&mut cache, 2, now, "unusable");
        cache.settle(SchemaKey::Id(3), unknown(), now);
        check(&mut cache, 1, now, "unusable");
        check(&mut cache, 3, now, "unusable");
        check(&mut cache, 2, now, "new");
    }
}
