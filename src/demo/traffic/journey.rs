//! The events of one device in one app, from the first ad to the last purchase.

use fastrand::Rng;
use ingest::TopicKind;
use serde_json::{Value, json};

use super::Message;
use super::catalogue::{App, Campaign};
use super::device::Device;

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

const SITES: [&str; 5] = [
    "feed.example",
    "video.example/前贴片",
    "com.example.news",
    "search.example",
    "短视频, \"推荐\" 页",
];
const APP_VERSION: &str = "3.2.1";
const STORES: [&str; 4] = ["huawei", "xiaomi", "oppo", "应用宝"];
const NOTES: [&str; 4] = ["太好用了 🎉", "said \"wow\", twice", "a, b; c", "第一单"];

/// A journey being generated.
struct Journey<'r> {
    rng: &'r mut Rng,
    app: &'static App,
    device: Device,
    messages: Vec<Message>,
}

/// Generates the messages of one journey, in no particular order. No event is before `start_ms`.
pub fn draw(rng: &mut Rng, start_ms: i64) -> Vec<Message> {
    let (app, device) = (App::draw(rng), Device::draw(rng));
    let mut journey = Journey { rng, app, device, messages: Vec::new() };
    match journey.rng.u32(0..200) {
        // The user found the app without an ad.
        0..9 => journey.activate(start_ms, None),
        // The user had the app before it was tracked.
        9 => journey.use_app(start_ms),
        _ => journey.see_ads(start_ms),
    }
    journey.messages
}

/// Returns the callback token of a click, of which the click id is not a part.
fn token(click_id: &str) -> String {
    click_id.chars().rev().chain(".t".chars()).collect()
}

impl Journey<'_> {
    /// Sends some touches, and sometimes an activation.
    fn see_ads(&mut self, start_ms: i64) {
        let mut time_ms = start_ms;
        let mut click_id = None;
        loop {
            let campaign = self.app.draw_campaign(self.rng);
            click_id = self.touch(campaign, time_ms).or(click_id);
            if !self.chance(53) {
                break;
            }
            time_ms += self.log_uniform(20 * SECOND_MS, 11);
        }
        if self.chance(16) {
            // From 20 seconds, for a small app, to two days.
            time_ms += self.log_uniform(20 * SECOND_MS, 13);
            if self.chance(15) {
                self.device.change_ip(self.rng);
            }
            self.activate(time_ms, click_id);
        }
    }

    /// Sends a touch. Returns the click id that an app store can pass on to the app.
    fn touch(&mut self, campaign: &Campaign, time_ms: i64) -> Option<String> {
        let is_click = self.chance(72);
        let click_id = self.chance(90).then(|| self.id("c"));
        let mut params = json!({"sub1": campaign.channel.id});
        if let Some(click_id) = &click_id {
            params["callback"] = token(click_id).into();
        }
        let touch = json!({
            "type": if is_click { "click" } else { "impression" },
            "spreadid": campaign.spreadid,
            "purpose": campaign.is_retargeting.then_some("retargeting"),
            // Some channels send no click id.
            "click_id": click_id,
            "ids": self.device.channel_ids(campaign.channel.form),
            "site": self.choose(&SITES),
            // An attribution window set by the link.
            "lookback_ms": self.chance(5).then_some(3 * DAY_MS),
            "params": params,
        });
        self.send(TopicKind::Clicks, time_ms, touch);
        click_id.filter(|_| is_click)
    }

    fn activate(&mut self, time_ms: i64, click_id: Option<String>) {
        let referrer = click_id.filter(|_| self.chance(35));
        self.send_activation(time_ms, referrer.as_deref());
        if self.chance(4) {
            // The SDK fires twice.
            let repeated_ms = time_ms + self.between(SECOND_MS, 50 * SECOND_MS);
            self.send_activation(repeated_ms, referrer.as_deref());
        }
        if self.chance(70) {
            let registered_ms = time_ms + self.log_uniform(5 * SECOND_MS, 7);
            self.send_effect("register", registered_ms, None);
        }
        self.use_app(time_ms);
        if self.chance(5) {
            self.reinstall(time_ms);
        }
    }

    /// Sends the effects of a session and, with decreasing probability, of further daily sessions.
    fn use_app(&mut self, start_ms: i64) {
        let mut time_ms = start_ms + self.log_uniform(30 * SECOND_MS, 6);
        loop {
            self.send_effect("login", time_ms, None);
            while self.chance(14) {
                time_ms += self.log_uniform(MINUTE_MS, 5);
                self.purchase(time_ms);
            }
            if !self.chance(48) {
                return;
            }
            time_ms += DAY_MS + self.between(-6 * HOUR_MS, 6 * HOUR_MS);
        }
    }

    fn purchase(&mut self, time_ms: i64) {
        let cents = self.choose(&[99, 600, 999, 1_250, 6_800, 64_800]);
        let price = format!("{}.{:02}", cents / 100, cents % 100);
        // Some producers send a number, others a text.
        let number =
            serde_json::from_str(&price).ok().filter(|_| cents % 100 != 0 && self.chance(50));
        let revenue = number.unwrap_or(Value::String(price));
        self.send_effect("purchase", time_ms, Some(revenue));
    }

    /// Sends a reinstall, often after a touch if the app has a retargeting campaign.
    fn reinstall(&mut self, installed_ms: i64) {
        let time_ms = installed_ms + self.between(6 * HOUR_MS, 40 * HOUR_MS);
        if let Some(campaign) = self.app.retargeting().filter(|_| self.chance(60)) {
            let touched_ms = time_ms - self.log_uniform(MINUTE_MS, 7);
            self.touch(campaign, touched_ms);
        }
        self.send_activation(time_ms, None);
        self.use_app(time_ms);
    }

    fn send_activation(&mut self, time_ms: i64, click_id: Option<&str>) {
        let begun_ms = time_ms - self.between(3 * SECOND_MS, 15 * SECOND_MS);
        let activation = json!({
            "type": "activation",
            "event_id": self.id("a"),
            "install_begin_time": self.chance(50).then_some(begun_ms),
            // The click id that the app store passed on.
            "click_id": click_id,
            "ids": self.device.app_ids(),
            "app_version": APP_VERSION,
            "props": {"store": self.choose(&STORES)},
        });
        self.send(TopicKind::Activations, time_ms, activation);
    }

    fn send_effect(&mut self, name: &str, time_ms: i64, revenue: Option<Value>) {
        let level = self.between(1, 60).to_string();
        let props = if self.chance(5) {
            json!({"level": level, "note": self.choose(&NOTES)})
        } else {
            json!({"level": level})
        };
        let effect = json!({
            "type": "effect",
            "event_id": self.id("e"),
            "name": name,
            "ids": self.device.app_ids(),
            "app_version": APP_VERSION,
            "currency": revenue.is_some().then_some(self.app.currency),
            "revenue": revenue,
            "props": props,
        });
        self.send(TopicKind::Effects, time_ms, effect);
    }

    /// Adds a message. Most arrive once and within seconds. A few are late, so that an activation may arrive after its
    /// effects; a few are redelivered.
    fn send(&mut self, topic: TopicKind, time_ms: i64, fields: Value) {
        let (key, value) = (self.app.key, self.encode(time_ms, fields));
        let is_late = self.chance(if topic == TopicKind::Activations { 8 } else { 3 });
        let delay_ms =
            if is_late { self.log_uniform(MINUTE_MS, 8) } else { self.between(100, 4 * SECOND_MS) };
        let copies = match self.rng.u32(0..100) {
            0 => 3,
            1..3 => 2,
            _ => 1,
        };
        let arrival_ms = time_ms + delay_ms;
        let mut message = Message { topic, key, value, time_ms, arrival_ms, is_invalid: false };
        for _ in 0..copies {
            self.messages.push(message.clone());
            message.arrival_ms += self.between(0, 30 * SECOND_MS);
        }
    }

    /// Encodes an event as JSON: `fields` without those that are null, and the common fields.
    fn encode(&self, time_ms: i64, fields: Value) -> Vec<u8> {
        let Device { ip, ua, model, os, os_version, .. } = &self.device;
        let mut event = json!({
            "app": self.app.key, "time": time_ms, "ip": ip, "ua": ua, "device_model": model,
            "os": os, "os_version": os_version,
        });
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
        }
        event.to_string().into_bytes()
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(..from.len())]
    }

    fn between(&mut self, min: i64, end: i64) -> i64 {
        self.rng.i64(min..end)
    }

    /// Draws a duration from `min_ms` to `min_ms << doublings`, with the same probability for each doubling: short
    /// durations are likely, long ones possible.
    fn log_uniform(&mut self, min_ms: i64, doublings: u32) -> i64 {
        let doubled_ms = min_ms << self.rng.u32(0..doublings);
        doubled_ms + self.rng.i64(0..doubled_ms)
    }

    fn id(&mut self, prefix: &str) -> String {
        format!("{prefix}-{:016x}", self.rng.u64(..))
    }
}
