//! One device of the traffic, from its first click to a purchase after its reinstall.

use fastrand::Rng;
use testbed::traffic::Family;

use crate::traffic::{
    APPS, Becomes, HOUR_MS, MINUTE_MS, PROBABILISTIC, START_MS, Sent, Traffic, mixed,
};

const ACTIVATES_MS: u64 = 10 * MINUTE_MS;
const PAYS_MS: u64 = 20 * MINUTE_MS;
const REPEATS_MS: u64 = 30 * MINUTE_MS;
const CLICKS_LATE_MS: u64 = 45 * MINUTE_MS;
const PAYS_AGAIN_MS: u64 = 3 * HOUR_MS;
/// After the correction horizon.
const CLICKS_TOO_LATE_MS: u64 = 4 * HOUR_MS;
/// After the reattribution window.
const REINSTALLS_MS: u64 = 13 * HOUR_MS;
const PAYS_LAST_MS: u64 = REINSTALLS_MS + 20 * MINUTE_MS;

pub type Stage = fn(&Device, &mut Vec<Sent>);

/// The stages of a device, each with its delay after the first stage.
pub const STAGES: [(u64, Stage); 9] = [
    (0, Device::clicks),
    (ACTIVATES_MS, Device::activates),
    (PAYS_MS, |device, sent| device.pays(0, sent)),
    (REPEATS_MS, Device::repeats),
    (CLICKS_LATE_MS, Device::clicks_late),
    (PAYS_AGAIN_MS, |device, sent| device.pays(1, sent)),
    (CLICKS_TOO_LATE_MS, Device::clicks_too_late),
    (REINSTALLS_MS, Device::reinstalls),
    (PAYS_LAST_MS, Device::pays_after_reinstall),
];

pub struct Device {
    /// Also the device's name.
    seed: u64,
    app: usize,
    has_id: bool,
    began_ms: u64,
    activation_ms: u64,
    effects_ms: [u64; 2],
    reinstall_ms: u64,
    reinstall_effect_ms: u64,
    touches: u64,
    activates: bool,
    effects: usize,
    /// 0 to 99: selects special behaviour of the device.
    variant: u32,
}

impl Device {
    pub fn new(traffic: &Traffic, began: i64, number: u64) -> Self {
        let seed = mixed(traffic.seed, began.cast_unsigned(), number);
        let mut rng = Rng::with_seed(seed);
        let at = |delay_ms: u64| {
            let ticks = delay_ms.div_ceil(traffic.step_ms).cast_signed();
            START_MS.saturating_add_signed((began + ticks) * traffic.step_ms.cast_signed())
        };
        let app = rng.choice([0, 0, 0, 0, 0, 1, 1, 2, 3, 4]).unwrap_or_default();
        let activation_ms = at(ACTIVATES_MS) - rng.u64(..MINUTE_MS);
        Self {
            seed,
            app,
            has_id: app != PROBABILISTIC || rng.u32(..10) > 0,
            began_ms: at(0),
            activation_ms,
            effects_ms: [PAYS_MS, PAYS_AGAIN_MS].map(|ms| at(ms) - rng.u64(..MINUTE_MS)),
            reinstall_ms: at(REINSTALLS_MS) - rng.u64(..MINUTE_MS),
            reinstall_effect_ms: at(PAYS_LAST_MS),
            touches: rng.u64(1..=3),
            activates: rng.u32(..100) < 60,
            effects: rng.usize(..=2),
            variant: rng.u32(..100),
        }
    }

    fn clicks(&self, sent: &mut Vec<Sent>) {
        for touch in 0..self.touches {
            let time_ms = self.began_ms - 1_000 * touch;
            sent.push(self.sent(Family::Touch, self.touch(touch, time_ms), Becomes::Fact));
        }
    }

    fn activates(&self, sent: &mut Vec<Sent>) {
        if !self.activates {
            return;
        }
        let line = self.activation("a", self.activation_ms, "second");
        sent.push(self.sent(Family::Activation, line, Becomes::Fact));
        if self.variant < 5 {
            let line = self.activation("d", self.activation_ms + 30_000, "second");
            sent.push(self.sent(Family::Activation, line, Becomes::Fact));
        }
    }

    fn pays(&self, number: usize, sent: &mut Vec<Sent>) {
        if self.activates && number < self.effects {
            let line = self.effect(&format!("e{number}"), self.effects_ms[number]);
            sent.push(self.sent(Family::Effect, line, Becomes::Fact));
        }
    }

    /// Sends some events again; one variant changes the content of the activation.
    fn repeats(&self, sent: &mut Vec<Sent>) {
        if self.began_ms < START_MS || !(5..15).contains(&self.variant) {
            return;
        }
        sent.push(self.sent(Family::Touch, self.touch(0, self.began_ms), Becomes::Repeat));
        if self.activates {
            // "first" sorts before "second", so it becomes the canonical content.
            let content = if self.variant == 5 { "first" } else { "second" };
            let line = self.activation("a", self.activation_ms, content);
            sent.push(self.sent(Family::Activation, line, Becomes::Repeat));
        }
    }

    /// Sends a late click from before the activation. It gets the credit.
    fn clicks_late(&self, sent: &mut Vec<Sent>) {
        if (15..25).contains(&self.variant) {
            let line = self.touch(9, self.activation_ms - 1_000);
            sent.push(self.sent(Family::Touch, line, Becomes::Fact));
        }
    }

    fn clicks_too_late(&self, sent: &mut Vec<Sent>) {
        if self.variant == 25 {
            let line = self.touch(8, self.began_ms);
            sent.push(self.sent(Family::Touch, line, Becomes::DeadLetter));
        }
    }

    fn reinstalls(&self, sent: &mut Vec<Sent>) {
        if self.activates && (26..30).contains(&self.variant) {
            let line = self.activation("r", self.reinstall_ms, "second");
            sent.push(self.sent(Family::Activation, line, Becomes::Fact));
        }
    }

    fn pays_after_reinstall(&self, sent: &mut Vec<Sent>) {
        if self.activates && (26..30).contains(&self.variant) {
            let line = self.effect("er", self.reinstall_effect_ms);
            sent.push(self.sent(Family::Effect, line, Becomes::Fact));
        }
    }

    fn sent(&self, family: Family, line: String, becomes: Becomes) -> Sent {
        Sent { family, app: self.app, line: Some(line), becomes }
    }

    fn touch(&self, number: u64, time_ms: u64) -> String {
        let Self { app, seed, .. } = self;
        let kind = if number == 1 { "impression" } else { "click" };
        let spreadid = 10 * (*app as u64 + 1) + seed.wrapping_add(number) % 3;
        let (id, site) = (format!("c-{seed:x}-{number}"), seed % 1000);
        let fields = format!(r#""click_id":"{id}","spreadid":{spreadid},"site":"site-{site}""#);
        self.event(kind, time_ms, &fields)
    }

    fn activation(&self, prefix: &str, time_ms: u64, content: &str) -> String {
        let id = format!("{prefix}-{:x}", self.seed);
        let fields = format!(r#""event_id":"{id}","props":{{"content":"{content}"}}"#);
        self.event("activation", time_ms, &fields)
    }

    fn effect(&self, prefix: &str, time_ms: u64) -> String {
        let id = format!("{prefix}-{:x}", self.seed);
        let fields = r#""name":"purchase","revenue":"9.99","currency":"CNY""#;
        self.event("effect", time_ms, &format!(r#""event_id":"{id}",{fields}"#))
    }

    /// Returns an event with these fields and those of the device: an address, and mostly an id.
    fn event(&self, kind: &str, time_ms: u64, fields: &str) -> String {
        let Self { seed, .. } = self;
        let app = APPS[self.app];
        let ids = match self.has_id {
            true => format!(r#""ids":{{"oaid":"{}"}},"#, oaid(*seed)),
            false => String::new(),
        };
        let [a, b, c, d] = [48, 32, 16, 0].map(|bits| seed >> bits & 0xffff);
        let model = seed % 97;
        format!(
            r#"{{"type":"{kind}","app":"{app}","time":{time_ms},{fields},{ids}"ip":"2001:db8::{a:x}:{b:x}:{c:x}:{d:x}","ua":"Mozilla/5.0 (Linux; Android 14; V{model}) AppleWebKit/537.36 Mobile Safari/537.36","device_model":"V{model}","os":"android","os_version":"14"}}"#
        )
    }
}

/// Returns a device id, different for every number.
pub fn oaid(number: u64) -> String {
    let [a, b] = [number >> 32, number & 0xffff_ffff];
    format!("{a:08x}-aaaa-4bbb-8ccc-0000{b:08x}")
}
