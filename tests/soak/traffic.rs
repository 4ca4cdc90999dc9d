//! The traffic of the soak. In every tick some devices start, and later click, activate and pay, each in a different
//! way. The seed determines the traffic, so that any part can be generated again.
//!
//! Time is counted in ticks. Broker timestamps of records are those of their ticks, so that days pass in half an hour.

use fastrand::Rng;
use testbed::kafka::Message;
use testbed::traffic::{Family, bad_line};

use crate::device::{Device, STAGES, oaid};

/// Apps of different size; the first has half of the traffic. Each of three partitions has at least one of them.
pub const APPS: [&str; 5] = ["app-0", "app-1", "app-2", "app-3", "app-4"];
/// Index of the app with probabilistic matching, which has devices without ids.
pub const PROBABILISTIC: usize = 1;
/// The app of the markers.
pub const MARKED: &str = APPS[0];

/// 2025-03-10T00:00:00Z.
pub const START_MS: u64 = 1_741_564_800_000;
pub const MINUTE_MS: u64 = 60_000;
pub const HOUR_MS: u64 = 60 * MINUTE_MS;

/// Maximum age of an event on which a row of this traffic depends: the longest chain is an effect after a reinstall,
/// which is 13 hours after the install.
pub const MEMORY_MS: u64 = 26 * HOUR_MS;

/// Every fifth tick has a marker.
const MARKED_TICK: u64 = 5;

#[derive(Debug, Clone)]
pub struct Traffic {
    pub seed: u64,
    /// Simulated time between two ticks.
    pub step_ms: u64,
    /// Number of devices that start in a tick.
    pub devices: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub family: Family,
    pub app: usize,
    /// `None` is a record without a value.
    pub line: Option<String>,
    pub becomes: Becomes,
}

/// How adtrail counts a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Becomes {
    Fact,
    /// The same event again, with the same or other content.
    Repeat,
    DeadLetter,
    Nothing,
}

impl Sent {
    pub fn message(&self, time_ms: u64) -> Message {
        let value = self.line.clone().map(String::into_bytes);
        Message { value, ..Message::new(APPS[self.app], "") }.at(time_ms.cast_signed())
    }

    /// True if `adtrail replay` gets the record, too. It does not get events that are too late, since it would accept
    /// them.
    pub fn is_replayed(&self) -> bool {
        matches!(self.becomes, Becomes::Fact | Becomes::Repeat)
    }
}

impl Traffic {
    /// Returns the broker time of a tick.
    pub fn time_ms(&self, tick: u64) -> u64 {
        START_MS + tick * self.step_ms
    }

    /// Returns the first tick at or after a time.
    pub fn tick_of(&self, time_ms: u64) -> u64 {
        time_ms.saturating_sub(START_MS).div_ceil(self.step_ms)
    }

    pub fn records(&self, tick: u64) -> Vec<Sent> {
        let mut sent = Vec::new();
        for (delay_ms, stage) in STAGES {
            // Devices that would have started before the first tick take part as well.
            let began = tick.cast_signed() - delay_ms.div_ceil(self.step_ms).cast_signed();
            for number in 0..self.devices {
                stage(&Device::new(self, began, number), &mut sent);
            }
        }
        let mut rng = Rng::with_seed(mixed(self.seed, tick, u64::MAX));
        for _ in 0..1 + self.devices / 50 {
            sent.push(bad(&mut rng));
        }
        if tick.is_multiple_of(10) {
            let becomes = Becomes::Nothing;
            sent.push(Sent { family: Family::Effect, app: 0, line: None, becomes });
        }
        sent.extend(self.marker(tick).map(|marker| marker.sent()));
        rng.shuffle(&mut sent);
        sent
    }

    pub fn marker(&self, tick: u64) -> Option<Marker> {
        tick.is_multiple_of(MARKED_TICK).then(|| Marker { tick, time_ms: self.time_ms(tick) })
    }
}

/// An activation whose export is awaited. Only other events of its tick are in the same millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    pub tick: u64,
    pub time_ms: u64,
}

impl Marker {
    pub fn event_id(&self) -> String {
        format!("m-{}", self.tick)
    }

    fn sent(&self) -> Sent {
        let (id, time_ms, oaid) = (self.event_id(), self.time_ms, oaid(self.tick));
        let line = format!(
            r#"{{"type":"activation","app":"{MARKED}","event_id":"{id}","time":{time_ms},"ids":{{"oaid":"{oaid}"}}}}"#
        );
        Sent { family: Family::Activation, app: 0, line: Some(line), becomes: Becomes::Fact }
    }
}

fn bad(rng: &mut Rng) -> Sent {
    const KINDS: [(Family, &str); 3] =
        [(Family::Touch, "click"), (Family::Activation, "activation"), (Family::Effect, "effect")];
    let (family, kind) = KINDS[rng.usize(..KINDS.len())];
    let app = rng.usize(..APPS.len());
    let line = Some(bad_line(rng, kind, APPS[app]));
    Sent { family, app, line, becomes: Becomes::DeadLetter }
}

/// Hashes three numbers.
pub fn mixed(seed: u64, first: u64, second: u64) -> u64 {
    let mut mixed = seed ^ first.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= second.wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed = (mixed ^ mixed >> 32).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 29
}

mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn traffic() -> Traffic {
        Traffic { seed: 1, step_ms: 48_000, devices: 20 }
    }

    /// Returns the records of a simulated day.
    fn day() -> impl Iterator<Item = Sent> {
        let traffic = traffic();
        (0..traffic.tick_of(START_MS + 24 * HOUR_MS)).flat_map(move |tick| traffic.records(tick))
    }

    #[test]
    fn every_event_is_first_a_fact_and_then_only_a_repeat() {
        let mut seen = BTreeSet::new();
        let mut kinds = BTreeMap::new();
        for sent in day() {
            *kinds.entry(format!("{:?} {:?}", sent.family, sent.becomes)).or_insert(0) += 1;
            if !sent.is_replayed() {
                continue;
            }
            let event: serde_json::Value = serde_json::from_str(&sent.line.unwrap()).unwrap();
            let id = event["event_id"].as_str().or(event["click_id"].as_str()).unwrap();
            let is_new = seen.insert((sent.family as u8, id.to_owned()));
            assert_eq!(is_new, sent.becomes == Becomes::Fact, "{id}");
        }
        let expected = [
            "Activation DeadLetter",
            "Activation Fact",
            "Activation Repeat",
            "Effect DeadLetter",
            "Effect Fact",
            "Effect Nothing",
            "Touch DeadLetter",
            "Touch Fact",
            "Touch Repeat",
        ];
        assert_eq!(kinds.keys().collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_tick_always_has_the_same_records() {
        let traffic = traffic();
        assert_eq!(traffic.records(700), traffic.records(700));
        assert_ne!(traffic.records(700), traffic.records(701));
        assert_ne!(traffic.records(700), Traffic { seed: 2, ..traffic.clone() }.records(700));
    }

    #[test]
    fn ticks_and_times_agree() {
        let traffic = traffic();
        for tick in [0, 1, 18_000] {
            assert_eq!(traffic.tick_of(traffic.time_ms(tick)), tick);
            assert_eq!(traffic.tick_of(traffic.time_ms(tick) + 1), tick + 1);
        }
    }
}
