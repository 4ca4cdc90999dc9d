//! Events as producers write them.

use serde_json::{Value, json};

use super::catalogue::{App, Campaign};
use super::device::Device;

/// A click on an ad, or the sight of one.
pub struct Touch<'a> {
    pub campaign: &'a Campaign,
    pub is_click: bool,
    /// Not every channel gives one.
    pub click_id: Option<&'a str>,
    pub site: &'a str,
    /// The link's own window.
    pub lookback_ms: Option<u64>,
}

pub struct Activation<'a> {
    pub event_id: &'a str,
    pub install_begin_time: Option<i64>,
    /// What the store passed on from the ad.
    pub click_id: Option<&'a str>,
    pub store: &'a str,
}

pub struct Effect<'a> {
    pub event_id: &'a str,
    pub name: &'a str,
    pub revenue: Option<Value>,
    pub props: Value,
}

impl Touch<'_> {
    pub fn write(&self, app: &App, device: &Device, time_ms: i64) -> Vec<u8> {
        let Self { campaign, is_click, click_id, site, lookback_ms } = self;
        bytes(json!({
            "type": if *is_click { "click" } else { "impression" },
            "app": app.key,
            "spreadid": campaign.spreadid,
            "time": time_ms,
            "purpose": campaign.is_retargeting.then_some("retargeting"),
            "lookback_ms": lookback_ms,
            "click_id": click_id,
            "ids": device.channel_ids(campaign.channel.form),
            "ip": device.ip,
            "ua": device.ua,
            "device_model": device.model,
            "os": device.os,
            "os_version": device.os_version,
            "site": site,
            "params": {"sub1": campaign.channel.id},
        }))
    }
}

impl Activation<'_> {
    pub fn write(&self, app: &App, device: &Device, time_ms: i64) -> Vec<u8> {
        let Self { event_id, install_begin_time, click_id, store } = self;
        bytes(json!({
            "type": "activation",
            "app": app.key,
            "event_id": event_id,
            "time": time_ms,
            "install_begin_time": install_begin_time,
            "click_id": click_id,
            "ids": device.app_ids(),
            "ip": device.ip,
            "ua": device.ua,
            "device_model": device.model,
            "os": device.os,
            "os_version": device.os_version,
            "app_version": "3.2.1",
            "props": {"store": store},
        }))
    }
}

impl Effect<'_> {
    pub fn write(&self, app: &App, device: &Device, time_ms: i64) -> Vec<u8> {
        let Self { event_id, name, revenue, props } = self;
        bytes(json!({
            "type": "effect",
            "app": app.key,
            "event_id": event_id,
            "name": name,
            "time": time_ms,
            "ids": device.app_ids(),
            "ip": device.ip,
            "ua": device.ua,
            "device_model": device.model,
            "os": device.os,
            "os_version": device.os_version,
            "app_version": "3.2.1",
            "currency": revenue.is_some().then_some(app.currency),
            "revenue": revenue,
            "props": props,
        }))
    }
}

/// As JSON, without what is not there.
fn bytes(mut event: Value) -> Vec<u8> {
    if let Some(fields) = event.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    event.to_string().into_bytes()
}
