//! Canonical content and identity (section "Facts" of the contract).
//!
//! The fact is the message that sorts first by (time, canonical content) among all messages with the same app, id space
//! and id; the others are redeliveries. A message without an id gets one derived from its content, so its redeliveries
//! get the same id.

use std::cmp::Ordering;
use std::fmt::{self, Write};

use md5::{Digest, Md5};
use smallvec::SmallVec;

use super::device_ids;
use super::event::{Device, EventTime, Fact, TextPairs, Touch, TouchParts};

const FIELD_END: u8 = 0x1f;
const PAIR_END: u8 = 0x1e;

/// As long as a [`ContentId`], which can therefore replace it in place.
const UNKNOWN_ID: &str = "#00000000000000000000000000000000";

/// Builds a touch with its identity. See [`identify`].
pub fn identified<'a, I, P>(parts: TouchParts<'a, I, P>, app_key: &str) -> Touch
where
    I: Iterator<Item = (&'a str, &'a str)> + Clone,
    P: Iterator<Item = (&'a str, &'a str)> + Clone,
{
    if let Some(id) = device_ids::click_id(parts.click_id) {
        return parts.build(id);
    }
    let mut touch = parts.build(UNKNOWN_ID);
    let id = ContentId::of(&Fields::from(&touch), app_key);
    touch.set_id(id.as_str());
    touch
}

/// Sets the id of the fact: the received one, or else a hash of its content. A placeholder or a macro is not one.
pub fn identify(fact: &mut Fact, app_key: &str) {
    let received = match &*fact {
        Fact::Touch(touch) => device_ids::click_id(touch.click_id()),
        Fact::Activation(activation) => device_ids::event_id(&activation.id),
        Fact::Effect(effect) => device_ids::event_id(&effect.id),
    };
    let id: Box<str> = match received {
        Some(id) => id.into(),
        None => ContentId::of(&Fields::from(&*fact), app_key).as_str().into(),
    };
    match fact {
        Fact::Touch(touch) => touch.set_id(&id),
        Fact::Activation(activation) => activation.id = id,
        Fact::Effect(effect) => effect.id = id,
    }
}

/// Orders two messages with the same id; the one that sorts first is the fact.
pub fn compare(a: &Fact, b: &Fact, app_key: &str) -> Ordering {
    a.time().cmp(&b.time()).then_with(|| {
        if a == b {
            return Ordering::Equal;
        }
        let [content_a, content_b] = [a, b].map(|fact| Content::of(&Fields::from(fact), app_key));
        // Separators within values can make the contents of two different facts equal.
        content_a.0.cmp(&content_b.0).then_with(|| a.cmp(b))
    })
}

/// An id that is derived from the content: `#` and its MD5.
struct ContentId([u8; UNKNOWN_ID.len()]);

impl ContentId {
    fn of(fields: &Fields<'_>, app_key: &str) -> Self {
        let digest: [u8; 16] = Md5::digest(&Content::of(fields, app_key).0).into();
        let mut id = [b'#'; UNKNOWN_ID.len()];
        for (digits, byte) in id[1..].chunks_exact_mut(2).zip(digest) {
            digits.copy_from_slice(&device_ids::hex_digits(byte));
        }
        Self(id)
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The values as received, joined by U+001F, in the order of the contract. Nearly all fit without an allocation.
struct Content(SmallVec<[u8; 1_024]>);

impl Content {
    fn of(fields: &Fields<'_>, app_key: &str) -> Self {
        let mut content = Self(SmallVec::new());
        content.push_text(fields.kind);
        content.push_text(app_key);
        content.push_text(fields.name);
        content.push_number(fields.spreadid.map(u64::from));
        content.push_number(Some(fields.time.millis()));
        content.push_text(fields.purpose);
        content.push_number(fields.lookback_ms);
        content.push_number(fields.install_begin_time.map(EventTime::millis));
        content.push_text(fields.click_id);
        let Device { ip, ua, model, os, os_version } = fields.device;
        for text in [ip, ua, model, os, os_version] {
            content.push_text(text);
        }
        for text in [fields.app_version, fields.site, fields.revenue, fields.currency] {
            content.push_text(text);
        }
        content.push_pairs(fields.ids.clone());
        content.0.push(FIELD_END);
        content.push_pairs(fields.params.clone());
        content.0.push(FIELD_END);
        content.push_pairs(fields.props.clone());
        content
    }

    fn push(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn push_text(&mut self, text: &str) {
        self.push(text);
        self.0.push(FIELD_END);
    }

    fn push_number(&mut self, number: Option<u64>) {
        if let Some(number) = number {
            let _ = write!(self, "{number}");
        }
        self.0.push(FIELD_END);
    }

    /// Adds sorted pairs. The values of a key are joined by a comma.
    fn push_pairs(&mut self, pairs: Option<TextPairs<'_>>) {
        let mut previous = None;
        for (key, value) in pairs.into_iter().flatten() {
            if previous == Some(key) {
                self.0.push(b',');
            } else {
                if previous.is_some() {
                    self.0.push(PAIR_END);
                }
                self.push(key);
                self.0.push(b'=');
            }
            self.push(value);
            previous = Some(key);
        }
    }
}

impl Write for Content {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text);
        Ok(())
    }
}

/// The fields of all families; a field that a family lacks is empty.
#[derive(Default)]
struct Fields<'a> {
    kind: &'a str,
    name: &'a str,
    spreadid: Option<u32>,
    time: EventTime,
    purpose: &'a str,
    lookback_ms: Option<u64>,
    install_begin_time: Option<EventTime>,
    click_id: &'a str,
    device: Device<&'a str>,
    app_version: &'a str,
    site: &'a str,
    revenue: &'a str,
    currency: &'a str,
    ids: Option<TextPairs<'a>>,
    params: Option<TextPairs<'a>>,
    props: Option<TextPairs<'a>>,
}

impl<'a> From<&'a Touch> for Fields<'a> {
    fn from(touch: &'a Touch) -> Self {
        Self {
            kind: touch.kind.name(),
            spreadid: Some(touch.spreadid.0),
            time: touch.time,
            purpose: touch.purpose.name(),
            lookback_ms: touch.lookback_ms,
            click_id: touch.click_id(),
            device: touch.device(),
            site: touch.site(),
            ids: Some(touch.ids()),
            params: Some(touch.params()),
            ..Self::default()
        }
    }
}

impl<'a> From<&'a Fact> for Fields<'a> {
    fn from(fact: &'a Fact) -> Self {
        match fact {
            Fact::Touch(touch) => touch.into(),
            Fact::Activation(activation) => Self {
                kind: "activation",
                time: activation.time,
                install_begin_time: activation.install_begin_time,
                click_id: &activation.click_id,
                device: activation.device.borrowed(),
                app_version: &activation.app_version,
                ids: Some((&activation.ids).into()),
                props: Some((&activation.props).into()),
                ..Self::default()
            },
            Fact::Effect(effect) => Self {
                kind: "effect",
                name: &effect.name,
                time: effect.time,
                device: effect.device.borrowed(),
                app_version: &effect.app_version,
                revenue: &effect.revenue,
                currency: &effect.currency,
                ids: Some((&effect.ids).into()),
                props: Some((&effect.props).into()),
                ..Self::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::{Pid, Purpose, SpreadId, TouchFields, TouchHead, TouchKind};

    /// Returns the id of a touch with this click id, built as `ingest` does and identified afterwards.
    fn ids(click_id: &str) -> [String; 2] {
        let fields = TouchFields {
            pid: Pid(1),
            id: "".into(),
            click_id: click_id.into(),
            kind: TouchKind::Click,
            purpose: Purpose::Ua,
            spreadid: SpreadId(7),
            time: EventTime::default().plus(1_000),
            lookback_ms: Some(5),
            ids: vec![("caid".into(), "a".into()), ("caid".into(), "b".into())],
            device: Device { ip: "203.0.113.9".into(), ..Device::default() },
            site: "s".into(),
            params: vec![("sub1".into(), "x".into()), ("sub2".into(), "y".into())],
        };
        let TouchFields { pid, kind, purpose, spreadid, time, lookback_ms, .. } = fields;
        let parts = TouchParts {
            head: TouchHead { pid, kind, purpose, spreadid, time, lookback_ms },
            click_id,
            ids: TextPairs::from(&fields.ids),
            device: fields.device.borrowed(),
            site: &fields.site,
            params: TextPairs::from(&fields.params),
        };
        let built = Fact::Touch(identified(parts, "app-x"));
        let mut fact = Fact::Touch(fields.clone().into());
        identify(&mut fact, "app-x");
        assert_eq!(built, fact);
        [built, fact].map(|fact| fact.id().to_owned())
    }

    /// Stored keys depend on these ids, so they never change.
    #[test]
    fn a_touch_is_identified_by_its_click_id_or_its_content() {
        assert_eq!(ids(" c1 "), ["c1", "c1"]);
        let content = "click\u{1f}app-x\u{1f}\u{1f}7\u{1f}1000\u{1f}ua\u{1f}5\u{1f}\u{1f}0\u{1f}203.0.113.9\u{1f}\
                       \u{1f}\u{1f}\u{1f}\u{1f}\u{1f}s\u{1f}\u{1f}\u{1f}caid=a,b\u{1f}sub1=x\u{1e}sub2=y\u{1f}";
        let expected = format!("#{}", device_ids::hex(&Md5::digest(content)));
        assert_eq!(ids("0"), [expected.clone(), expected]);
    }
}
