//! What happened in a run: counted, and as one hash that is another if anything is.

use std::collections::BTreeMap;
use std::fmt;

/// How often each thing happened, by its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    pub fn count(&mut self, what: &'static str) {
        self.add(what, 1);
    }

    pub fn add(&mut self, what: &'static str, times: u64) {
        *self.0.entry(what).or_default() += times;
    }

    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    pub fn add_all(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, times)| self.add(what, *times));
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(what, times)| writeln!(out, "{times:>12}  {what}"))
    }
}

/// Everything that happened, in its order.
#[derive(Debug, Clone)]
pub struct Trace {
    hash: u64,
    /// Whether each is printed too.
    is_told: bool,
}

impl Trace {
    pub fn new(is_told: bool) -> Self {
        Self { hash: 0, is_told }
    }

    /// Who did what, of which key, and what came of it.
    pub fn note(&mut self, (tick, who): (u64, usize), what: &'static str, numbers: [u64; 2]) {
        let name = what.bytes().fold(0, |hash: u64, byte| hash.rotate_left(5) ^ u64::from(byte));
        for part in [tick, who as u64, name, numbers[0], numbers[1]] {
            self.hash = (self.hash.rotate_left(5) ^ part).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        if self.is_told {
            eprintln!("{tick:>7} worker {who} {what} {:x} {}", numbers[0], numbers[1]);
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }
}
