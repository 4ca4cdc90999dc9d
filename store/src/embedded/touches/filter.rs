//! A filter in memory of the keys of a table of touches, so that a search does not ask tables without the key.
//!
//! It consists of split-block Bloom filters, as in Parquet: a key sets eight bits in one block of 32 bytes, so a check
//! reads one cache line. A filter that is full gets another one, as large as all before. Without memory for it, or
//! before all keys of the table are in it, the filter says of every key that it may exist. It never forgets a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;
use xxhash_rust::xxh3::xxh3_64;

use crate::layout::key::{FACT_PREFIX_BYTES, Key};

/// About one key in 200 is wrongly said to exist.
const BITS_PER_KEY: usize = 12;
const KEYS_MIN: usize = 64 << 10;
const WORDS: usize = 4;
const BLOCK_BYTES: usize = WORDS * size_of::<u64>();
/// Odd constants that choose a bit for each half of a word, those of Parquet's specification.
const SALT: [[u32; 2]; WORDS] = [
    [0x47b6_137b, 0x4497_4d91],
    [0x8824_ad5b, 0xa2b7_289d],
    [0x7054_95c7, 0x2df1_424b],
    [0x9efc_4947, 0x5c6b_fb31],
];

/// What filters know of a key: a hash of its id or match key and its app, and its two bits in each word of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash {
    hash: u64,
    bits: [u64; WORDS],
}

impl KeyHash {
    pub fn of(key: &Key) -> Self {
        let hash = xxh3_64(&key[..FACT_PREFIX_BYTES]);
        let bit = |salt: u32| 1_u64 << ((hash as u32).wrapping_mul(salt) >> 27);
        Self { hash, bits: SALT.map(|[first, second]| bit(first) | bit(second) << 32) }
    }
}

/// The memory of all filters of a store.
#[derive(Debug, Default)]
pub struct FilterMemory {
    used: AtomicUsize,
    max: AtomicUsize,
}

impl FilterMemory {
    pub fn set_max(&self, bytes: usize) {
        self.max.store(bytes, Ordering::Relaxed);
    }

    /// A refused reservation takes nothing, not even for a moment, so it cannot be the reason to refuse another one.
    fn reserve(&self, bytes: usize) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        let reserved = |used: usize| used.checked_add(bytes).filter(|used| *used <= max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserved).is_ok()
    }

    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[derive(Default)]
#[repr(align(32))]
struct Block([AtomicU64; WORDS]);

struct Layer {
    blocks: Box<[Block]>,
    keys_max: usize,
    keys: AtomicUsize,
    memory: Arc<FilterMemory>,
}

type Layers = Arc<[Arc<Layer>]>;

/// Filters of one table; shared by the writer, which adds keys, and readers.
pub struct KeyFilter {
    /// Empty without memory.
    layers: RwLock<Layers>,
    is_complete: AtomicBool,
    memory: Arc<FilterMemory>,
}

/// The present filters of a table, for any number of checks. By default every key may exist.
#[derive(Default)]
pub struct FilterView(Option<Layers>);

impl KeyFilter {
    /// The filter of a new table, which has no keys yet and will have about this many.
    pub fn of_new_table(memory: &Arc<FilterMemory>, keys: usize) -> Self {
        Self { is_complete: AtomicBool::new(true), ..Self::incomplete(memory, keys) }
    }

    /// The filter of a table whose keys are added later, about this many.
    pub fn incomplete(memory: &Arc<FilterMemory>, keys: usize) -> Self {
        let first = Layer::new(keys.max(KEYS_MIN), memory).map(Arc::new);
        Self {
            layers: RwLock::new(first.into_iter().collect()),
            is_complete: AtomicBool::new(false),
            memory: Arc::clone(memory),
        }
    }

    /// All keys of the table have been added.
    pub fn complete(&self) {
        self.is_complete.store(true, Ordering::Release);
    }

    pub fn add(&self, key: KeyHash) {
        let layers = self.layers.read();
        if layers.iter().any(|layer| layer.may_contain(key)) {
            return;
        }
        let Some(last) = layers.last() else { return };
        last.add(key);
        if last.keys.fetch_add(1, Ordering::Relaxed) + 1 >= last.keys_max {
            let full = Arc::clone(last);
            drop(layers);
            self.grow(&full);
        }
    }

    /// About how many keys the table has; 0 if there is no memory for the filter.
    pub fn keys(&self) -> usize {
        self.layers.read().iter().map(|layer| layer.keys.load(Ordering::Relaxed)).sum()
    }

    pub fn view(&self) -> FilterView {
        let layers = self.layers.read();
        let is_usable = self.is_complete.load(Ordering::Acquire) && !layers.is_empty();
        FilterView(is_usable.then(|| Arc::clone(&layers)))
    }

    /// Adds a filter after the full one, unless another thread has done so.
    fn grow(&self, full: &Arc<Layer>) {
        let mut layers = self.layers.write();
        if !layers.last().is_some_and(|last| Arc::ptr_eq(last, full)) {
            return;
        }
        let keys = layers.iter().map(|layer| layer.keys_max).sum();
        *layers = match Layer::new(keys, &self.memory) {
            Some(layer) => layers.iter().cloned().chain([Arc::new(layer)]).collect(),
            None => Layers::default(),
        };
    }
}

impl FilterView {
    /// False if the table has no such key.
    pub fn may_contain(&self, key: KeyHash) -> bool {
        self.0.as_ref().is_none_or(|layers| layers.iter().any(|layer| layer.may_contain(key)))
    }
}

impl Layer {
    /// `None` without memory.
    fn new(keys_max: usize, memory: &Arc<FilterMemory>) -> Option<Self> {
        let count = keys_max.checked_mul(BITS_PER_KEY)?.div_ceil(8 * BLOCK_BYTES);
        memory.reserve(count * BLOCK_BYTES).then(|| Self {
            blocks: std::iter::repeat_with(Block::default).take(count).collect(),
            keys_max,
            keys: AtomicUsize::new(0),
            memory: Arc::clone(memory),
        })
    }

    fn add(&self, key: KeyHash) {
        for (word, bits) in self.block(key).0.iter().zip(key.bits) {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }

    /// Has no branch that depends on the words, so that the processor loads those of the next key meanwhile.
    fn may_contain(&self, key: KeyHash) -> bool {
        let ([a, b, c, d], [e, f, g, h]) = (&self.block(key).0, key.bits);
        let missing = |word: &AtomicU64, bits: u64| bits & !word.load(Ordering::Relaxed);
        missing(a, e) | missing(b, f) | missing(c, g) | missing(d, h) == 0
    }

    fn block(&self, key: KeyHash) -> &Block {
        let index = ((key.hash >> 32) * self.blocks.len() as u64) >> 32;
        &self.blocks[index as usize]
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        self.memory.release(self.blocks.len() * BLOCK_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn memory(bytes: usize) -> Arc<FilterMemory> {
        let memory = FilterMemory::default();
        memory.set_max(bytes);
        Arc::new(memory)
    }

    fn hash(number: u64) -> KeyHash {
        let mut key = Key::default();
        key[..8].copy_from_slice(&number.to_be_bytes());
        KeyHash::of(&key)
    }

    #[test]
    fn no_key_is_forgotten_and_few_others_are_found() {
        let filter = KeyFilter::of_new_table(&memory(1 << 20), 0);
        let keys = 5 * KEYS_MIN as u64;
        (0..keys).for_each(|number| filter.add(hash(number)));
        let view = filter.view();
        assert!((0..keys).all(|number| view.may_contain(hash(number))));
        let found = (keys..3 * keys).filter(|number| view.may_contain(hash(*number))).count();
        assert!(found * 25 < 2 * keys as usize, "{found} of {}", 2 * keys);
        assert!(filter.layers.read().len() > 1);
        assert!(filter.keys() * 100 > 97 * keys as usize, "{} of {keys}", filter.keys());
    }

    #[test]
    fn a_filter_of_the_expected_size_does_not_grow() {
        let keys = 5 * KEYS_MIN as u64;
        let filter = KeyFilter::of_new_table(&memory(1 << 20), 5 * KEYS_MIN);
        (0..keys - 1).for_each(|number| filter.add(hash(number)));
        assert_eq!(filter.layers.read().len(), 1);
        let view = filter.view();
        let found = (keys..keys + 10_000).filter(|number| view.may_contain(hash(*number))).count();
        assert!(found < 100, "{found} of 10,000");
    }

    #[test]
    fn the_hash_covers_the_app_and_not_the_time() {
        let mut key = Key::default();
        let hash = KeyHash::of(&key);
        key[23] = 1;
        assert_eq!(KeyHash::of(&key), hash);
        key[11] = 1;
        assert_ne!(KeyHash::of(&key), hash);
    }

    #[test]
    fn every_key_may_exist_until_all_were_added() {
        let filter = KeyFilter::incomplete(&memory(1 << 20), 10);
        assert!(filter.view().may_contain(hash(1)));
        filter.add(hash(2));
        filter.complete();
        assert!(!filter.view().may_contain(hash(1)));
        assert!(filter.view().may_contain(hash(2)));
    }

    #[test]
    fn every_key_may_exist_without_memory() {
        let none = memory(0);
        let filter = KeyFilter::of_new_table(&none, 0);
        filter.add(hash(2));
        assert!(filter.view().may_contain(hash(1)));
        // Enough for the first filter only.
        let little = memory(KEYS_MIN * BITS_PER_KEY / 8);
        let filter = KeyFilter::of_new_table(&little, 0);
        assert!(!filter.view().may_contain(hash(1)));
        (0..2 * KEYS_MIN as u64).for_each(|number| filter.add(hash(number)));
        assert!(filter.view().may_contain(hash(u64::MAX)));
        assert_eq!(little.used.load(Ordering::Relaxed), 0, "its memory is free again");
    }

    #[test]
    fn a_refused_reservation_does_not_hinder_others() {
        let memory = memory(100);
        let is_done = AtomicBool::new(false);
        let refused = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    assert!(!memory.reserve(101));
                }
            });
            let is_refused = |_: &u32| {
                let is_refused = !memory.reserve(1);
                if !is_refused {
                    memory.release(1);
                }
                is_refused
            };
            let refused = (0..1_000_000).filter(is_refused).count();
            is_done.store(true, Ordering::Relaxed);
            refused
        });
        assert_eq!(refused, 0);
        assert_eq!(memory.used.load(Ordering::Relaxed), 0);
    }
}
