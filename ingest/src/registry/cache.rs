//! What is known of each schema, in bounded memory. Without a clock: `now` comes from outside.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::schema_key::SchemaKey;
use super::{Lookup, Unusable};

/// How much is remembered. A record names any schema it likes, so none of these may grow by what
/// records say.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Beyond it the one goes that was not used for longest; it is still on disk.
    pub ready_max: usize,
    /// Small entries, and many: what is forgotten here costs the registry a request.
    pub unusable_max: usize,
    /// Beyond it nothing more is asked for until something is settled; whoever waits comes again.
    pub waiting_max: usize,
    /// After this long what was unusable is asked for again.
    pub unusable_for: Duration,
}

pub struct Cache<T> {
    limits: Limits,
    ready: HashMap<SchemaKey, Ready<T>>,
    unusable: HashMap<SchemaKey, Refusal>,
    waiting: HashSet<SchemaKey>,
    /// Counts look-ups: the order of use.
    uses: u64,
}

struct Ready<T> {
    schema: Arc<T>,
    last_use: u64,
}

struct Refusal {
    why: Arc<Unusable>,
    until: Instant,
    /// Whoever asked is told once, however late it comes: else a slow one would ask for ever.
    was_told: bool,
}

/// What a look-up finds.
pub enum Sight<T> {
    Known(Lookup<T>),
    /// Not known and not asked for: now counted as waiting, and to be asked for.
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

    pub fn look_up(&mut self, key: SchemaKey, now: Instant) -> Sight<T> {
        self.uses += 1;
        if let Some(ready) = self.ready.get_mut(&key) {
            ready.last_use = self.uses;
            return Sight::Known(Lookup::Ready(ready.schema.clone()));
        }
        if let Some(refusal) = self.unusable.get_mut(&key) {
            if now < refusal.until || !refusal.was_told {
                refusal.was_told = true;
                return Sight::Known(Lookup::Unusable(refusal.why.clone()));
            }
            self.unusable.remove(&key);
        }
        if self.waiting.len() >= self.limits.waiting_max || !self.waiting.insert(key) {
            return Sight::Known(Lookup::Waiting);
        }
        Sight::New
    }

    /// What came of a key that was waiting.
    pub fn settle(&mut self, key: SchemaKey, outcome: Result<Arc<T>, Unusable>, now: Instant) {
        self.waiting.remove(&key);
        match outcome {
            Ok(schema) => {
                make_room(&mut self.ready, self.limits.ready_max, |ready| ready.last_use);
                self.uses += 1;
                self.ready.insert(key, Ready { schema, last_use: self.uses });
            }
            Err(why) => {
                let order = |refusal: &Refusal| (!refusal.was_told, refusal.until);
                make_room(&mut self.unusable, self.limits.unusable_max, order);
                let until = now + self.limits.unusable_for;
                self.unusable.insert(key, Refusal { why: Arc::new(why), until, was_told: false });
            }
        }
    }

    /// A key that nobody asks for any more: the next look-up asks anew.
    pub fn forget(&mut self, key: SchemaKey) {
        self.waiting.remove(&key);
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// Removes the least entry of a full map.
fn make_room<K: Hash + Eq + Copy, V, O: Ord>(
    map: &mut HashMap<K, V>,
    max: usize,
    order: impl Fn(&V) -> O,
) {
    if map.len() >= max
        && let Some(least) = map.iter().min_by_key(|(_, value)| order(value)).map(|(key, _)| *key)
    {
        map.remove(&least);
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
        unusable_for: Duration::from_secs(60),
    };

    fn unknown() -> Result<Arc<u32>, Unusable> {
        Err(Unusable { kind: UnusableKind::Unknown, reason: "no".into() })
    }

    #[track_caller]
    fn check(cache: &mut Cache<u32>, id: u32, now: Instant, expected: &str) {
        let found = match cache.look_up(SchemaKey::Id(id), now) {
            Sight::New => "new",
            Sight::Known(Lookup::Ready(_)) => "ready",
            Sight::Known(Lookup::Unusable(_)) => "unusable",
            Sight::Known(Lookup::Waiting) => "waiting",
        };
        assert_eq!(found, expected, "{id}");
    }

    #[test]
    fn each_is_asked_for_once() {
        let (mut cache, now) = (Cache::new(LIMITS), Instant::now());
        check(&mut cache, 1, now, "new");
        check(&mut cache, 1, now, "waiting");
        cache.settle(SchemaKey::Id(1), Ok(Arc::new(1)), now);
        check(&mut cache, 1, now, "ready");
        assert_eq!(cache.waiting(), 0);
    }

    #[test]
    fn no_more_wait_than_may() {
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
    fn the_longest_unused_goes() {
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
    fn what_is_unusable_is_asked_for_again_once_it_was_told() {
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
    fn of_the_unusable_the_first_told_goes() {
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
