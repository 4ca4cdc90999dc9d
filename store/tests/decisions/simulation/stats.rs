//! The record of a run: counts of events, and one hash of all steps.

use std::collections::BTreeMap;
use std::fmt;

/// The number of events by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats(BTreeMap<&'static str, u64>);

impl Stats {
    pub fn count(&mut self, event: &'static str) {
        self.add(event, 1);
    }

    pub fn add(&mut self, event: &'static str, times: u64) {
        *self.0.entry(event).or_default() += times;
    }

    pub fn count_of(&self, event: &str) -> u64 {
        self.0.get(event).copied().unwrap_or_default()
    }

    pub fn add_all(&mut self, other: &Self) {
        other.0.iter().for_each(|(event, times)| self.add(event, *times));
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(event, times)| writeln!(out, "{times:>12}  {event}"))
    }
}

/// All steps, in order.
#[derive(Debug, Clone)]
pub struct Trace {
    hash: u64,
    /// True if each step is printed too.
    is_printed: bool,
}

impl Trace {
    pub fn new(is_printed: bool) -> Self {
        Self { hash: 0, is_printed }
    }

    /// Adds a step of a worker, with two numbers such as a key and its outcome.
    pub fn note(&mut self, (tick, worker): (u64, usize), step: &'static str, numbers: [u64; 2]) {
        let name = step.bytes().fold(0, |hash: u64, byte| hash.rotate_left(5) ^ u64::from(byte));
        for part in [tick, worker as u64, name, numbers[0], numbers[1]] {
            self.hash = (self.hash.rotate_left(5) ^ part).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        if self.is_printed {
            eprintln!("{tick:>7} worker {worker} {step} {:x} {}", numbers[0], numbers[1]);
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }
}
