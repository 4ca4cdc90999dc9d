//! A made-up event, for a test of an endpoint by a person.

use std::collections::BTreeMap;

use attribution::facts::event::EventTime;
use attribution::outbox::record::CallbackKind;
use attribution::rules::policy::AppPolicy;
use callback::CallbackEvent;

use super::decided::millis;

/// What a made-up event has.
pub struct Sample<'a> {
    pub kind: CallbackKind,
    pub app: &'a AppPolicy,
    pub channel: &'a str,
    /// The name of the event.
    pub name: &'a str,
    /// The callback of the click; `None` for a made-up token.
    pub callback: Option<&'a str>,
    pub now: EventTime,
    /// Makes the ids of the event and the callback unique.
    pub number: u64,
}

impl Sample<'_> {
    pub fn event(&self) -> CallbackEvent {
        let Self { kind, app, channel, name, callback, now, number } = *self;
        let id: Box<str> = format!("adtrail-test-{number:x}").into();
        let is_effect = kind.is_effect();
        let text = |text: &str| Box::<str>::from(text);
        let now_ms = millis(now);
        CallbackEvent {
            id: id.clone(),
            kind,
            revision: 1,
            app: app.key.clone(),
            app_name: app.name.clone(),
            event_id: id.clone(),
            name: text(name),
            time_ms: now_ms,
            status: text("attributed"),
            install_type: text("install"),
            reject_reason: Box::default(),
            activation_id: id.clone(),
            activation_time_ms: Some(now_ms),
            credit: callback::Credit {
                channel: text(channel),
                touch_type: text("click"),
                touch_time_ms: Some(now_ms),
                match_type: text("click_id"),
                purpose: text("ua"),
                click_id: id.clone(),
                callback: callback.map_or(id, text),
                // Some networks need these.
                params: ["ad_id", "creative_id"].map(|name| (text(name), text("1"))).into(),
                ..callback::Credit::default()
            },
            previous: None,
            ids: ["oaid", "gaid"].map(|kind| (text(kind), device_id(number))).into(),
            ip: Box::default(),
            ua: Box::default(),
            device_model: Box::default(),
            os: text("android"),
            os_version: Box::default(),
            app_version: Box::default(),
            revenue: text(if is_effect { "1.00" } else { "" }),
            currency: text(if is_effect { "CNY" } else { "" }),
            props: BTreeMap::new(),
            earlier: Vec::new(),
        }
    }
}

fn device_id(number: u64) -> Box<str> {
    format!("00000000-0000-4000-8000-{:012x}", number % (1 << 48)).into()
}
