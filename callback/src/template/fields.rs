//! The fields that a template may name, and their values.

use std::borrow::Cow;
use std::collections::BTreeMap;

use attribution::facts::event::TouchKind;
use attribution::rules::row::{AD_PARAMS, SUB_PARAMS};
use config::CallbackCredentials;
use config::nearest::nearest;

use crate::crypto::{AesKey, md5_hex};
use crate::event::{CallbackEvent, Credit};

/// The text in place of ids and tokens, where a person reads a request.
pub(crate) const HIDDEN: &str = "hidden";

/// Kinds of device ids, each also with `_md5`.
const IDS: [&str; 8] = ["oaid", "gaid", "idfa", "caid", "idfv", "imei", "android_id", "mac"];
const MD5: &str = "_md5";

const CREDENTIALS: [&str; 2] = ["secret", "access_token"];

const CREDIT: [&str; 11] = [
    "channel",
    "spreadid",
    "campaign",
    "touch_type",
    "touch_time",
    "is_view",
    "match_type",
    "purpose",
    "click_id",
    "callback",
    "site",
];

const EVENT: [&str; 28] = [
    "id",
    "kind",
    "revision",
    "type",
    "now",
    "nonce",
    "app",
    "app_name",
    "event_id",
    "event_name",
    "time",
    "status",
    "install_type",
    "reject_reason",
    "activation_id",
    "activation_time",
    "ip",
    "ua",
    "device_model",
    "os",
    "os_version",
    "app_version",
    "revenue",
    "currency",
    "props",
    "ids",
    "device_id",
    "device_id_kind",
];

/// The ids that may be `device_id`, best first.
const DEVICE_ID: [&str; 4] = ["oaid", "oaid_md5", "imei", "imei_md5"];

/// The name of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Field {
    Event(&'static str),
    Credit(&'static str),
    Previous(&'static str),
    Param(Box<str>),
    Id(Box<str>),
    /// One of the endpoint's settings.
    Value(Box<str>),
    Credential(&'static str),
}

impl Field {
    pub fn parse(name: &str) -> Result<Self, String> {
        if let Some((table, key)) = name.split_once('.') {
            match table {
                "params" if !key.is_empty() => return Ok(Self::Param(key.into())),
                "values" if !key.is_empty() => return Ok(Self::Value(key.into())),
                "ids" => return id(key),
                "previous" => {
                    let known = find(key, &CREDIT, "a field of a credit")?;
                    return Ok(Self::Previous(known));
                }
                "credentials" => {
                    return find(key, &CREDENTIALS, "one of the credentials").map(Self::Credential);
                }
                _ => {}
            }
        }
        if let Ok(known) = find(name, &CREDIT, "a field") {
            return Ok(Self::Credit(known));
        }
        find(name, &EVENT, "a field").map(Self::Event)
    }

    /// Checks whether logs and pages must not show the value.
    pub fn is_private(&self) -> bool {
        match self {
            Self::Event(name) => matches!(*name, "ip" | "ids" | "device_id"),
            Self::Credit(name) | Self::Previous(name) => matches!(*name, "callback" | "click_id"),
            Self::Id(_) | Self::Credential(_) => true,
            Self::Param(name) => is_private_param(name),
            Self::Value(_) => false,
        }
    }
}

/// Checks whether logs and pages must not show a param of a touch: it can be an id of a person, as that of a player.
pub(crate) fn is_private_param(name: &str) -> bool {
    !AD_PARAMS.contains(&name) && !SUB_PARAMS.contains(&name)
}

fn find(name: &str, names: &[&'static str], what: &str) -> Result<&'static str, String> {
    names.iter().find(|known| **known == name).copied().ok_or_else(|| {
        let nearest = nearest(name, names.iter().copied()).unwrap_or_default();
        format!("expected {what}, the nearest is {nearest:?}: {name:?}")
    })
}

fn id(key: &str) -> Result<Field, String> {
    let kind = key.strip_suffix(MD5).unwrap_or(key);
    find(kind, &IDS, "a device id").map(|_| Field::Id(key.into()))
}

/// The values of the fields of one callback.
pub(crate) struct Values<'a> {
    pub event: &'a CallbackEvent,
    /// What the endpoint calls the event.
    pub event_type: &'a str,
    /// The time of the attempt.
    pub now_ms: i64,
    pub settings: &'a BTreeMap<Box<str>, Box<str>>,
    pub credentials: &'a CallbackCredentials,
    pub key: Option<&'a AesKey>,
    /// Ids and tokens are replaced by [`HIDDEN`].
    pub hidden: bool,
}

impl<'a> Values<'a> {
    /// Returns `None` if the value is not known.
    pub fn value(&self, field: &Field) -> Option<Cow<'a, str>> {
        let value = match field {
            Field::Event(name) => self.event_value(name),
            Field::Credit(name) => credit_value(&self.event.credit, name),
            Field::Previous(name) => credit_value(self.event.previous.as_ref()?, name),
            Field::Param(name) => text(self.event.credit.params.get(name)?),
            Field::Id(name) => self.id(name),
            Field::Value(name) => text(self.settings.get(name)?),
            Field::Credential("secret") => text(self.credentials.secret.as_ref()?.expose()),
            Field::Credential(_) => text(self.credentials.access_token.as_ref()?.expose()),
        };
        value.map(|value| if self.hides(field) { HIDDEN.into() } else { value })
    }

    /// Checks whether the value of the field is replaced.
    pub fn hides(&self, field: &Field) -> bool {
        self.hidden && field.is_private()
    }

    pub fn encrypt(&self, text: &str) -> Option<String> {
        self.key?.encrypt(text)
    }

    fn event_value(&self, name: &str) -> Option<Cow<'a, str>> {
        let event = self.event;
        match name {
            "id" => text(&event.id),
            "kind" => text(event.kind.name()),
            "revision" => Some(event.revision.to_string().into()),
            "type" => text(self.event_type),
            "now" => Some(self.now_ms.to_string().into()),
            "nonce" => Some(md5_hex(format!("{}.{}", event.id, self.now_ms)).into()),
            "app" => text(&event.app),
            "app_name" => text(&event.app_name),
            "event_id" => text(&event.event_id),
            "event_name" => text(&event.name),
            "time" => Some(event.time_ms.to_string().into()),
            "status" => text(&event.status),
            "install_type" => text(&event.install_type),
            "reject_reason" => text(&event.reject_reason),
            "activation_id" => text(&event.activation_id),
            "activation_time" => event.activation_time_ms.map(|ms| ms.to_string().into()),
            "ip" => text(&event.ip),
            "ua" => text(&event.ua),
            "device_model" => text(&event.device_model),
            "os" => text(&event.os),
            "os_version" => text(&event.os_version),
            "app_version" => text(&event.app_version),
            "revenue" => text(&event.revenue),
            "currency" => text(&event.currency),
            "props" => json(&event.props),
            "ids" => json(&event.ids),
            "device_id" => DEVICE_ID.into_iter().find_map(|name| self.known_id(name)),
            "device_id_kind" => {
                let mut names = DEVICE_ID.into_iter();
                names.find(|name| self.known_id(name).is_some()).map(Cow::Borrowed)
            }
            _ => None,
        }
    }

    /// Returns a device id; the MD5 of one that is known as it is, if its MD5 is not.
    fn id(&self, name: &str) -> Option<Cow<'a, str>> {
        self.known_id(name).or_else(|| {
            let raw = self.known_id(name.strip_suffix(MD5)?)?;
            Some(md5_hex(raw.as_bytes()).into())
        })
    }

    fn known_id(&self, name: &str) -> Option<Cow<'a, str>> {
        self.event.ids.get(name).and_then(|id| text(id))
    }
}

fn credit_value<'a>(credit: &'a Credit, name: &str) -> Option<Cow<'a, str>> {
    match name {
        "channel" => text(&credit.channel),
        "spreadid" => (credit.spreadid != 0).then(|| credit.spreadid.to_string().into()),
        "campaign" => text(&credit.campaign),
        "touch_type" => text(&credit.touch_type),
        "touch_time" => credit.touch_time_ms.map(|ms| ms.to_string().into()),
        "is_view" => match &*credit.touch_type {
            "" => None,
            touch_type => text(if touch_type == TouchKind::Impression.name() { "1" } else { "0" }),
        },
        "match_type" => text(&credit.match_type),
        "purpose" => text(&credit.purpose),
        "click_id" => text(&credit.click_id),
        "callback" => text(&credit.callback),
        "site" => text(&credit.site),
        _ => None,
    }
}

fn text(text: &str) -> Option<Cow<'_, str>> {
    (!text.is_empty()).then_some(Cow::Borrowed(text))
}

/// Returns the pairs as a JSON object; `None` if there are none.
fn json(pairs: &BTreeMap<Box<str>, Box<str>>) -> Option<Cow<'static, str>> {
    if pairs.is_empty() {
        return None;
    }
    let pairs: serde_json::Map<_, _> =
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string().into())).collect();
    Some(serde_json::Value::Object(pairs).to_string().into())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::event::tests::event;

    pub(crate) fn with_values(check: impl Fn(&Values<'_>)) {
        with(false, check);
    }

    pub(crate) fn with_hidden_values(check: impl Fn(&Values<'_>)) {
        with(true, check);
    }

    fn with(hidden: bool, check: impl Fn(&Values<'_>)) {
        let text = "[[callbacks.endpoint]]\nname = \"a\"\npreset = \"p\"\nvalues.account = \"12\"\n\
                    credentials.secret = \"hunter2\"\n";
        let settings = config::parse(text).unwrap().callbacks.endpoints.remove(0);
        check(&Values {
            event: &event(),
            event_type: "pay",
            now_ms: 1_773_160_001_000,
            settings: &settings.values,
            credentials: &settings.credentials,
            key: None,
            hidden,
        });
    }

    #[test]
    fn every_field_has_a_value() {
        with_values(|values| {
            for name in EVENT.into_iter().filter(|name| *name != "reject_reason") {
                assert!(values.value(&Field::parse(name).unwrap()).is_some(), "{name}");
            }
            for name in CREDIT {
                assert!(values.value(&Field::parse(name).unwrap()).is_some(), "{name}");
                assert_eq!(values.value(&Field::parse(&format!("previous.{name}")).unwrap()), None);
            }
        });
    }

    #[test]
    fn values_are_those_of_the_event_and_the_settings() {
        let check = |name: &str, expected: Option<&str>| {
            let field = Field::parse(name).unwrap();
            with_values(|values| assert_eq!(values.value(&field).as_deref(), expected, "{name}"));
        };
        check("type", Some("pay"));
        check("now", Some("1773160001000"));
        check("kind", Some("effect"));
        check("params.sub1", Some("a b"));
        check("params.sub2", None);
        check("values.account", Some("12"));
        check("values.other", None);
        check("credentials.secret", Some("hunter2"));
        check("credentials.access_token", None);
        check("ids.imei_md5", Some("0c2bd03c39f19845bf54ea0abafae70e"));
        check("ids.imei", None);
        check("ids.oaid_md5", Some("87f8274c36eb73fabcbf143a10eca6a4"));
        check("reject_reason", None);
        check("device_id", Some(crate::event::tests::OAID));
        check("device_id_kind", Some("oaid"));
        check("nonce", Some("72666a97fa8d7d73ea4ba73a4407d34d"));
    }
}
