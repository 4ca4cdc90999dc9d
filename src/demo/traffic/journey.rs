//! One device's doings in one app, from the first ad to the last purchase.

use fastrand::Rng;
use ingest::TopicKind;
use serde_json::{Value, json};

use super::catalogue::{App, Campaign};
use super::device::Device;
use super::event::{Activation, Effect, Touch};

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
const STORES: [&str; 4] = ["huawei", "xiaomi", "oppo", "应用宝"];
const NOTES: [&str; 4] = ["太好用了 🎉", "said \"wow\", twice", "a, b; c", "第一单"];

#[derive(Debug)]
pub struct Journey {
    pub app: &'static App,
    /// In no order.
    pub deliveries: Vec<Delivery>,
}

/// An event on its way to the broker.
#[derive(Debug)]
pub struct Delivery {
    pub topic: TopicKind,
    /// When it happened.
    pub time_ms: i64,
    pub arrival_ms: i64,
    pub value: Vec<u8>,
}

/// A journey under way.
struct Traveller<'r> {
    rng: &'r mut Rng,
    app: &'static App,
    device: Device,
    deliveries: Vec<Delivery>,
}

impl Journey {
    /// Nothing happens before `start_ms`.
    pub fn draw(rng: &mut Rng, start_ms: i64) -> Self {
        let (app, device) = (App::draw(rng), Device::draw(rng));
        let mut traveller = Traveller { rng, app, device, deliveries: Vec::new() };
        match traveller.rng.u32(0..200) {
            // Found the app without an ad.
            0..9 => traveller.activate(start_ms, None),
            // Had the app long before anybody tracked it.
            9 => traveller.use_app(start_ms),
            _ => traveller.see_ads(start_ms),
        }
        Self { app, deliveries: traveller.deliveries }
    }
}

impl Traveller<'_> {
    /// Some ads, and at times what they are for.
    fn see_ads(&mut self, start_ms: i64) {
        let mut time_ms = start_ms;
        let mut click_id = None;
        loop {
            let campaign = self.app.draw_campaign(self.rng);
            click_id = self.touch(campaign, time_ms).or(click_id);
            if !self.chance(53) {
                break;
            }
            time_ms += self.spread(20 * SECOND_MS, 11);
        }
        if self.chance(16) {
            // From seconds, where the app is small, to two days.
            time_ms += self.spread(20 * SECOND_MS, 13);
            if self.chance(15) {
                self.device.change_ip(self.rng);
            }
            self.activate(time_ms, click_id);
        }
    }

    /// Gives the click id that a store can pass on.
    fn touch(&mut self, campaign: &Campaign, time_ms: i64) -> Option<String> {
        let is_click = self.chance(72);
        let click_id = self.chance(90).then(|| self.id("c"));
        let touch = Touch {
            campaign,
            is_click,
            click_id: click_id.as_deref(),
            site: self.choose(&SITES),
            lookback_ms: self.chance(5).then_some(3 * DAY_MS.unsigned_abs()),
        };
        let value = touch.write(self.app, &self.device, time_ms);
        self.send(TopicKind::Clicks, time_ms, value);
        click_id.filter(|_| is_click)
    }

    fn activate(&mut self, time_ms: i64, click_id: Option<String>) {
        let referrer = click_id.filter(|_| self.chance(35));
        self.send_activation(time_ms, referrer.as_deref());
        if self.chance(4) {
            // The SDK fires twice.
            let again_ms = time_ms + self.between(SECOND_MS, 50 * SECOND_MS);
            self.send_activation(again_ms, referrer.as_deref());
        }
        if self.chance(70) {
            let registered_ms = time_ms + self.spread(5 * SECOND_MS, 7);
            self.send_effect("register", registered_ms, None);
        }
        self.use_app(time_ms);
        if self.chance(5) {
            self.reinstall(time_ms);
        }
    }

    /// A session, and each day with less likelihood another one.
    fn use_app(&mut self, start_ms: i64) {
        let mut time_ms = start_ms + self.spread(30 * SECOND_MS, 6);
        loop {
            self.send_effect("login", time_ms, None);
            while self.chance(14) {
                time_ms += self.spread(MINUTE_MS, 5);
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
        // Some senders write a number, some a text.
        let number =
            serde_json::from_str(&price).ok().filter(|_| cents % 100 != 0 && self.chance(50));
        let revenue = number.unwrap_or(Value::String(price));
        self.send_effect("purchase", time_ms, Some(revenue));
    }

    /// Comes back, where there is such a campaign often because of an ad.
    fn reinstall(&mut self, installed_ms: i64) {
        let time_ms = installed_ms + self.between(6 * HOUR_MS, 40 * HOUR_MS);
        if let Some(campaign) = self.app.retargeting().filter(|_| self.chance(60)) {
            let touched_ms = time_ms - self.spread(MINUTE_MS, 7);
            self.touch(campaign, touched_ms);
        }
        self.send_activation(time_ms, None);
        self.use_app(time_ms);
    }

    fn send_activation(&mut self, time_ms: i64, click_id: Option<&str>) {
        let begun_ms = time_ms - self.between(3 * SECOND_MS, 15 * SECOND_MS);
        let activation = Activation {
            event_id: &self.id("a"),
            install_begin_time: self.chance(50).then_some(begun_ms),
            click_id,
            store: self.choose(&STORES),
        };
        let value = activation.write(self.app, &self.device, time_ms);
        self.send(TopicKind::Activations, time_ms, value);
    }

    fn send_effect(&mut self, name: &str, time_ms: i64, revenue: Option<Value>) {
        let level = self.between(1, 60).to_string();
        let props = if self.chance(5) {
            json!({"level": level, "note": self.choose(&NOTES)})
        } else {
            json!({"level": level})
        };
        let effect = Effect { event_id: &self.id("e"), name, revenue, props };
        let value = effect.write(self.app, &self.device, time_ms);
        self.send(TopicKind::Effects, time_ms, value);
    }

    /// Most arrive at once and alone; a few later, an activation after its effects then, and a
    /// few again.
    fn send(&mut self, topic: TopicKind, time_ms: i64, value: Vec<u8>) {
        let is_late = self.chance(if topic == TopicKind::Activations { 8 } else { 3 });
        let delay_ms =
            if is_late { self.spread(MINUTE_MS, 8) } else { self.between(100, 4 * SECOND_MS) };
        let copies = match self.rng.u32(0..100) {
            0 => 3,
            1..3 => 2,
            _ => 1,
        };
        let mut arrival_ms = time_ms + delay_ms;
        for _ in 0..copies {
            self.deliveries.push(Delivery { topic, time_ms, arrival_ms, value: value.clone() });
            arrival_ms += self.between(0, 30 * SECOND_MS);
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(..from.len())]
    }

    fn between(&mut self, least: i64, end: i64) -> i64 {
        self.rng.i64(least..end)
    }

    /// From `least_ms` to that doubled so many times, and as often within each doubling: short
    /// times are likely, long ones possible.
    fn spread(&mut self, least_ms: i64, doublings: u32) -> i64 {
        let doubled_ms = least_ms << self.rng.u32(0..doublings);
        doubled_ms + self.rng.i64(0..doubled_ms)
    }

    fn id(&mut self, prefix: &str) -> String {
        format!("{prefix}-{:016x}", self.rng.u64(..))
    }
}
