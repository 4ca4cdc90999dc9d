//! Canonical content and identity (section "Facts" of the contract).
//!
//! The fact is the message that sorts first by (time, canonical content) among all messages with the same app, id space
//! and id; the others are redeliveries. A message without an id gets one derived from its content, so its redeliveries
//! get the same id.

use std::cmp::Ordering;

use md5::{Digest, Md5};

use super::device_ids;
use super::event::{Device, Fact, TextPairs};

const FIELD_END: u8 = 0x1f;
const PAIR_END: u8 = 0x1e;

/// Sets the id of the fact: the received one, or else a hash of its content. A placeholder or a macro is not one.
pub fn identify(fact: &mut Fact, app_key: &str) {
    let received: Option<Box<str>> = match fact {
        Fact::Touch(touch) => device_ids::click_id(touch.click_id()).map(Box::from),
        Fact::Activation(activation) => device_ids::event_id(&activation.id).map(Box::from),
        Fact::Effect(effect) => device_ids::event_id(&effect.id).map(Box::from),
    };
    let id = received.unwrap_or_else(|| content_id(fact, app_key));
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
        // Separators within values can make the contents of two different facts equal.
        content(a, app_key).cmp(&content(b, app_key)).then_with(|| a.cmp(b))
    })
}

fn content_id(fact: &Fact, app_key: &str) -> Box<str> {
    let digest = Md5::digest(content(fact, app_key));
    format!("#{}", device_ids::hex(&digest)).into()
}

/// Returns the values as received, joined by U+001F, in the order of the contract.
fn content(fact: &Fact, app_key: &str) -> Vec<u8> {
    let (fields, device) = fields(fact);
    let mut out = Vec::with_capacity(512);
    push_text(&mut out, fields.kind);
    push_text(&mut out, app_key);
    push_text(&mut out, fields.name);
    push_text(&mut out, &fields.spreadid);
    push_text(&mut out, &fact.time().millis().to_string());
    push_text(&mut out, fields.purpose);
    push_text(&mut out, &fields.lookback_ms);
    push_text(&mut out, &fields.install_begin_time);
    push_text(&mut out, fields.click_id);
    for text in [device.ip, device.ua, device.model, device.os, device.os_version] {
        push_text(&mut out, text);
    }
    for text in [fields.app_version, fields.site, fields.revenue, fields.currency] {
        push_text(&mut out, text);
    }
    push_pairs(&mut out, fields.ids);
    out.push(FIELD_END);
    push_pairs(&mut out, fields.params);
    out.push(FIELD_END);
    push_pairs(&mut out, fields.props);
    out
}

/// The fields of all families; a field that a family lacks is empty.
#[derive(Default)]
struct Fields<'a> {
    kind: &'a str,
    name: &'a str,
    spreadid: String,
    purpose: &'a str,
    lookback_ms: String,
    install_begin_time: String,
    click_id: &'a str,
    app_version: &'a str,
    site: &'a str,
    revenue: &'a str,
    currency: &'a str,
    ids: Option<TextPairs<'a>>,
    params: Option<TextPairs<'a>>,
    props: Option<TextPairs<'a>>,
}

fn fields(fact: &Fact) -> (Fields<'_>, Device<&str>) {
    match fact {
        Fact::Touch(touch) => {
            let fields = Fields {
                kind: touch.kind.name(),
                spreadid: touch.spreadid.0.to_string(),
                purpose: touch.purpose.name(),
                lookback_ms: touch.lookback_ms.map(|ms| ms.to_string()).unwrap_or_default(),
                click_id: touch.click_id(),
                site: touch.site(),
                ids: Some(touch.ids()),
                params: Some(touch.params()),
                ..Fields::default()
            };
            (fields, touch.device())
        }
        Fact::Activation(activation) => {
            let begin = activation.install_begin_time;
            let fields = Fields {
                kind: "activation",
                install_begin_time: begin.map(|at| at.millis().to_string()).unwrap_or_default(),
                click_id: &activation.click_id,
                app_version: &activation.app_version,
                ids: Some((&activation.ids).into()),
                props: Some((&activation.props).into()),
                ..Fields::default()
            };
            (fields, activation.device.borrowed())
        }
        Fact::Effect(effect) => {
            let fields = Fields {
                kind: "effect",
                name: &effect.name,
                app_version: &effect.app_version,
                revenue: &effect.revenue,
                currency: &effect.currency,
                ids: Some((&effect.ids).into()),
                props: Some((&effect.props).into()),
                ..Fields::default()
            };
            (fields, effect.device.borrowed())
        }
    }
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(FIELD_END);
}

/// Adds sorted pairs. The values of a key are joined by a comma.
fn push_pairs(out: &mut Vec<u8>, pairs: Option<TextPairs<'_>>) {
    let mut previous = None;
    for (key, value) in pairs.into_iter().flatten() {
        if previous == Some(key) {
            out.push(b',');
        } else {
            if previous.is_some() {
                out.push(PAIR_END);
            }
            out.extend_from_slice(key.as_bytes());
            out.push(b'=');
        }
        out.extend_from_slice(value.as_bytes());
        previous = Some(key);
    }
}
