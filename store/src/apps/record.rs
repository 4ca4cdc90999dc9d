//! The location of each app's rows: their first partition, the fanout, and the cutoff of retention.

use std::collections::BTreeMap;
use std::sync::Arc;

use attribution::facts::event::{EventTime, Pid};
use attribution::rules::policy::DAY_MS;
use parking_lot::RwLock;

use crate::layout::codec::{Input, event_time};
use crate::layout::key;

/// How far ahead of this machine's clock a stored time may be.
pub const CLOCK_OFF_MS: u64 = DAY_MS;

/// The stored record of an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct App {
    /// The first partition, by the key that the app had when it was first seen.
    pub base: u16,
    /// The fanout of rows that are written now, as a power of two.
    pub fanout_bits: u8,
    /// The greatest fanout ever, which scans read.
    pub fanout_bits_max: u8,
    /// Rows before this time have expired.
    pub oldest: EventTime,
    /// The maximum of `oldest` ever. It is later than `oldest` after retention became longer; rows between the two may
    /// have been removed.
    pub reached: EventTime,
}

impl App {
    pub fn new(base: u16) -> Self {
        let oldest = EventTime::default();
        Self { base, fanout_bits: 0, fanout_bits_max: 0, oldest, reached: oldest }
    }

    /// Moves the time before which rows have expired, forward or back.
    pub fn set_oldest(&mut self, oldest: EventTime) {
        self.oldest = oldest;
        self.reached = self.reached.max(oldest);
    }

    /// Sets the fanout of new rows.
    pub fn set_fanout_bits(&mut self, fanout_bits: u8) {
        self.fanout_bits = fanout_bits;
        self.fanout_bits_max = self.fanout_bits_max.max(fanout_bits);
    }

    /// All partitions that may contain rows, each once.
    pub fn partitions(&self, of: u16) -> impl Iterator<Item = u16> {
        key::fanout_partitions(self.base, self.fanout_bits_max.min(fanout_bits_limit(of)), of)
    }

    /// False for a damaged record: the partitions do not fit, or `oldest` is in the future.
    pub fn is_possible(&self, partitions: u16, now: EventTime) -> bool {
        self.base < partitions
            && self.fanout_bits <= self.fanout_bits_max
            && self.fanout_bits_max <= fanout_bits_limit(partitions)
            && self.oldest <= now.plus(CLOCK_OFF_MS)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut value = self.base.to_be_bytes().to_vec();
        value.extend([self.fanout_bits, self.fanout_bits_max]);
        value.extend(self.oldest.millis().to_be_bytes());
        value.extend(self.reached.millis().to_be_bytes());
        value
    }

    /// `None` if the bytes are not a record.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let mut input = Input::new(value);
        let base = u16::from_be_bytes([input.byte().ok()?, input.byte().ok()?]);
        let (fanout_bits, fanout_bits_max) = (input.byte().ok()?, input.byte().ok()?);
        let mut time = || event_time(input.u64().ok()?);
        let (oldest, reached) = (time()?, time()?);
        input.end().ok()?;
        (fanout_bits <= fanout_bits_max && fanout_bits_max < 16).then_some(Self {
            base,
            fanout_bits,
            fanout_bits_max,
            oldest,
            reached,
        })
    }
}

/// The greatest fanout for a number of partitions, as a power of two: buckets need distinct partitions.
pub fn fanout_bits_limit(partitions: u16) -> u8 {
    partitions.checked_ilog2().unwrap_or(0) as u8
}

/// The apps of an open store, which the writer and readers share.
#[derive(Debug, Clone, Default)]
pub struct Apps(Arc<RwLock<BTreeMap<Pid, App>>>);

impl Apps {
    pub fn of(&self, pid: Pid) -> Option<App> {
        self.0.read().get(&pid).copied()
    }

    pub fn all(&self) -> BTreeMap<Pid, App> {
        self.0.read().clone()
    }

    pub fn put(&self, pid: Pid, app: App) {
        self.0.write().insert(pid, app);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_cannot_be_valid_are_detected() {
        let app = App::new(7);
        let now = EventTime::default();
        let oldest = now.plus(CLOCK_OFF_MS);
        assert!(App { oldest, ..app }.is_possible(8, now));
        assert!(!App { oldest: oldest.plus(1), ..app }.is_possible(8, now));
    }
}
