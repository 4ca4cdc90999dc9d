//! What a callback can say, as the caller knows it from a decision and its facts.

use std::collections::BTreeMap;

use config::CallbackKind;
use xxhash_rust::xxh3::xxh3_128;

/// An activation or an effect, with the decision about it. Texts that are not known are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackEvent {
    /// Identifies the callback in all its attempts, so that a receiver recognises a repetition: see
    /// [`CallbackEvent::id_of`].
    pub id: Box<str>,
    pub kind: CallbackKind,
    /// The revision of the decision.
    pub revision: u32,
    /// The key of the app.
    pub app: Box<str>,
    pub app_name: Box<str>,
    pub event_id: Box<str>,
    /// `activation`, or the name of the effect.
    pub name: Box<str>,
    /// Milliseconds since 1970, as all times.
    pub time_ms: i64,
    pub status: Box<str>,
    pub install_type: Box<str>,
    pub reject_reason: Box<str>,
    /// The activation itself, or that of the effect.
    pub activation_id: Box<str>,
    pub activation_time_ms: Option<i64>,
    pub credit: Credit,
    /// The credit before, of [`CallbackKind::Changed`].
    pub previous: Option<Credit>,
    /// The device ids that are known, by the names of the collector's fields, such as `oaid` and `imei_md5`. Those of
    /// the touch complete those of the event.
    pub ids: BTreeMap<Box<str>, Box<str>>,
    pub ip: Box<str>,
    pub ua: Box<str>,
    pub device_model: Box<str>,
    pub os: Box<str>,
    pub os_version: Box<str>,
    pub app_version: Box<str>,
    /// A decimal.
    pub revenue: Box<str>,
    pub currency: Box<str>,
    pub props: BTreeMap<Box<str>, Box<str>>,
    /// The effects of the same name of the same activation that precede this one, in any order. Only read for
    /// endpoints that [need them](crate::Endpoint::needs_earlier).
    pub earlier: Vec<Earlier>,
}

impl CallbackEvent {
    /// Returns the id of the callback of this kind about an event: the same in every process, of 35 characters. Each
    /// change of a credit is a callback of its own, so that the id of one depends on the revision.
    pub fn id_of(
        endpoint: &str,
        app: &str,
        event_id: &str,
        kind: CallbackKind,
        revision: u32,
    ) -> Box<str> {
        let revision = match kind {
            CallbackKind::Changed => revision.to_string(),
            CallbackKind::Activation | CallbackKind::Effect | CallbackKind::Rejected => {
                String::new()
            }
        };
        let parts = [endpoint, app, event_id, kind.name(), &*revision];
        format!("cb_{:032x}", xxh3_128(parts.join("\0").as_bytes())).into()
    }
}

/// Which touch of which campaign has the credit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Credit {
    pub channel: Box<str>,
    /// 0 without a campaign.
    pub spreadid: u32,
    /// The name of the campaign.
    pub campaign: Box<str>,
    /// `click` or `impression`.
    pub touch_type: Box<str>,
    pub touch_time_ms: Option<i64>,
    pub match_type: Box<str>,
    /// `ua` or `retargeting`.
    pub purpose: Box<str>,
    pub click_id: Box<str>,
    /// The token or the URL by which the network recognises the touch.
    pub callback: Box<str>,
    pub site: Box<str>,
    /// The params of the touch, such as `campaign_id` and `sub1`.
    pub params: BTreeMap<Box<str>, Box<str>>,
}

/// An effect that precedes another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Earlier {
    pub time_ms: i64,
    pub revenue: Box<str>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const OAID: &str = "97e7ef3f-e5f2-d0b8-ccfc-f79bbeaf4841";

    fn pairs(of: &[(&str, &str)]) -> BTreeMap<Box<str>, Box<str>> {
        of.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn an_id_is_of_one_callback() {
        use CallbackKind::{Activation, Changed, Effect};
        let id = CallbackEvent::id_of("a", "app-x", "e-1", Effect, 1);
        assert!(id.len() == 35 && id.starts_with("cb_") && !id.contains('.'), "{id}");
        assert_eq!(id, CallbackEvent::id_of("a", "app-x", "e-1", Effect, 2));
        for (endpoint, app, event_id, kind) in [
            ("b", "app-x", "e-1", Effect),
            ("a", "app-y", "e-1", Effect),
            ("a", "app-x", "e-2", Effect),
            ("a", "app-x", "e-1", Activation),
        ] {
            assert_ne!(id, CallbackEvent::id_of(endpoint, app, event_id, kind, 1));
        }
        let changed = |revision| CallbackEvent::id_of("a", "app-x", "e-1", Changed, revision);
        assert_ne!(changed(1), changed(2));
    }

    /// A purchase of an app, credited to a click.
    pub(crate) fn event() -> CallbackEvent {
        let credit = Credit {
            channel: "toutiao".into(),
            spreadid: 7,
            campaign: "Spring".into(),
            touch_type: "click".into(),
            touch_time_ms: Some(1_773_144_000_000),
            match_type: "oaid".into(),
            purpose: "ua".into(),
            click_id: "c-1".into(),
            callback: "token/1=".into(),
            site: "site-1".into(),
            params: pairs(&[("campaign_id", "cmp"), ("sub1", "a b")]),
        };
        CallbackEvent {
            id: "cb_1".into(),
            kind: CallbackKind::Effect,
            revision: 2,
            app: "app-x".into(),
            app_name: "App X".into(),
            event_id: "e-1".into(),
            name: "purchase".into(),
            time_ms: 1_773_160_000_999,
            status: "attributed".into(),
            install_type: "install".into(),
            reject_reason: "".into(),
            activation_id: "a-1".into(),
            activation_time_ms: Some(1_773_150_000_000),
            credit,
            previous: None,
            ids: pairs(&[("oaid", OAID), ("imei_md5", "0c2bd03c39f19845bf54ea0abafae70e")]),
            ip: "203.0.113.9".into(),
            ua: "Mozilla/5.0 (x)".into(),
            device_model: "M".into(),
            os: "android".into(),
            os_version: "14".into(),
            app_version: "1.2".into(),
            revenue: "9.99".into(),
            currency: "CNY".into(),
            props: pairs(&[("level", "3")]),
            earlier: Vec::new(),
        }
    }

    pub(crate) fn activation() -> CallbackEvent {
        CallbackEvent {
            id: "cb_0".into(),
            kind: CallbackKind::Activation,
            event_id: "a-1".into(),
            name: "activation".into(),
            time_ms: 1_773_150_000_000,
            revenue: "".into(),
            currency: "".into(),
            props: BTreeMap::new(),
            ..event()
        }
    }
}
