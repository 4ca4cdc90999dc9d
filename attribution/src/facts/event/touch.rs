//! Touches.
//!
//! Clicks are by far the most frequent events, and most of them are only stored. So a touch keeps all its texts in one
//! allocation, encoded as in the store (`docs/format.md`), and decodes one when it is asked for it.

use std::cmp::Ordering;
use std::fmt;

use super::pairs::{Pairs, TextPairs, normalised_bytes};
use super::{Device, EventTime, Pid, Purpose, SpreadId, TouchKind};
use crate::encoding::{
    CheckedBytes, Damage, TRUNCATED, pairs_len, put_pairs, put_text, split_pairs, split_text,
    text_len, varint_len,
};

/// A click on an ad, or an impression of one.
#[derive(Clone, PartialEq, Eq)]
pub struct Touch {
    pub pid: Pid,
    pub kind: TouchKind,
    pub purpose: Purpose,
    pub spreadid: SpreadId,
    pub time: EventTime,
    pub lookback_ms: Option<u64>,
    texts: Texts,
}

/// The values of a touch besides its texts.
#[derive(Debug, Clone, Copy)]
pub struct TouchHead {
    pub pid: Pid,
    pub kind: TouchKind,
    pub purpose: Purpose,
    pub spreadid: SpreadId,
    pub time: EventTime,
    pub lookback_ms: Option<u64>,
}

/// The values from which a touch is built.
#[derive(Debug, Clone)]
pub struct TouchParts<'a, I, P> {
    pub head: TouchHead,
    /// As received.
    pub click_id: &'a str,
    /// As received, sorted by key.
    pub ids: I,
    pub device: Device<&'a str>,
    pub site: &'a str,
    /// Sorted by key.
    pub params: P,
}

/// A touch with a field for each value, to build it from others or to change it. It is slower than [`TouchParts`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TouchFields {
    pub pid: Pid,
    /// Identity: the click id, normalised, or `#` and the MD5 of the canonical content.
    pub id: Box<str>,
    /// As received.
    pub click_id: Box<str>,
    pub kind: TouchKind,
    pub purpose: Purpose,
    pub spreadid: SpreadId,
    pub time: EventTime,
    pub lookback_ms: Option<u64>,
    pub ids: Pairs,
    pub device: Device,
    pub site: Box<str>,
    pub params: Pairs,
}

/// Encoded texts. Each touch has one encoding, so equal bytes mean equal texts. An event has at most 1 MiB.
#[derive(Clone, PartialEq, Eq)]
struct Texts {
    /// Id and click id, ids, attributes of the device, site, params.
    bytes: Box<[u8]>,
    /// The start of the ids.
    ids: u32,
    /// The start of the attributes of the device.
    device: u32,
}

impl<'a, I, P> TouchParts<'a, I, P>
where
    I: Iterator<Item = (&'a str, &'a str)> + Clone,
    P: Iterator<Item = (&'a str, &'a str)> + Clone,
{
    /// Builds the touch with this id.
    pub fn build(self, id: &str) -> Touch {
        let Self { head, click_id, ids, device, site, params } = self;
        let Device { ip, ua, model, os, os_version } = device;
        let single = [ip, ua, model, os, os_version, site];
        let ids_at = identity_len(id, click_id);
        let device_at = ids_at + pairs_len(ids.clone());
        let single_len: usize = single.into_iter().map(text_len).sum();
        let len = device_at + single_len + pairs_len(params.clone());
        let mut bytes = Vec::with_capacity(len);
        put_identity(&mut bytes, id, click_id);
        put_pairs(&mut bytes, ids);
        single.into_iter().for_each(|text| put_text(&mut bytes, text));
        put_pairs(&mut bytes, params);
        head.with(Texts { bytes: bytes.into(), ids: ids_at as u32, device: device_at as u32 })
    }
}

impl Touch {
    /// Decodes a stored touch from the encoded id and click id, and from the other encoded texts.
    pub fn decode(head: TouchHead, identity: &[u8], others: &[u8]) -> Result<Self, Damage> {
        let bytes: Box<[u8]> = [identity, others].concat().into();
        let (ids, device) = check(&bytes)?;
        Ok(head.with(Texts { bytes, ids: ids as u32, device: device as u32 }))
    }

    /// Returns the encoded id and click id, and the other encoded texts.
    pub fn encoded(&self) -> (&[u8], &[u8]) {
        let Texts { bytes, ids, .. } = &self.texts;
        bytes.split_at_checked(*ids as usize).unwrap_or_default()
    }

    /// Returns the identity: the click id, normalised, or `#` and the MD5 of the canonical content.
    pub fn id(&self) -> &str {
        self.texts.read_from(0).text()
    }

    /// Returns the click id as received.
    pub fn click_id(&self) -> &str {
        let mut texts = self.texts.read_from(0);
        let id = texts.text();
        if texts.byte() == IS_CLICK_ID { id } else { texts.text() }
    }

    /// Returns the ids as received.
    pub fn ids(&self) -> TextPairs<'_> {
        TextPairs::encoded(self.texts.read_from(self.texts.ids))
    }

    pub fn device(&self) -> Device<&str> {
        let mut texts = self.texts.read_from(self.texts.device);
        let [ip, ua, model, os, os_version] = [(); 5].map(|()| texts.text());
        Device { ip, ua, model, os, os_version }
    }

    pub fn site(&self) -> &str {
        let mut texts = self.texts.read_from(self.texts.device);
        texts.skip_texts(5);
        texts.text()
    }

    pub fn params(&self) -> TextPairs<'_> {
        let mut texts = self.texts.read_from(self.texts.device);
        texts.skip_texts(6);
        TextPairs::encoded(texts)
    }

    /// Replaces the id.
    pub fn set_id(&mut self, id: &str) {
        let (known, click_id) = (self.id(), self.click_id());
        if known == id {
            return;
        }
        let fits = known.len() == id.len() && known != click_id && id != click_id;
        let start = varint_len(id.len() as u64);
        if fits && let Some(place) = self.texts.bytes.get_mut(start..start + id.len()) {
            place.copy_from_slice(id.as_bytes());
            return;
        }
        let click_id = self.click_id();
        let (identity, others) = self.encoded();
        let ids = identity_len(id, click_id);
        let mut bytes = Vec::with_capacity(ids + others.len());
        put_identity(&mut bytes, id, click_id);
        bytes.extend_from_slice(others);
        let device = ids + self.texts.device as usize - identity.len();
        self.texts = Texts { bytes: bytes.into(), ids: ids as u32, device: device as u32 };
    }

    /// Returns the approximate size in memory, with the normalised ids.
    pub fn bytes(&self) -> usize {
        let normalised = NORMALISED_BYTES + normalised_bytes(self.ids());
        size_of::<Self>() + self.texts.bytes.len() + normalised
    }
}

impl TouchHead {
    fn with(self, texts: Texts) -> Touch {
        let Self { pid, kind, purpose, spreadid, time, lookback_ms } = self;
        Touch { pid, kind, purpose, spreadid, time, lookback_ms, texts }
    }
}

impl Texts {
    fn read_from(&self, start: u32) -> CheckedBytes<'_> {
        CheckedBytes::new(self.bytes.get(start as usize..).unwrap_or_default())
    }
}

/// The order of [`TouchFields`].
impl Ord for Touch {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (self, other);
        let head = |it: &Self| (it.kind, it.purpose, it.spreadid, it.time, it.lookback_ms);
        (a.pid, a.id(), a.click_id())
            .cmp(&(b.pid, b.id(), b.click_id()))
            .then_with(|| head(a).cmp(&head(b)))
            .then_with(|| a.ids().cmp(b.ids()))
            .then_with(|| (a.device(), a.site()).cmp(&(b.device(), b.site())))
            .then_with(|| a.params().cmp(b.params()))
    }
}

impl PartialOrd for Touch {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Touch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&TouchFields::from(self), out)
    }
}

impl From<TouchFields> for Touch {
    fn from(fields: TouchFields) -> Self {
        let TouchFields { pid, kind, purpose, spreadid, time, lookback_ms, .. } = fields;
        let parts = TouchParts {
            head: TouchHead { pid, kind, purpose, spreadid, time, lookback_ms },
            click_id: &fields.click_id,
            ids: TextPairs::from(&fields.ids),
            device: fields.device.borrowed(),
            site: &fields.site,
            params: TextPairs::from(&fields.params),
        };
        parts.build(&fields.id)
    }
}

impl From<&Touch> for TouchFields {
    fn from(touch: &Touch) -> Self {
        let Touch { pid, kind, purpose, spreadid, time, lookback_ms, texts: _ } = *touch;
        let owned =
            |pairs: TextPairs<'_>| pairs.map(|(key, value)| (key.into(), value.into())).collect();
        Self {
            pid,
            id: touch.id().into(),
            click_id: touch.click_id().into(),
            kind,
            purpose,
            spreadid,
            time,
            lookback_ms,
            ids: owned(touch.ids()),
            device: touch.device().map(Box::from),
            site: touch.site().into(),
            params: owned(touch.params()),
        }
    }
}

/// Approximate size of the normalised ids besides [`normalised_bytes`]: a decision keeps them beside each touch.
const NORMALISED_BYTES: usize = 192;

/// Follows an id that is the click id as received, as nearly always.
const IS_CLICK_ID: u8 = 1;
/// Follows another id, before the click id.
const IS_OTHER: u8 = 0;

fn put_identity(out: &mut Vec<u8>, id: &str, click_id: &str) {
    put_text(out, id);
    if id == click_id {
        out.push(IS_CLICK_ID);
    } else {
        out.push(IS_OTHER);
        put_text(out, click_id);
    }
}

fn identity_len(id: &str, click_id: &str) -> usize {
    text_len(id) + 1 + if id == click_id { 0 } else { text_len(click_id) }
}

/// Checks the encoded texts of a touch; returns the starts of the ids and of the attributes of the device.
fn check(bytes: &[u8]) -> Result<(usize, usize), Damage> {
    let (id, rest) = split_text(bytes)?;
    let (form, rest) = rest.split_first().ok_or(TRUNCATED)?;
    let rest = match *form {
        IS_CLICK_ID => rest,
        IS_OTHER => {
            let (click_id, rest) = split_text(rest)?;
            if click_id == id {
                return Err("a click id that is stored twice");
            }
            rest
        }
        _ => return Err("an unknown form of a click id"),
    };
    let ids = bytes.len() - rest.len();
    let mut rest = split_pairs(rest)?;
    let device = bytes.len() - rest.len();
    for _ in 0..6 {
        (_, rest) = split_text(rest)?;
    }
    let rest = split_pairs(rest)?;
    if rest.is_empty() { Ok((ids, device)) } else { Err("bytes after the value") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Pairs {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    fn fields() -> TouchFields {
        TouchFields {
            pid: Pid(1),
            id: "c1".into(),
            click_id: "c1".into(),
            kind: TouchKind::Click,
            purpose: Purpose::Ua,
            spreadid: SpreadId(7),
            time: EventTime::default().plus(5),
            lookback_ms: None,
            ids: pairs(&[("oaid", "a"), ("oaid", "b")]),
            device: Device { ip: "203.0.113.9".into(), os: "android".into(), ..Device::default() },
            site: "s".into(),
            params: pairs(&[("sub1", "x")]),
        }
    }

    /// Touches that differ in one value each, among them values that begin alike and long ones.
    fn touches() -> Vec<TouchFields> {
        let changes: [fn(&mut TouchFields); 21] = [
            |_| {},
            |it| it.pid = Pid(2),
            |it| it.id = "".into(),
            |it| it.id = format!("#{}", "0".repeat(32)).into(),
            |it| it.click_id = " c1".into(),
            |it| it.click_id = "".into(),
            |it| it.kind = TouchKind::Impression,
            |it| it.purpose = Purpose::Retargeting,
            |it| it.spreadid = SpreadId(300),
            |it| it.time = EventTime::default(),
            |it| it.lookback_ms = Some(0),
            |it| it.lookback_ms = Some(u64::MAX),
            |it| it.ids = pairs(&[]),
            |it| it.ids = pairs(&[("oaid", "a")]),
            |it| it.ids = pairs(&[("oai", "da"), ("oaid", "b")]),
            |it| it.device.ua = "Mozilla/5.0 ü".repeat(20).into(),
            |it| it.device.os_version = "14".into(),
            |it| it.device.ip = "".into(),
            |it| it.site = "".into(),
            |it| it.params = pairs(&[]),
            |it| it.params = pairs(&[("sub1", "x"), ("sub2", "\u{1f}")]),
        ];
        let mut touches = vec![fields(); changes.len()];
        touches.iter_mut().zip(changes).for_each(|(touch, change)| change(touch));
        touches
    }

    #[test]
    fn a_touch_has_the_values_it_was_built_from_and_their_order() {
        let all = touches();
        for a in &all {
            let touch = Touch::from(a.clone());
            assert_eq!(TouchFields::from(&touch), *a);
            for b in &all {
                let other = Touch::from(b.clone());
                assert_eq!(touch.cmp(&other), a.cmp(b), "{a:?} and {b:?}");
                assert_eq!(touch == other, a == b, "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn a_replaced_id_gives_the_same_touch_as_one_built_with_it() {
        let all = touches();
        for touch in &all {
            let ids = [&*touch.id, &touch.click_id, "", "c2", &"x".repeat(33), &"y".repeat(200)];
            for id in ids {
                let mut changed = Touch::from(touch.clone());
                changed.set_id(id);
                let expected = TouchFields { id: id.into(), ..touch.clone() };
                assert_eq!(changed, Touch::from(expected.clone()));
                assert_eq!(TouchFields::from(&changed), expected);
            }
        }
    }

    #[test]
    fn decoding_checks_every_text() {
        for fields in touches() {
            let touch = Touch::from(fields);
            let Touch { pid, kind, purpose, spreadid, time, lookback_ms, .. } = touch;
            let head = TouchHead { pid, kind, purpose, spreadid, time, lookback_ms };
            let (identity, others) = touch.encoded();
            assert_eq!(Touch::decode(head, identity, others), Ok(touch.clone()));
            for end in 0..others.len() {
                assert!(Touch::decode(head, identity, &others[..end]).is_err(), "cut at {end}");
            }
            let extended = [others, &[0]].concat();
            assert!(Touch::decode(head, identity, &extended).is_err(), "extended");
            for place in 0..others.len() {
                let mut damaged = others.to_vec();
                damaged[place] = 0xff;
                assert!(Touch::decode(head, identity, &damaged).is_err(), "damaged at {place}");
            }
        }
        let touch = Touch::from(fields());
        let Touch { pid, kind, purpose, spreadid, time, lookback_ms, .. } = touch;
        let head = TouchHead { pid, kind, purpose, spreadid, time, lookback_ms };
        let (_, others) = touch.encoded();
        for identity in [&b"\x02c1\x02"[..], b"\x02c1\x00\x02c1", b"\x02c1"] {
            assert!(Touch::decode(head, identity, others).is_err(), "{identity:?}");
        }
    }

    /// A click is moved several times on its way to the store.
    #[test]
    fn a_touch_is_small() {
        assert!(size_of::<Touch>() <= 64, "{}", size_of::<Touch>());
    }
}
