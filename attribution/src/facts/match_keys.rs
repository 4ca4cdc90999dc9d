//! The index keys by which a fact is found from another one.
//!
//! A key is a hash, so equal keys are only a hint; [`super::matches`] compares the values. The keys of touches include
//! their class, so the newest click of a device is the first entry of one scan, however many impressions the device
//! has seen. Probabilistic keys of touches also include the kinds of their ids, to skip the touches of other devices
//! (possibly a million), which have an id of the same kind and cannot match.

use std::net::IpAddr;

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::addresses::public_address;
use super::device_ids::{self, DeviceId, DeviceIds, IdKindSet, IdValue};
use super::event::{
    Activation, Device, EventTime, Family, IdSpace, Pid, Purpose, Touch, TouchKind,
};
use super::identity::identity;
use super::matches::{device_model, user_agent};
use crate::facts::keys::{FactKey, MatchKey, MatchKeys};
use crate::ledger::index::IndexEntry;
use crate::rules::policy::DAY_MS;

/// A class of touches, which is part of their index keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TouchClass {
    pub kind: TouchKind,
    pub purpose: Purpose,
    /// The touch has its own `lookback_ms`.
    pub has_lookback: bool,
}

impl TouchClass {
    pub const COUNT: usize = 8;

    pub fn all() -> impl Iterator<Item = Self> {
        (0..8).map(Self::from_bits)
    }

    /// Returns the index of the class in [`TouchClass::all`].
    pub fn index(self) -> usize {
        self.bits().into()
    }

    pub fn of(touch: &Touch) -> Self {
        let has_lookback = touch.lookback_ms.is_some();
        Self { kind: touch.kind, purpose: touch.purpose, has_lookback }
    }

    fn bits(self) -> u8 {
        (self.kind as u8) << 2 | (self.purpose as u8) << 1 | u8::from(self.has_lookback)
    }

    fn from_bits(bits: u8) -> Self {
        let kind = if bits & 4 == 0 { TouchKind::Impression } else { TouchKind::Click };
        let purpose = if bits & 2 == 0 { Purpose::Ua } else { Purpose::Retargeting };
        Self { kind, purpose, has_lookback: bits & 1 != 0 }
    }
}

/// Touches of one class with the same kinds of ids. Under a probabilistic key they are one scan, so most touches that
/// contradict an activation are never read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProbabilisticClass {
    pub class: TouchClass,
    pub kinds: IdKindSet,
}

impl ProbabilisticClass {
    fn bits(self) -> u64 {
        u64::from(self.class.bits()) << 16 | u64::from(self.kinds.0)
    }

    /// Decodes a bucket marker of touches.
    pub fn of_marker(entry: &IndexEntry) -> Self {
        Self::of_tag(entry.fact.tag)
    }

    /// Decodes the tag of a bucket marker of touches.
    pub fn of_tag(tag: u64) -> Self {
        Self { class: TouchClass::from_bits((tag >> 16) as u8), kinds: IdKindSet(tag as u16) }
    }
}

/// Bucket length of markers. The time of a marker is the start of its day (UTC).
pub const BUCKET_MS: u64 = DAY_MS;

/// Returns the key of a fact record.
pub fn fact_key(space: impl Into<IdSpace>, pid: Pid, id: &str) -> FactKey {
    let space = space.into();
    let (id, tag) = identity(space, id).fact;
    FactKey { family: space.family(), id: MatchKey(id), pid, tag }
}

/// A touch with what its keys are derived from.
pub struct TouchKeys<'t> {
    pub touch: &'t Touch,
    pub ids: &'t DeviceIds,
    /// Its [`probabilistic_keys`], if its app matches by them.
    pub probabilistic: SmallVec<[MatchKey; 2]>,
}

impl<'t> TouchKeys<'t> {
    pub fn new(touch: &'t Touch, ids: &'t DeviceIds, probabilistic: bool) -> Self {
        let keys = probabilistic.then(|| probabilistic_keys(touch.device()));
        Self { touch, ids, probabilistic: keys.into_iter().flatten().collect() }
    }

    /// Returns the keys under which activations find the touch, besides its fact key.
    pub fn index(&self) -> MatchKeys {
        let class = self.class();
        let by_id = self.ids.iter().map(|id| touch_by_id(class.class, id));
        let by_probabilistic_key =
            self.probabilistic.iter().map(|key| touch_by_probabilistic_key(class, *key));
        by_id.chain(by_probabilistic_key).collect()
    }

    /// Returns the markers of the touch: they record its class under its probabilistic keys, per day.
    pub fn bucket_markers(&self) -> Vec<(MatchKey, IndexEntry)> {
        let Touch { pid, time, .. } = *self.touch;
        let marker = bucket_marker(Family::Touch, pid, time, self.class().bits());
        self.probabilistic.iter().map(|key| (bucket_markers(*key), marker)).collect()
    }

    fn class(&self) -> ProbabilisticClass {
        ProbabilisticClass { class: TouchClass::of(self.touch), kinds: self.ids.kinds() }
    }
}

/// Returns the keys under which activations find a touch, besides its fact key.
pub fn touch_index(touch: &Touch, ids: &DeviceIds, probabilistic: bool) -> MatchKeys {
    TouchKeys::new(touch, ids, probabilistic).index()
}

/// Returns the markers of a touch: they record its class under its probabilistic keys, per day.
pub fn touch_bucket_markers(touch: &Touch, ids: &DeviceIds) -> Vec<(MatchKey, IndexEntry)> {
    TouchKeys::new(touch, ids, true).bucket_markers()
}

fn bucket_marker(family: Family, pid: Pid, time: EventTime, tag: u64) -> IndexEntry {
    let time = time.minus(time.millis() % BUCKET_MS);
    IndexEntry { time, fact: FactKey { family, id: MatchKey(0), pid, tag } }
}

/// Returns the key of the markers for a probabilistic key.
pub fn bucket_markers(key: MatchKey) -> MatchKey {
    hash(KeySpace::BucketMarkers, 0, &key.0.to_be_bytes())
}

/// Returns the keys under which touches, other activations and effects find an activation.
pub fn activation_index(
    activation: &Activation,
    ids: &DeviceIds,
    probabilistic: bool,
) -> MatchKeys {
    let mut keys: MatchKeys = ids.iter().map(by_id).collect();
    keys.extend(device_ids::click_id(&activation.click_id).map(by_click_id));
    if probabilistic {
        let probabilistic = probabilistic_keys(activation.device.borrowed());
        keys.extend(probabilistic.map(|key| activation_by_probabilistic_key(ids.kinds(), key)));
    }
    keys
}

/// Returns the markers of an activation: they record the kinds of its ids under its probabilistic keys, per day.
pub fn activation_bucket_markers(
    activation: &Activation,
    ids: &DeviceIds,
) -> Vec<(MatchKey, IndexEntry)> {
    let kinds = u64::from(ids.kinds().0);
    let marker = bucket_marker(Family::Activation, activation.pid, activation.time, kinds);
    probabilistic_keys(activation.device.borrowed())
        .map(|key| (bucket_markers(key), marker))
        .collect()
}

/// Decodes a bucket marker of activations; returns the kinds of their ids.
pub fn marked_kinds(entry: &IndexEntry) -> IdKindSet {
    IdKindSet(entry.fact.tag as u16)
}

/// Returns the key of the touches of one class with a device id.
pub fn touch_by_id(class: TouchClass, id: &DeviceId) -> MatchKey {
    hash(KeySpace::Class, class.bits(), &by_id(id).0.to_be_bytes())
}

/// Returns the key of the touches of one class with a probabilistic key.
pub fn touch_by_probabilistic_key(class: ProbabilisticClass, key: MatchKey) -> MatchKey {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&class.bits().to_be_bytes());
    value[8..].copy_from_slice(&key.0.to_be_bytes());
    hash(KeySpace::Probabilistic, 0, &value)
}

/// Returns the key of the activations with a probabilistic key and ids of these kinds.
pub fn activation_by_probabilistic_key(kinds: IdKindSet, key: MatchKey) -> MatchKey {
    let mut value = [0; 10];
    value[..2].copy_from_slice(&kinds.0.to_be_bytes());
    value[2..].copy_from_slice(&key.0.to_be_bytes());
    hash(KeySpace::Probabilistic, 1, &value)
}

/// Returns the key of the activations and effects with a device id.
pub fn by_id(id: &DeviceId) -> MatchKey {
    match &id.value {
        IdValue::Raw(value) => hash(KeySpace::Raw, id.kind as u8, value.as_bytes()),
        IdValue::Md5(digest) => hash(KeySpace::Md5, id.kind as u8, digest),
    }
}

/// Returns the key of the activations with a click id.
pub fn by_click_id(click_id: &str) -> MatchKey {
    hash(KeySpace::ClickId, 0, click_id.as_bytes())
}

/// Returns the key by IP and device model, and the key by IP and user agent, each only if all its parts are known.
pub fn probabilistic_keys(device: Device<&str>) -> impl Iterator<Item = MatchKey> + use<> {
    let ip = public_address(device.ip);
    let by_device = ip
        .zip(device_model(device))
        .map(|(ip, parts)| probabilistic_key(KeySpace::IpDevice, ip, &parts));
    let by_ua =
        ip.zip(user_agent(device)).map(|(ip, ua)| probabilistic_key(KeySpace::IpUa, ip, &[ua]));
    by_device.into_iter().chain(by_ua)
}

/// The kind of a key, part of its hash.
#[derive(Clone, Copy)]
enum KeySpace {
    ClickId = 1,
    Raw = 2,
    Md5 = 3,
    IpDevice = 4,
    IpUa = 5,
    Class = 6,
    Probabilistic = 7,
    BucketMarkers = 8,
}

fn hash(space: KeySpace, kind: u8, value: &[u8]) -> MatchKey {
    let seed = (space as u64) << 8 | u64::from(kind);
    MatchKey(xxh3_64_with_seed(value, seed))
}

fn probabilistic_key(space: KeySpace, ip: IpAddr, parts: &[&str]) -> MatchKey {
    let mut value: SmallVec<[u8; 256]> = SmallVec::new();
    match ip {
        IpAddr::V4(ip) => value.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => value.extend_from_slice(&ip.octets()),
    }
    for part in parts {
        value.extend_from_slice(&(part.len() as u64).to_be_bytes());
        value.extend_from_slice(part.as_bytes());
    }
    hash(space, 0, &value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::{Pairs, SpreadId, TouchFields};

    fn oaid() -> DeviceIds {
        let received: Pairs = vec![("oaid".into(), "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5".into())];
        DeviceIds::of_touch(&received)
    }

    fn touch() -> Touch {
        let fields = TouchFields {
            pid: Pid(1),
            id: "c1".into(),
            click_id: "c1".into(),
            kind: TouchKind::Click,
            purpose: Purpose::Retargeting,
            spreadid: SpreadId(7),
            time: EventTime::from_millis(5 * DAY_MS as i64 + 1).unwrap(),
            lookback_ms: Some(1),
            ids: Vec::new(),
            device: Device {
                ip: "203.0.113.9".into(),
                ua: "agent".into(),
                model: "X1".into(),
                os: "android".into(),
                os_version: "14".into(),
            },
            site: "".into(),
            params: Vec::new(),
        };
        fields.into()
    }

    /// Stored index entries contain these hashes and could not be found under others.
    #[test]
    fn keys_never_change() {
        let FactKey { id, tag, .. } = fact_key(TouchKind::Click, Pid(1), "c1");
        let touch = touch();
        let expected = [
            // Fact key, click id, probabilistic keys, device id.
            0x2f12_5dbb_f456_d3eb,
            0x0000_13b3_98d8_7910,
            0xb439_c456_6164_e499,
            0xa4c9_4d03_6e56_96f7,
            0xf3d6_a7e9_2858_e1d3,
            0xb3f3_46dd_de56_0542,
            // Index entries by device id and probabilistic keys, markers.
            0x03a2_8d49_d660_a14c,
            0xc9ac_c0eb_0c6b_b678,
            0x5941_fdd3_ccdd_85cc,
            0x2754_3442_c220_4a8d,
            0x4534_df34_31c0_77b3,
        ];
        let found = [
            vec![id, MatchKey(tag), by_click_id("c1")],
            probabilistic_keys(touch.device()).collect(),
            oaid().iter().map(by_id).collect(),
            touch_index(&touch, &oaid(), true).into_vec(),
            touch_bucket_markers(&touch, &oaid()).into_iter().map(|(key, _)| key).collect(),
        ];
        assert_eq!(found.concat(), expected.map(MatchKey));
    }

    #[test]
    fn markers_are_per_day_and_class() {
        for (_, marker) in touch_bucket_markers(&touch(), &oaid()) {
            assert_eq!(marker.time.millis(), 5 * DAY_MS);
            let expected =
                ProbabilisticClass { class: TouchClass::of(&touch()), kinds: oaid().kinds() };
            assert_eq!(ProbabilisticClass::of_marker(&marker), expected);
        }
    }
}
