//! What a callback can say, as the caller knows it from a decision and its facts.

use std::collections::BTreeMap;

use attribution::outbox::port::Claim;
use attribution::outbox::record::CallbackKind;
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
    /// The credit before, of [`CallbackKind::ActivationChanged`].
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
    /// Returns the id of the callback to an endpoint with this claim: the same in all attempts and every process, of 35
    /// characters.
    pub fn id_of(claim: &Claim) -> Box<str> {
        let parts = [claim.key.endpoint.as_str(), &*claim.id()];
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
    use attribution::facts::event::{EventTime, Family, Pid, SpreadId};
    use attribution::facts::keys::{FactKey, MatchKey};
    use attribution::outbox::record::{CreditMark, EndpointId, OutboxKey};
    use attribution::rules::row::Status;

    use super::*;

    pub(crate) const OAID: &str = "97e7ef3f-e5f2-d0b8-ccfc-f79bbeaf4841";

    fn pairs(of: &[(&str, &str)]) -> BTreeMap<Box<str>, Box<str>> {
        of.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn an_id_is_of_one_callback() {
        use CallbackKind::{Activation, Effect};
        let claim = |endpoint: &str, event: u64, kind, fingerprint: u64, attempt: u32| {
            let event =
                FactKey { family: Family::Effect, id: MatchKey(event), pid: Pid(1), tag: 1 };
            let (status, spreadid) = (Status::Attributed, SpreadId(7));
            let key = OutboxKey { endpoint: EndpointId::new(endpoint), event, kind };
            let credit = CreditMark { fingerprint, status, spreadid };
            let at = EventTime::default();
            let (sent_before, maybe_sent_before) = (0, None);
            Claim { key, credit, revision: 1, attempt, sent_before, at, maybe_sent_before }
        };
        let id = CallbackEvent::id_of(&claim("a", 1, Effect, 1, 1));
        assert!(id.len() == 35 && id.starts_with("cb_") && !id.contains('.'), "{id}");
        assert_eq!(id, CallbackEvent::id_of(&claim("a", 1, Effect, 1, 2)), "another attempt");
        for other in [
            claim("b", 1, Effect, 1, 1),
            claim("a", 2, Effect, 1, 1),
            claim("a", 1, Activation, 1, 1),
            claim("a", 1, Effect, 2, 1),
        ] {
            assert_ne!(id, CallbackEvent::id_of(&other));
        }
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
