//! The ids by which the touches and the activations of an app can match.
//!
//! Events may come in any order, so the hashes of all ids are kept until the end: 8 bytes for each id and event. They
//! are the keys of the store's index.

use std::collections::{BTreeMap, HashSet};

use attribution::facts::device_ids::{self, DeviceIds, Form, IdKind, IdValue, usable};
use attribution::facts::event::{Activation, TextPairs, Touch};
use attribution::facts::match_keys::{by_click_id, by_id};

/// Click ids, then each kind of device id.
const KINDS: usize = IdKind::ALL.len() + 1;
const CLICK_ID: usize = 0;

/// The ids of one app's touches and activations.
#[derive(Debug, Default)]
pub struct Meeting<'p> {
    touches: Side,
    activations: Side,
    /// The kind of each hash of the activations.
    kinds_of_activations: Vec<u8>,
    channels: BTreeMap<&'p str, u32>,
}

/// The touches, or the activations.
#[derive(Debug, Default)]
struct Side {
    /// Events with a usable raw value, and with a usable MD5, by kind.
    counts: [[u64; 2]; KINDS],
    /// Normalised ids in raw form, and in MD5 form, by kind.
    normalised: [[bool; 2]; KINDS],
    events: Vec<EventHashes>,
    /// The hashes of the first event, then those of the second, and so on.
    hashes: Vec<u64>,
}

#[derive(Debug)]
struct EventHashes {
    /// The channel of a touch.
    channel: u32,
    /// Their number.
    hashes: u32,
}

/// The outcome for an app.
#[derive(Debug, PartialEq, Eq)]
pub struct Met<'p> {
    pub kinds: Vec<KindCounts>,
    pub activations: SideCounts,
    /// The touches of each channel.
    pub channels: Vec<(&'p str, SideCounts)>,
}

/// The events that carry a kind of id.
#[derive(Debug, PartialEq, Eq)]
pub struct KindCounts {
    pub name: &'static str,
    /// Touches with a raw value, and with an MD5.
    pub touches: [u64; 2],
    pub activations: [u64; 2],
    /// Activations that share a value with a touch.
    pub matched: u64,
    /// Both sides carry the kind, but never in forms that can be equal.
    pub is_fault: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SideCounts {
    pub events: u64,
    /// Events without an id by which they can match.
    pub without_id: u64,
    /// Events with ids, of which the other side has none.
    pub unmatched: u64,
}

impl<'p> Meeting<'p> {
    pub fn add_touch(&mut self, touch: &Touch, channel: &'p str) {
        let next = u32::try_from(self.channels.len()).unwrap_or(u32::MAX);
        let channel = *self.channels.entry(channel).or_insert(next);
        let ids = DeviceIds::of_touch(touch.ids());
        self.touches.add(touch.click_id(), touch.ids(), &ids, channel, |_| {});
    }

    pub fn add_activation(&mut self, activation: &Activation) {
        let ids = DeviceIds::of_app_event(&activation.ids);
        let kinds = &mut self.kinds_of_activations;
        let add_kind = |kind| kinds.push(kind);
        let received = (&activation.ids).into();
        self.activations.add(&activation.click_id, received, &ids, 0, add_kind);
    }

    /// Compares the ids of all events.
    pub fn finish(&self) -> Met<'p> {
        let of_activations: HashSet<u64> = self.activations.hashes.iter().copied().collect();
        let mut met = HashSet::new();
        let mut channels: Vec<_> = self.channels.values().map(|_| SideCounts::default()).collect();
        for (event, hashes) in self.touches.iter() {
            let shared: Vec<_> =
                hashes.iter().copied().filter(|hash| of_activations.contains(hash)).collect();
            channels[event.channel as usize].add(hashes, !shared.is_empty());
            met.extend(shared);
        }
        let (activations, matched) = self.match_activations(&met);
        let by_channel = self.channels.iter();
        Met {
            kinds: self.kinds(matched),
            activations,
            channels: by_channel.map(|(name, index)| (*name, channels[*index as usize])).collect(),
        }
    }

    /// Returns the counts of the activations, and by kind of those that share a value with a touch.
    fn match_activations(&self, met: &HashSet<u64>) -> (SideCounts, [u64; KINDS]) {
        let mut counts = SideCounts::default();
        let mut matched = [0; KINDS];
        let mut kinds = self.kinds_of_activations.iter();
        for (_, hashes) in self.activations.iter() {
            let mut of_event = [false; KINDS];
            for (hash, kind) in hashes.iter().zip(kinds.by_ref()) {
                of_event[usize::from(*kind)] |= met.contains(hash);
            }
            counts.add(hashes, of_event.contains(&true));
            for (matched, is_matched) in matched.iter_mut().zip(of_event) {
                *matched += u64::from(is_matched);
            }
        }
        (counts, matched)
    }

    /// Returns the kinds that any event carries.
    fn kinds(&self, matched: [u64; KINDS]) -> Vec<KindCounts> {
        let counts = |kind: usize| {
            let [touches, activations] = [&self.touches, &self.activations];
            let [a, b] = [touches.normalised[kind], activations.normalised[kind]];
            let is_common = a.iter().zip(b).any(|(a, b)| *a && b);
            KindCounts {
                name: if kind == CLICK_ID { "click_id" } else { IdKind::ALL[kind - 1].name() },
                touches: touches.counts[kind],
                activations: activations.counts[kind],
                matched: matched[kind],
                is_fault: a.contains(&true) && b.contains(&true) && !is_common,
            }
        };
        let is_carried = |kind: &KindCounts| kind.touches != [0; 2] || kind.activations != [0; 2];
        (0..KINDS).map(counts).filter(is_carried).collect()
    }
}

impl Side {
    /// Adds an event. Calls `add_kind` with the kind of each of its hashes.
    fn add(
        &mut self,
        click_id: &str,
        received: TextPairs<'_>,
        ids: &DeviceIds,
        channel: u32,
        mut add_kind: impl FnMut(u8),
    ) {
        let before = self.hashes.len();
        let mut carried = [[false; 2]; KINDS];
        if let Some(click_id) = device_ids::click_id(click_id) {
            carried[CLICK_ID][0] = true;
            self.normalised[CLICK_ID][0] = true;
            self.hashes.push(by_click_id(click_id).0);
            add_kind(CLICK_ID as u8);
        }
        for (name, received) in received {
            let Some((kind, form)) = IdKind::parse(name) else { continue };
            if usable(kind, form, received).next().is_some() {
                carried[slot(kind)][usize::from(form == Form::Md5)] = true;
            }
        }
        for id in ids.iter() {
            let is_md5 = matches!(id.value, IdValue::Md5(_));
            self.normalised[slot(id.kind)][usize::from(is_md5)] = true;
            self.hashes.push(by_id(id).0);
            add_kind(slot(id.kind) as u8);
        }
        for (count, is_carried) in
            self.counts.as_flattened_mut().iter_mut().zip(carried.as_flattened())
        {
            *count += u64::from(*is_carried);
        }
        let hashes = u32::try_from(self.hashes.len() - before).unwrap_or(u32::MAX);
        self.events.push(EventHashes { channel, hashes });
    }

    /// Returns the events with their hashes.
    fn iter(&self) -> impl Iterator<Item = (&EventHashes, &[u64])> {
        let mut rest = &*self.hashes;
        self.events.iter().map(move |event| {
            let (hashes, others) = rest.split_at(event.hashes as usize);
            rest = others;
            (event, hashes)
        })
    }
}

impl SideCounts {
    fn add(&mut self, hashes: &[u64], is_matched: bool) {
        self.events += 1;
        self.without_id += u64::from(hashes.is_empty());
        self.unmatched += u64::from(!hashes.is_empty() && !is_matched);
    }
}

fn slot(kind: IdKind) -> usize {
    1 + kind as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use attribution::facts::event::{
        Device, EventTime, Pairs, Pid, Purpose, SpreadId, TouchFields, TouchKind,
    };

    fn pairs(ids: &[(&str, &str)]) -> Pairs {
        ids.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    fn touch(click_id: &str, ids: &[(&str, &str)]) -> Touch {
        let fields = TouchFields {
            pid: Pid(1),
            id: "#".into(),
            click_id: click_id.into(),
            kind: TouchKind::Click,
            purpose: Purpose::Ua,
            spreadid: SpreadId(7),
            time: EventTime::default(),
            lookback_ms: None,
            ids: pairs(ids),
            device: Device::default(),
            site: "".into(),
            params: Pairs::new(),
        };
        fields.into()
    }

    fn activation(click_id: &str, ids: &[(&str, &str)]) -> Activation {
        Activation {
            pid: Pid(1),
            id: "#".into(),
            time: EventTime::default(),
            install_begin_time: None,
            click_id: click_id.into(),
            ids: pairs(ids),
            device: Device::default(),
            app_version: "".into(),
            props: Pairs::new(),
        }
    }

    fn meet(touches: &[Touch], activations: &[Activation]) -> Met<'static> {
        let mut meeting = Meeting::default();
        activations.iter().for_each(|activation| meeting.add_activation(activation));
        touches.iter().for_each(|touch| meeting.add_touch(touch, "toutiao"));
        meeting.finish()
    }

    const RAW: &str = "868049039501257";
    const MD5: &str = "8d3ebd3654fb46a2832296669cf1b536";

    #[test]
    fn a_raw_id_meets_its_md5() {
        let touches = [touch("c-1", &[("imei_md5", MD5)]), touch("", &[("oaid", "0")])];
        let activations = [
            activation("", &[("imei", RAW)]),
            activation("", &[("imei", "868049039501258")]),
            activation("c-1", &[("imei", RAW), ("imei_md5", MD5)]),
            activation("__CLICKID__", &[]),
        ];
        let met = meet(&touches, &activations);
        let kind = |name, touches, activations, matched| KindCounts {
            name,
            touches,
            activations,
            matched,
            is_fault: false,
        };
        let expected = [kind("click_id", [1, 0], [1, 0], 1), kind("imei", [0, 1], [3, 1], 2)];
        assert_eq!(met.kinds, expected);
        assert_eq!(met.activations, SideCounts { events: 4, without_id: 1, unmatched: 1 });
        let of_channel = SideCounts { events: 2, without_id: 1, unmatched: 0 };
        assert_eq!(met.channels, [("toutiao", of_channel)]);
    }

    #[test]
    fn forms_that_cannot_be_equal_are_a_fault() {
        let is_fault = |of_touch: &str, of_activation: &str| {
            let touches = [touch("", &[(of_touch, MD5)])];
            meet(&touches, &[activation("", &[(of_activation, MD5)])]).kinds[0].is_fault
        };
        assert!(is_fault("idfv", "idfv_md5"));
        assert!(!is_fault("idfv", "idfv"));
        assert!(!is_fault("idfv_md5", "idfv"));
        assert!(!is_fault("oaid", "oaid_md5"));
    }
}
