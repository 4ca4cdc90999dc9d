//! The facts with which the store is filled: several clicks per device, and activations with three effects each.

use std::fmt::Write;

use attribution::facts::event::{
    Activation, Device, Effect, EventTime, Fact, Pid, Purpose, SpreadId, Touch, TouchFields,
    TouchKind,
};

use crate::support::{START_MS, oaid};

/// The apps of consecutive rows differ, as in Kafka.
pub const APPS: u64 = 20;
const TOUCHES_PER_DEVICE: u64 = 5;
const STEP_MS: u64 = 10;

pub fn settings(memory: &str) -> String {
    let mut text = format!(
        "[attribution]\ncorrection_horizon = \"off\"\n[store]\nmemory = \"{memory}\"\n\
         [[channels]]\nid = \"channel-1\"\n"
    );
    for app in 1..=APPS {
        let _ = write!(
            text,
            "[[apps]]\npid = {app}\nkey = \"app-{app}\"\n\
             [[campaigns]]\nspreadid = {app}\npid = {app}\nchannel = \"channel-1\"\n"
        );
    }
    text
}

/// Returns click `number` of `total`: about 440 bytes as JSON.
pub fn click(number: u64, total: u64) -> Touch {
    let device = device_of(number, total);
    let id = format!("c-{number:016x}{:016x}", mixed(number));
    let fields = TouchFields {
        pid: Pid(1),
        id: id.as_str().into(),
        click_id: id.into(),
        kind: TouchKind::Click,
        purpose: Purpose::Ua,
        spreadid: SpreadId(1),
        time: time(number),
        lookback_ms: None,
        ids: vec![("oaid".into(), oaid(device).into())],
        device: handset(device),
        site: format!("site-network-{}", number % 1000).into(),
        params: vec![("sub1".into(), format!("creative-{}", number % 50).into())],
    };
    fields.into()
}

/// Returns the device of a click. Consecutive clicks have different devices, so they are not adjacent in the store.
fn device_of(number: u64, total: u64) -> u64 {
    number % devices(total)
}

pub fn devices(touches: u64) -> u64 {
    (touches / TOUCHES_PER_DEVICE).max(1)
}

/// Returns event `number` of those with rows: each activation is followed by its three effects.
pub fn event(number: u64) -> Fact {
    let (activation, effect) = (number / 4, number % 4);
    let pid = Pid((mixed(activation) % APPS) as u32 + 1);
    let ids = vec![("oaid".into(), oaid(activation).into())];
    if effect == 0 {
        return Fact::Activation(Box::new(Activation {
            pid,
            id: format!("a-{activation}").into(),
            time: time(number),
            install_begin_time: None,
            click_id: "".into(),
            ids,
            device: handset(activation),
            app_version: "1.2".into(),
            props: vec![("store".into(), "huawei".into())],
        }));
    }
    Fact::Effect(Box::new(Effect {
        pid,
        id: format!("e-{activation}-{effect}").into(),
        name: "purchase".into(),
        time: time(number + 1_000 * effect),
        ids,
        device: handset(activation),
        app_version: "1.2".into(),
        revenue: "9.99".into(),
        currency: "CNY".into(),
        props: vec![("level".into(), "3".into())],
    }))
}

fn handset(device: u64) -> Device {
    let model = device % 97;
    Device {
        ip: format!("203.0.{}.{}", device >> 8 & 0xff, device & 0xff).into(),
        ua: format!(
            "Mozilla/5.0 (Linux; Android 14; V{model}) AppleWebKit/537.36 (KHTML, like Gecko) \
             Chrome/126.0.6478.122 Mobile Safari/537.36"
        )
        .into(),
        model: format!("V{model}").into(),
        os: "android".into(),
        os_version: "14".into(),
    }
}

pub fn time(number: u64) -> EventTime {
    EventTime::from_millis((START_MS + number * STEP_MS) as i64).expect("the time is in range")
}

/// Mixes the bits of a number, bijectively, so that ids are distinct.
fn mixed(number: u64) -> u64 {
    let mixed = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xd6e8_feb8_6659_fd93)
}
