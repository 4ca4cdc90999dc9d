//! The row that an export shows: one per activation and per effect.

use crate::facts::device_ids::IdKind;
use crate::facts::event::{
    Device, EventTime, IdSpace, Pairs, Pid, Purpose, SpreadId, Touch, TouchKind, pairs_bytes,
};
use crate::facts::identity::identity;

/// An event and the decision about it. The names of app, campaign and channel are not stored; they come from the
/// catalogue when a row is exported.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Row {
    pub pid: Pid,
    pub event_time: EventTime,
    /// The credited campaign; 0 if there is none.
    pub spreadid: SpreadId,
    /// [`seq`] of the event id, so a redelivered event gets the same row key.
    pub seq: u64,
    /// One more than the revision of the row that it replaces.
    pub revision: u32,
    pub event_type: EventType,
    /// `activation`, or the effect's name.
    pub event_name: Box<str>,
    pub event_id: Box<str>,
    pub status: Status,
    /// The class of the activation, or of the effect's activation.
    pub install_type: Option<InstallType>,
    pub touch: Option<CreditedTouch>,
    /// The activation itself, or the one that the effect inherits from.
    pub activation: Option<ActivationRef>,
    pub reject_reason: Option<RejectReason>,
    /// At most [`CONTRIBUTORS_MAX`], newest first.
    pub contributors: Vec<Contributor>,
    /// Normalised, in the order of [`IdKind::ALL`].
    pub ids: [Box<str>; IdKind::ALL.len()],
    pub device: Device,
    pub app_version: Box<str>,
    pub revenue: Box<str>,
    pub currency: Box<str>,
    pub props: Pairs,
}

pub const CONTRIBUTORS_MAX: usize = 3;

crate::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum EventType {
        Activation = "activation",
        Effect = "effect",
    }
}

crate::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Status {
        Attributed = "attributed",
        Organic = "organic",
        Unattributed = "unattributed",
        Rejected = "rejected",
        Duplicate = "duplicate",
        Orphan = "orphan",
    }
}

crate::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum InstallType {
        Install = "install",
        Reinstall = "reinstall",
        Duplicate = "duplicate",
    }
}

/// The key by which a touch matched an activation. An MD5 match has the name of its id kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchType {
    ClickId,
    Device(IdKind),
    IpDevice,
    IpUa,
}

crate::named! {
    /// Append only, because rows and decisions store the index; an unknown reason is stored as none.
    ///
    /// To add a rule: describe it in `docs/contract.md` (section 4), set it in [`Fraud`] by
    /// `config/src/sections/fraud.rs` and `config/example.toml`, apply it in `candidate.rs` and in the slow reference
    /// of `store/tests/support`, explain it in `export/src/explain/view.rs` and `docs/explain.md`, and add cases to
    /// `conformance/4-rejects`.
    ///
    /// [`Fraud`]: super::policy::Fraud
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum RejectReason {
        Blocked = "blocked",
        ClickInjection = "click_injection",
        CtitTooShort = "ctit_too_short",
        TooManyClicks = "too_many_clicks",
        BadSignature = "bad_signature",
    }
}

/// The touch that an activation is credited to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CreditedTouch {
    pub kind: TouchKind,
    pub time: EventTime,
    pub click_id: Box<str>,
    pub match_type: MatchType,
    pub details: Box<TouchDetails>,
}

impl CreditedTouch {
    /// Checks whether this is the touch, of those of the same app.
    pub fn is(&self, touch: &Touch) -> bool {
        (self.kind, &*self.click_id) == (touch.kind, touch.id())
    }
}

/// Further row columns about the touch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TouchDetails {
    pub purpose: Purpose,
    /// The window that applied to the touch.
    pub lookback_ms: u64,
    pub site: Box<str>,
    /// The params `sub1` to `sub5`.
    pub subs: [Box<str>; SUBS],
    pub ad: Option<Box<AdDetails>>,
}

/// The params of a touch that rows contain.
pub const SUB_PARAMS: [&str; SUBS] = ["sub1", "sub2", "sub3", "sub4", "sub5"];
const SUBS: usize = 5;

/// What a touch says about its ad. Decisions keep it, because touches expire long before the last callback to the ad
/// network.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AdDetails {
    /// The param [`CALLBACK_PARAM`].
    pub callback: Box<str>,
    /// The params [`AD_PARAMS`].
    pub params: [Box<str>; AD_PARAMS.len()],
}

/// The param with the token by which the ad network recognises the touch. Who knows it can report events to the
/// network, so it is in no log and no explanation.
pub const CALLBACK_PARAM: &str = "callback";

/// The params that name an ad, in the order of their bytes. The collector writes them.
pub const AD_PARAMS: [&str; 9] = [
    "ad_id",
    "ad_name",
    "adset_id",
    "adset_name",
    "campaign_id",
    "campaign_name",
    "channel",
    "creative_id",
    "creative_name",
];

impl AdDetails {
    /// Returns `None` if all texts are empty, so that equal details are equal values.
    pub fn non_empty(callback: Box<str>, params: [Box<str>; AD_PARAMS.len()]) -> Option<Box<Self>> {
        let is_empty = callback.is_empty() && params.iter().all(|param| param.is_empty());
        (!is_empty).then(|| Box::new(Self { callback, params }))
    }

    /// Returns the names and values of the params that are not empty.
    pub fn named_params(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let params = AD_PARAMS.into_iter().zip(self.params.iter().map(|param| &**param));
        params.filter(|(_, value)| !value.is_empty())
    }

    pub fn has_callback(&self) -> bool {
        !self.callback.is_empty()
    }

    fn without_callback(&self) -> Option<Box<Self>> {
        Self::non_empty(Box::default(), self.params.clone())
    }

    fn bytes(&self) -> usize {
        let params = self.params.iter().map(|param| param.len()).sum::<usize>();
        size_of::<Self>() + self.callback.len() + params
    }
}

/// An accepted touch that did not win.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Contributor {
    pub spreadid: SpreadId,
    pub kind: TouchKind,
    pub time: EventTime,
    pub match_type: MatchType,
    pub ad: Option<Box<AdDetails>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ActivationRef {
    pub id: Box<str>,
    pub time: EventTime,
    pub details: ActivationDetails,
}

/// Further row columns about the activation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ActivationDetails {
    pub install_begin_time: Option<EventTime>,
    /// The prop [`STORE_PROP`].
    pub store: Box<str>,
    /// For an effect that carries the credit of an earlier install than its activation: the id of that install.
    pub credit_of: Box<str>,
}

/// The prop that names the app store from which the app was installed.
pub const STORE_PROP: &str = "store";

impl Row {
    /// Returns the approximate size in memory.
    pub fn bytes(&self) -> usize {
        let texts = [&self.event_name, &self.event_id, &self.app_version];
        let texts = texts.into_iter().chain([&self.revenue, &self.currency]).chain(&self.ids);
        let texts: usize = texts.map(|text| text.len()).sum();
        let touch = self.touch.as_ref().map_or(0, CreditedTouch::text_bytes);
        let activation = self.activation.as_ref().map_or(0, ActivationRef::text_bytes);
        let contributors = self.contributors.iter().map(Contributor::bytes).sum::<usize>();
        let device = self.device.text_bytes();
        size_of::<Self>()
            + texts
            + touch
            + activation
            + contributors
            + device
            + pairs_bytes(&self.props)
    }
}

impl CreditedTouch {
    /// Returns the touch as effects have it: its callback token stays with the activation.
    pub fn without_callback(&self) -> Self {
        let TouchDetails { purpose, lookback_ms, site, subs, ad } = &*self.details;
        let details = TouchDetails {
            purpose: *purpose,
            lookback_ms: *lookback_ms,
            site: site.clone(),
            subs: subs.clone(),
            ad: ad.as_deref().and_then(AdDetails::without_callback),
        };
        Self {
            kind: self.kind,
            time: self.time,
            click_id: self.click_id.clone(),
            match_type: self.match_type,
            details: Box::new(details),
        }
    }

    /// Returns the approximate size of the texts in memory.
    pub fn text_bytes(&self) -> usize {
        let TouchDetails { site, subs, ad, .. } = &*self.details;
        let subs = subs.iter().map(|sub| sub.len()).sum::<usize>();
        let ad = ad.as_deref().map_or(0, AdDetails::bytes);
        size_of::<TouchDetails>() + self.click_id.len() + site.len() + subs + ad
    }
}

impl Contributor {
    /// Returns the contributor as effects have it: the details of its ad stay with the activation.
    pub fn without_ad(&self) -> Self {
        let Self { spreadid, kind, time, match_type, ad: _ } = *self;
        Self { spreadid, kind, time, match_type, ad: None }
    }

    /// Returns the approximate size in memory.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.ad.as_deref().map_or(0, AdDetails::bytes)
    }
}

impl ActivationRef {
    fn text_bytes(&self) -> usize {
        self.id.len() + self.details.store.len() + self.details.credit_of.len()
    }
}

/// Returns the last part of a row key: a hash of the event's identity.
pub fn seq(event_type: EventType, event_id: &str) -> u64 {
    identity(event_type.into(), event_id).row
}

impl From<EventType> for IdSpace {
    fn from(event_type: EventType) -> Self {
        match event_type {
            EventType::Activation => Self::Activation,
            EventType::Effect => Self::Effect,
        }
    }
}

impl MatchType {
    /// Append only, because rows store the index. So far it is also the contract's order of rank.
    pub const ALL: [Self; 11] = [
        Self::ClickId,
        Self::Device(IdKind::Oaid),
        Self::Device(IdKind::Gaid),
        Self::Device(IdKind::Idfa),
        Self::Device(IdKind::Caid),
        Self::Device(IdKind::Idfv),
        Self::Device(IdKind::Imei),
        Self::Device(IdKind::AndroidId),
        Self::Device(IdKind::Mac),
        Self::IpDevice,
        Self::IpUa,
    ];

    #[inline]
    pub fn name(self) -> &'static str {
        match self {
            Self::ClickId => "click_id",
            Self::Device(kind) => kind.name(),
            Self::IpDevice => "ip_device",
            Self::IpUa => "ip_ua",
        }
    }

    /// Returns the rank; a greater one is better. `oaid`, `gaid` and `idfa` have the same rank.
    pub fn rank(self) -> u8 {
        match self {
            Self::ClickId => 9,
            Self::Device(IdKind::Oaid | IdKind::Gaid | IdKind::Idfa) => 8,
            Self::Device(IdKind::Caid) => 7,
            Self::Device(IdKind::Idfv) => 6,
            Self::Device(IdKind::Imei) => 5,
            Self::Device(IdKind::AndroidId) => 4,
            Self::Device(IdKind::Mac) => 3,
            Self::IpDevice => 2,
            Self::IpUa => 1,
        }
    }

    pub fn is_probabilistic(self) -> bool {
        matches!(self, Self::IpDevice | Self::IpUa)
    }
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    /// Rows store indexes into these lists, so new values are only appended.
    #[test]
    fn stored_indexes_never_change() {
        let types = EventType::ALL.map(EventType::name);
        assert_eq!(types, ["activation", "effect"]);
        let statuses = Status::ALL.map(Status::name);
        assert_eq!(
            statuses,
            ["attributed", "organic", "unattributed", "rejected", "duplicate", "orphan"]
        );
        let classes = InstallType::ALL.map(InstallType::name);
        assert_eq!(classes, ["install", "reinstall", "duplicate"]);
        let keys = MatchType::ALL.map(MatchType::name);
        let by_id =
            ["click_id", "oaid", "gaid", "idfa", "caid", "idfv", "imei", "android_id", "mac"];
        assert_eq!(keys, [&by_id[..], &["ip_device", "ip_ua"]].concat()[..]);
        let reasons = RejectReason::ALL.map(RejectReason::name);
        assert_eq!(
            reasons,
            ["blocked", "click_injection", "ctit_too_short", "too_many_clicks", "bad_signature"]
        );
    }

    /// The JSON of a contributor's params has the order of the list.
    #[test]
    fn params_of_ads_are_sorted() {
        assert!(AD_PARAMS.is_sorted());
    }

    #[test]
    fn details_without_a_text_are_none() {
        assert_eq!(AdDetails::non_empty("".into(), Default::default()), None);
        let token = AdDetails::non_empty("t".into(), Default::default()).unwrap();
        assert_eq!(token.without_callback(), None);
        let mut params = <[Box<str>; AD_PARAMS.len()]>::default();
        params[2] = "3".into();
        let both = AdDetails::non_empty("t".into(), params.clone()).unwrap();
        assert_eq!(both.without_callback(), AdDetails::non_empty("".into(), params));
        assert_eq!(both.named_params().collect::<Vec<_>>(), [("adset_id", "3")]);
    }

    /// The second id of each pair was constructed to have the same xxh3 as the first one.
    #[test]
    fn ids_with_colliding_xxh3_have_separate_rows() {
        let xxh3 = |event_type: EventType, id: &str| {
            xxh3_64(&[&[IdSpace::from(event_type) as u8], id.as_bytes()].concat())
        };
        let pairs = [
            (
                EventType::Effect,
                "0d9c6f4e-7a51-4c1b-9b52-5f0e0c2d7a11",
                "59nes7s9drazsjsb1t5da168lz6bo0q9y2rc2db9m84z5nnbmbtt66rkoxcohuq2nb9j99ynmxemnejvww3tap4xqyxb0liczfn9bplofcrdwv98i0r65gcwsm6pzit",
            ),
            (
                EventType::Activation,
                "11111111-2222-4333-8444-555555555555",
                "k2cfhj3pu36w9hnjswl1nckc09ays4a4z2ydw7ku0ryivgyofmhc6lzk7gsghubur04neaj8mlcjf4oujcqc3w68mlgjyqpjfw01paavclhpsaa7g25ye0ctl0e8qo7",
            ),
        ];
        for (event_type, id, colliding) in pairs {
            assert_eq!(xxh3(event_type, id), xxh3(event_type, colliding));
            assert_ne!(seq(event_type, id), seq(event_type, colliding));
        }
    }
}
