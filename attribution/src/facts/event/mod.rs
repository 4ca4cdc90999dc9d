//! The facts: touches, activations and effects of one app, as received.
//!
//! Text fields hold what the producer sent; an absent text is empty. Ids are stored as received and normalised on use
//! (`device_ids`), so a stored fact can always be compared with a redelivered one.

mod pairs;
mod touch;

use pairs::normalised_bytes;
pub(crate) use pairs::pairs_bytes;
pub use pairs::{Pairs, TextPairs, sort_pairs, value};
pub use touch::{Touch, TouchFields, TouchHead, TouchParts};

/// An event as a producer reported it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    Touch(Touch),
    Activation(Box<Activation>),
    Effect(Box<Effect>),
}

crate::named! {
    /// The kinds of fact, each in a table of its own.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Family {
        Touch = "touch",
        Activation = "activation",
        Effect = "effect",
    }
}

/// The events among which an id identifies one fact of an app. Stored keys are hashes of the discriminant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdSpace {
    Click = 0,
    Activation = 1,
    Effect = 2,
    Impression = 3,
}

impl IdSpace {
    pub fn family(self) -> Family {
        match self {
            Self::Click | Self::Impression => Family::Touch,
            Self::Activation => Family::Activation,
            Self::Effect => Family::Effect,
        }
    }
}

impl From<TouchKind> for IdSpace {
    fn from(kind: TouchKind) -> Self {
        match kind {
            TouchKind::Click => Self::Click,
            TouchKind::Impression => Self::Impression,
        }
    }
}

/// The numeric id of an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pid(pub u32);

/// The numeric id of a promotion campaign; 0 means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SpreadId(pub u32);

/// Milliseconds since 1970-01-01T00:00:00Z, at most the end of the year 9999: fits 48 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct EventTime(u64);

impl EventTime {
    pub const MAX: Self = Self(253_402_300_799_999);
    /// The exclusive end of a range that holds every event time.
    pub const END: Self = Self(Self::MAX.0 + 1);

    /// Returns `None` for times before 1970 or after 9999.
    #[inline]
    pub fn from_millis(millis: i64) -> Option<Self> {
        u64::try_from(millis).ok().map(Self).filter(|time| *time <= Self::MAX)
    }

    #[inline]
    pub fn millis(self) -> u64 {
        self.0
    }

    /// Returns the time `ms` later, at most [`EventTime::MAX`].
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms)).min(Self::MAX)
    }

    /// Returns the time `ms` earlier, at least 1970.
    pub fn minus(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(ms))
    }

    /// Returns the milliseconds since `earlier`; `None` if `earlier` is after this time.
    pub fn since(self, earlier: Self) -> Option<u64> {
        self.0.checked_sub(earlier.0)
    }
}

crate::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum TouchKind {
        Impression = "impression",
        Click = "click",
    }
}

crate::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Purpose {
        /// User acquisition.
        Ua = "ua",
        Retargeting = "retargeting",
    }
}

/// Attributes of the device that an event happened on, without its ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Device<T = Box<str>> {
    pub ip: T,
    pub ua: T,
    pub model: T,
    pub os: T,
    pub os_version: T,
}

/// The first start of an app on a device, or a later start that an SDK reports as an activation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Activation {
    pub pid: Pid,
    /// Identity: the event id, or `#` and the MD5 of the canonical content.
    pub id: Box<str>,
    pub time: EventTime,
    pub install_begin_time: Option<EventTime>,
    /// The store referrer's click id, as received.
    pub click_id: Box<str>,
    pub ids: Pairs,
    pub device: Device,
    pub app_version: Box<str>,
    pub props: Pairs,
}

/// An in-app event, such as a registration or a purchase.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Effect {
    pub pid: Pid,
    /// Identity: the event id, or `#` and the MD5 of the canonical content.
    pub id: Box<str>,
    pub name: Box<str>,
    pub time: EventTime,
    pub ids: Pairs,
    pub device: Device,
    pub app_version: Box<str>,
    /// A decimal number, exactly as received.
    pub revenue: Box<str>,
    pub currency: Box<str>,
    pub props: Pairs,
}

impl Fact {
    pub fn id_space(&self) -> IdSpace {
        match self {
            Self::Touch(touch) => touch.kind.into(),
            Self::Activation(_) => IdSpace::Activation,
            Self::Effect(_) => IdSpace::Effect,
        }
    }

    pub fn pid(&self) -> Pid {
        match self {
            Self::Touch(touch) => touch.pid,
            Self::Activation(activation) => activation.pid,
            Self::Effect(effect) => effect.pid,
        }
    }

    /// Returns the same fact for another app. No other field depends on the `pid`.
    pub fn with_pid(mut self, pid: Pid) -> Self {
        match &mut self {
            Self::Touch(touch) => touch.pid = pid,
            Self::Activation(activation) => activation.pid = pid,
            Self::Effect(effect) => effect.pid = pid,
        }
        self
    }

    pub fn id(&self) -> &str {
        match self {
            Self::Touch(touch) => touch.id(),
            Self::Activation(activation) => &activation.id,
            Self::Effect(effect) => &effect.id,
        }
    }

    /// Returns the ids as received.
    pub fn ids(&self) -> TextPairs<'_> {
        match self {
            Self::Touch(touch) => touch.ids(),
            Self::Activation(activation) => (&activation.ids).into(),
            Self::Effect(effect) => (&effect.ids).into(),
        }
    }

    pub fn device(&self) -> Device<&str> {
        match self {
            Self::Touch(touch) => touch.device(),
            Self::Activation(activation) => activation.device.borrowed(),
            Self::Effect(effect) => effect.device.borrowed(),
        }
    }

    pub fn time(&self) -> EventTime {
        match self {
            Self::Touch(touch) => touch.time,
            Self::Activation(activation) => activation.time,
            Self::Effect(effect) => effect.time,
        }
    }

    /// Returns the approximate size in memory, with the normalised ids.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Touch(touch) => touch.bytes(),
            Self::Activation(activation) => activation.bytes(),
            Self::Effect(effect) => effect.bytes(),
        }
    }
}

impl Activation {
    /// Returns the approximate size in memory, with the normalised ids.
    pub fn bytes(&self) -> usize {
        let texts = [&self.id, &self.click_id, &self.app_version].map(|text| text.len());
        let texts = texts.iter().sum::<usize>() + self.device.text_bytes();
        size_of::<Self>() + texts + id_bytes(&self.ids) + pairs_bytes(&self.props)
    }
}

impl Effect {
    /// Returns the approximate size in memory, with the normalised ids.
    pub fn bytes(&self) -> usize {
        let texts = [&self.id, &self.name, &self.app_version, &self.revenue, &self.currency];
        let texts = texts.map(|text| text.len()).iter().sum::<usize>() + self.device.text_bytes();
        size_of::<Self>() + texts + id_bytes(&self.ids) + pairs_bytes(&self.props)
    }
}

/// Returns the approximate size in memory of received ids and of their normalised forms.
fn id_bytes(ids: &Pairs) -> usize {
    pairs_bytes(ids) + normalised_bytes(ids.into())
}

impl<T> Device<T> {
    pub fn map<U>(self, mut change: impl FnMut(T) -> U) -> Device<U> {
        let Self { ip, ua, model, os, os_version } = self;
        Device {
            ip: change(ip),
            ua: change(ua),
            model: change(model),
            os: change(os),
            os_version: change(os_version),
        }
    }
}

impl Device {
    pub fn borrowed(&self) -> Device<&str> {
        let Self { ip, ua, model, os, os_version } = self;
        Device { ip, ua, model, os, os_version }
    }

    pub(crate) fn text_bytes(&self) -> usize {
        [&self.ip, &self.ua, &self.model, &self.os, &self.os_version]
            .map(|text| text.len())
            .iter()
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_end_with_the_year_9999() {
        assert_eq!(EventTime::from_millis(-1), None);
        assert_eq!(EventTime::from_millis(253_402_300_800_000), None);
        assert_eq!(EventTime::from_millis(0), Some(EventTime::default()));
        assert!(EventTime::MAX.millis() < 1 << 48);
    }
}
