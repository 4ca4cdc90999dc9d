//! A fact as a JSON event, with normalized times, and with the computed id if the event had none. Decoding the JSON
//! again gives the same fact.

use std::collections::BTreeMap;

use attribution::facts::event::{EventTime, Fact, Pairs};
use attribution::rules::policy::Policy;
use jiff::SignedDuration;
use jiff::civil::{Date, Time};
use serde::Serialize;

/// The fields of an event. Absent fields are omitted.
#[derive(Debug, Default, Serialize)]
pub struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    app: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    event_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    click_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    spreadid: Option<u32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    purpose: &'static str,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    install_begin_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lookback_ms: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ids: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    ip: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    ua: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    device_model: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    os: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    os_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    app_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    site: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    revenue: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    currency: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    params: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    props: BTreeMap<&'a str, &'a str>,
}

impl<'a> Event<'a> {
    pub fn new(fact: &'a Fact, policy: &'a Policy) -> Self {
        let app = policy.app(fact.pid()).map_or("", |app| &*app.key);
        let device = fact.device();
        let common = |kind| Self {
            kind,
            app,
            time: time(fact.time()),
            ids: fact.ids().collect(),
            ip: device.ip,
            ua: device.ua,
            device_model: device.model,
            os: device.os,
            os_version: device.os_version,
            ..Self::default()
        };
        match fact {
            Fact::Touch(touch) => Self {
                click_id: touch.click_id(),
                spreadid: Some(touch.spreadid.0),
                purpose: touch.purpose.name(),
                lookback_ms: touch.lookback_ms,
                site: touch.site(),
                params: touch.params().collect(),
                ..common(touch.kind.name())
            },
            Fact::Activation(activation) => Self {
                event_id: &activation.id,
                click_id: &activation.click_id,
                install_begin_time: activation.install_begin_time.map(time),
                app_version: &activation.app_version,
                props: map(&activation.props),
                ..common("activation")
            },
            Fact::Effect(effect) => Self {
                event_id: &effect.id,
                name: &effect.name,
                app_version: &effect.app_version,
                revenue: &effect.revenue,
                currency: &effect.currency,
                props: map(&effect.props),
                ..common("effect")
            },
        }
    }
}

fn map(pairs: &Pairs) -> BTreeMap<&str, &str> {
    pairs.iter().map(|(name, value)| (&**name, &**value)).collect()
}

fn time(time: EventTime) -> String {
    utc(i64::try_from(time.millis()).unwrap_or(i64::MAX)).unwrap_or_default()
}

/// Formats milliseconds since 1970 as `2025-03-10T12:00:00.000Z`; `None` after the year 9999. Uses a civil date and
/// time, because jiff's `Timestamp` does not cover the last hours of that year.
pub fn utc(ms: i64) -> Option<String> {
    let epoch = Date::constant(1970, 1, 1).to_datetime(Time::midnight());
    epoch.checked_add(SignedDuration::from_millis(ms)).ok().map(|time| format!("{time:.3}Z"))
}
