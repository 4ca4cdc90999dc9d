//! Describes a fact in a line: `click("c1", "03-09T12:00").retargeting()`.

use attribution::facts::canonical;
use attribution::facts::event::{
    Activation, Device, Effect, EventTime, Fact, Pairs, Purpose, SpreadId, TouchFields, TouchKind,
    sort_pairs,
};

use super::rules::{X, Y, app_key};

/// The time of the activation in the contract's cases.
pub const A: &str = "03-10T12:00:00.000";
/// The device in the contract's cases.
pub const D: &str = "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5";

pub const SECOND: i64 = 1_000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;
pub const DAY: i64 = 24 * HOUR;

/// A time, or its text `MM-DDTHH:MM[:SS[.mmm]]` in 2026.
pub trait When {
    fn time(self) -> EventTime;
}

impl When for EventTime {
    fn time(self) -> EventTime {
        self
    }
}

impl When for &str {
    fn time(self) -> EventTime {
        let (date, clock) = self.split_once('T').expect("a date, T and a time");
        let date: Vec<i64> = date.split('-').map(|part| part.parse().unwrap()).collect();
        let [month, day] = date[..] else { panic!("not a date: {self}") };
        let (clock, ms) = clock.split_once('.').unwrap_or((clock, "000"));
        let clock: Vec<i64> = clock.split(':').map(|part| part.parse().unwrap()).collect();
        let seconds = clock.iter().fold(0, |sum, part| sum * 60 + part)
            * if clock.len() == 2 { 60 } else { 1 };
        // 20,454 days from 1970 to 2026, then the days of the earlier months.
        let months = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let days = 20_454 + months[..month as usize - 1].iter().sum::<i64>() + day - 1;
        millis(days * DAY + seconds * SECOND + ms.parse::<i64>().unwrap())
    }
}

pub fn millis(millis: i64) -> EventTime {
    EventTime::from_millis(millis).expect("a time from 1970 to 9999")
}

/// Returns the contract's time A plus `ms`.
pub fn a_plus(ms: i64) -> EventTime {
    millis(A.time().millis() as i64 + ms)
}

/// A fact under construction, of device D by default.
#[derive(Debug, Clone)]
pub struct Draft(Fields);

#[derive(Debug, Clone)]
enum Fields {
    Touch(TouchFields),
    Activation(Activation),
    Effect(Effect),
}

/// Returns a click of the campaign whose number is in its id, or of campaign 7 if the id has no digits.
pub fn click(id: &str, time: impl When) -> Draft {
    touch(TouchKind::Click, id, time)
}

pub fn impression(id: &str, time: impl When) -> Draft {
    touch(TouchKind::Impression, id, time)
}

fn touch(kind: TouchKind, id: &str, time: impl When) -> Draft {
    let number: String = id.chars().filter(char::is_ascii_digit).collect();
    Draft(Fields::Touch(TouchFields {
        pid: X,
        id: Box::default(),
        click_id: id.into(),
        kind,
        purpose: Purpose::Ua,
        spreadid: SpreadId(number.parse().unwrap_or(7)),
        time: time.time(),
        lookback_ms: None,
        ids: oaid(),
        device: Device::default(),
        site: Box::default(),
        params: Pairs::new(),
    }))
}

pub fn activation(id: &str, time: impl When) -> Draft {
    Draft(Fields::Activation(Activation {
        pid: X,
        id: id.into(),
        time: time.time(),
        install_begin_time: None,
        click_id: Box::default(),
        ids: oaid(),
        device: Device::default(),
        app_version: Box::default(),
        props: Pairs::new(),
    }))
}

pub fn effect(id: &str, time: impl When) -> Draft {
    Draft(Fields::Effect(Effect {
        pid: X,
        id: id.into(),
        name: "purchase".into(),
        time: time.time(),
        ids: oaid(),
        device: Device::default(),
        app_version: Box::default(),
        revenue: Box::default(),
        currency: Box::default(),
        props: Pairs::new(),
    }))
}

fn oaid() -> Pairs {
    vec![("oaid".into(), D.into())]
}

impl From<Draft> for Fact {
    fn from(Draft(fields): Draft) -> Self {
        let mut fact = match fields {
            Fields::Touch(fields) => Self::Touch(fields.into()),
            Fields::Activation(activation) => Self::Activation(Box::new(activation)),
            Fields::Effect(effect) => Self::Effect(Box::new(effect)),
        };
        let app = app_key(fact.pid());
        canonical::identify(&mut fact, app);
        fact
    }
}

/// Gives each fact its identity.
pub fn identified(drafts: impl IntoIterator<Item = Draft>) -> Vec<Fact> {
    drafts.into_iter().map(Fact::from).collect()
}

impl Draft {
    /// Removes all device ids.
    pub fn without_ids(mut self) -> Self {
        self.ids().clear();
        self
    }

    /// Replaces all device ids with this one.
    pub fn only(self, kind: &str, value: &str) -> Self {
        self.without_ids().and(kind, value)
    }

    /// Adds a device id.
    pub fn and(mut self, kind: &str, value: &str) -> Self {
        let ids = self.ids();
        ids.push((kind.into(), value.into()));
        sort_pairs(ids);
        self
    }

    /// Adds values of device ids; a kind may have several.
    pub fn and_all(mut self, values: impl IntoIterator<Item = (String, String)>) -> Self {
        let ids = self.ids();
        ids.extend(values.into_iter().map(|(kind, value)| (kind.into(), value.into())));
        ids.sort_by(|a, b| a.0.cmp(&b.0));
        self
    }

    pub fn ip(mut self, ip: &str) -> Self {
        self.device().ip = ip.into();
        self
    }

    pub fn ua(mut self, ua: &str) -> Self {
        self.device().ua = ua.into();
        self
    }

    /// Sets this model, with Android 14.
    pub fn model(mut self, model: &str) -> Self {
        let device = self.device();
        device.model = model.into();
        device.os = "android".into();
        device.os_version = "14".into();
        self
    }

    pub fn os(mut self, os: &str, version: &str) -> Self {
        let device = self.device();
        device.os = os.into();
        device.os_version = version.into();
        self
    }

    /// Moves the fact to app Y.
    pub fn of_app_y(mut self) -> Self {
        match &mut self.0 {
            Fields::Touch(touch) => touch.pid = Y,
            Fields::Activation(activation) => activation.pid = Y,
            Fields::Effect(effect) => effect.pid = Y,
        }
        self
    }

    pub fn prop(mut self, key: &str, value: &str) -> Self {
        let pairs = match &mut self.0 {
            Fields::Touch(touch) => &mut touch.params,
            Fields::Activation(activation) => &mut activation.props,
            Fields::Effect(effect) => &mut effect.props,
        };
        pairs.push((key.into(), value.into()));
        sort_pairs(pairs);
        self
    }

    pub fn campaign(self, spreadid: u32) -> Self {
        self.touch(|touch| touch.spreadid = SpreadId(spreadid))
    }

    pub fn retargeting(self) -> Self {
        self.touch(|touch| touch.purpose = Purpose::Retargeting)
    }

    pub fn lookback(self, ms: i64) -> Self {
        self.touch(|touch| touch.lookback_ms = Some(ms as u64))
    }

    pub fn site(self, site: &str) -> Self {
        self.touch(|touch| touch.site = site.into())
    }

    /// Sets the click id that the app store's referrer passed on.
    pub fn click_id(self, click_id: &str) -> Self {
        self.activation(|activation| activation.click_id = click_id.into())
    }

    pub fn install_begin(self, time: impl When) -> Self {
        self.activation(|activation| activation.install_begin_time = Some(time.time()))
    }

    pub fn name(self, name: &str) -> Self {
        self.effect(|effect| effect.name = name.into())
    }

    pub fn revenue(self, revenue: &str, currency: &str) -> Self {
        self.effect(|effect| {
            effect.revenue = revenue.into();
            effect.currency = currency.into();
        })
    }

    fn touch(mut self, change: impl FnOnce(&mut TouchFields)) -> Self {
        let Fields::Touch(touch) = &mut self.0 else { panic!("only a touch has this field") };
        change(touch);
        self
    }

    fn activation(mut self, change: impl FnOnce(&mut Activation)) -> Self {
        let Fields::Activation(activation) = &mut self.0 else {
            panic!("only an activation has this field")
        };
        change(activation);
        self
    }

    fn effect(mut self, change: impl FnOnce(&mut Effect)) -> Self {
        let Fields::Effect(effect) = &mut self.0 else { panic!("only an effect has this field") };
        change(effect);
        self
    }

    fn ids(&mut self) -> &mut Pairs {
        match &mut self.0 {
            Fields::Touch(touch) => &mut touch.ids,
            Fields::Activation(activation) => &mut activation.ids,
            Fields::Effect(effect) => &mut effect.ids,
        }
    }

    fn device(&mut self) -> &mut Device {
        match &mut self.0 {
            Fields::Touch(touch) => &mut touch.device,
            Fields::Activation(activation) => &mut activation.device,
            Fields::Effect(effect) => &mut effect.device,
        }
    }
}
