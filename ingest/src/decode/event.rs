//! Builds a fact from the fields of an event, independent of the format.
//!
//! Parsing fills one flat struct of borrowed values, the same for every family. Then the fields of the event's family
//! are checked and copied into the fact.

use attribution::facts::event::{
    Activation, Device, Effect, Fact, Pairs, Pid, Touch, TouchHead, TouchKind, TouchParts,
};
use attribution::facts::placeholders::IgnoredReason;
use attribution::facts::{canonical, device_ids};
use attribution::rules::policy::{AppPolicy, Policy};
use serde::Deserialize;

use super::field_error::{FieldError, is_like_an_id};
use super::value::{Members, Slot, Value};
use super::{ErrorCode, field, limits};
use crate::kafka::topics::TopicKind;

/// Maximum length of an event, whatever the settings.
pub const EVENT_BYTES_MAX: usize = 1 << 20;

const TYPES: &str = "\"click\", \"impression\", \"activation\" or \"effect\"";
const APP: &str = "the key of an app of the configuration";
/// Maximum length of an unknown app's key in the message.
const APP_CHARS_MAX: usize = 64;

/// Defines an event from the index, name and JSON key of each field. `revenue` is defined separately, because its type
/// depends on the format.
macro_rules! event {
    ($($index:literal $field:ident $key:literal,)*) => {
        /// The names of [`Event`]'s fields.
        pub const FIELDS: [&str; 22] = [$($key,)* "revenue"];

        /// Every field of every family.
        #[derive(Default, Deserialize)]
        #[serde(bound(deserialize = "R: Deserialize<'de> + Default"))]
        pub struct Event<'a, R> {
            $(
                #[serde(borrow, default, rename = $key)]
                $field: Slot<'a>,
            )*
            #[serde(default)]
            pub revenue: R,
        }

        impl<'a, R> Event<'a, R> {
            /// Sets a field by its index in [`FIELDS`], at most once. `revenue` is set directly.
            pub fn set(&mut self, field: usize, value: Value<'a>) {
                let field = match field {
                    $($index => &mut self.$field,)*
                    _ => return,
                };
                field.set(value);
            }
        }
    };
}

event! {
    0 kind "type",
    1 app "app",
    2 time "time",
    3 ids "ids",
    4 ip "ip",
    5 ua "ua",
    6 device_model "device_model",
    7 os "os",
    8 os_version "os_version",
    9 click_id "click_id",
    10 spreadid "spreadid",
    11 purpose "purpose",
    12 lookback_ms "lookback_ms",
    13 site "site",
    14 params "params",
    15 event_id "event_id",
    16 install_begin_time "install_begin_time",
    17 app_version "app_version",
    18 props "props",
    19 name "name",
    20 currency "currency",
}

/// A decimal, kept exactly as written if the format has it as text.
pub trait Revenue {
    /// Returns the text; empty if absent.
    fn decimal(self) -> Result<Box<str>, FieldError>;
}

/// A fact, and what is no longer visible in it.
#[derive(Debug)]
pub struct Built {
    pub fact: Fact,
    /// Why its `event_id` was replaced by one derived from the content; `None` if it was not, or was absent.
    pub ignored_event_id: Option<IgnoredReason>,
}

enum Kind {
    Touch(TouchKind),
    Activation,
    Effect,
}

/// Builds the fact and computes its identity.
pub fn build<R: Revenue>(
    event: Event<'_, R>,
    topic: Option<TopicKind>,
    policy: &Policy,
) -> Result<Built, FieldError> {
    let kind = kind(event.kind.get(), topic)?;
    let app = app(event.app.get(), policy)?;
    let mut fact = match kind {
        Kind::Touch(kind) => {
            let fact = Fact::Touch(touch(event, app, kind)?);
            return Ok(Built { fact, ignored_event_id: None });
        }
        Kind::Activation => Fact::Activation(Box::new(activation(event, app.pid)?)),
        Kind::Effect => Fact::Effect(Box::new(effect(event, app.pid)?)),
    };
    let ignored_event_id = device_ids::ignored_event_id(fact.id());
    canonical::identify(&mut fact, &app.key);
    Ok(Built { fact, ignored_event_id })
}

/// Returns the event's type. It must be allowed on the topic, whose default applies if it is absent.
fn kind(value: &Value<'_>, topic: Option<TopicKind>) -> Result<Kind, FieldError> {
    let expected = match topic {
        Some(TopicKind::Clicks) => "\"click\" or \"impression\", or nothing, on this topic",
        Some(TopicKind::Activations) => "\"activation\", or nothing, on this topic",
        Some(TopicKind::Effects) => "\"effect\", or nothing, on this topic",
        None => TYPES,
    };
    let name = match value.text() {
        Some(name) => name,
        None if value.is_absent() => "",
        None => return Err(FieldError::wrong_type("type", value, expected)),
    };
    match (name, topic) {
        ("" | "click", Some(TopicKind::Clicks)) | ("click", None) => {
            Ok(Kind::Touch(TouchKind::Click))
        }
        ("impression", Some(TopicKind::Clicks) | None) => Ok(Kind::Touch(TouchKind::Impression)),
        ("" | "activation", Some(TopicKind::Activations)) | ("activation", None) => {
            Ok(Kind::Activation)
        }
        ("" | "effect", Some(TopicKind::Effects)) | ("effect", None) => Ok(Kind::Effect),
        ("", None) => Err(FieldError::missing("type", expected)),
        ("click" | "impression" | "activation" | "effect", _) => {
            Err(FieldError::bad_value("type", "for another topic", expected))
        }
        _ => Err(FieldError::bad_value("type", "unknown", expected)),
    }
}

fn app<'p>(value: &Value<'_>, policy: &'p Policy) -> Result<&'p AppPolicy, FieldError> {
    if let Some(app) = value.text().and_then(|key| policy.app_by_key(key)) {
        return Ok(app);
    }
    let key = field::required(field::unlimited_text(value, "app")?, "app")?;
    let shown: String = key.chars().take(APP_CHARS_MAX).collect();
    let problem =
        if is_like_an_id(key) { "unknown".into() } else { format!("unknown ({shown:?})") };
    Err(FieldError::bad_value("app", &problem, APP).with_code(ErrorCode::UnknownApp))
}

/// Copies the texts once, from the record to the touch.
fn touch<R>(
    mut event: Event<'_, R>,
    app: &AppPolicy,
    kind: TouchKind,
) -> Result<Touch, FieldError> {
    let (ids, params) = (event.ids.take(), event.params.take());
    let device = device(&event)?;
    let click_id = field::text(event.click_id.get(), "click_id", limits::ID)?;
    let head = TouchHead {
        pid: app.pid,
        kind,
        purpose: field::purpose(event.purpose.get())?,
        spreadid: field::spreadid(event.spreadid.get())?,
        time: field::required_time(event.time.get(), "time")?,
        lookback_ms: field::lookback_ms(event.lookback_ms.get())?,
    };
    let ids = field::ids(ids)?;
    let site = field::text(event.site.get(), "site", limits::ID)?;
    let params = field::pairs(params, "params")?;
    let has_id = ids.pairs().any(|(_, value)| !value.is_empty());
    if !has_id && click_id.is_empty() && device.ip.is_empty() {
        let mut error = FieldError::missing("click_id", "at least one of the three");
        error.problem.push_str(", and so are ids and ip");
        return Err(error);
    }
    let (ids, params) = (ids.pairs(), params.pairs());
    Ok(canonical::identified(TouchParts { head, click_id, ids, device, site, params }, &app.key))
}

fn activation<R>(mut event: Event<'_, R>, pid: Pid) -> Result<Activation, FieldError> {
    let device = device(&event)?.map(Box::from);
    Ok(Activation {
        pid,
        id: field::text(event.event_id.get(), "event_id", limits::ID)?.into(),
        time: field::required_time(event.time.get(), "time")?,
        install_begin_time: field::install_begin_time(event.install_begin_time.get())?,
        click_id: field::text(event.click_id.get(), "click_id", limits::ID)?.into(),
        ids: owned(&field::ids(event.ids.take())?),
        device,
        app_version: field::text(event.app_version.get(), "app_version", limits::NAME)?.into(),
        props: owned(&field::pairs(event.props.take(), "props")?),
    })
}

fn effect<R: Revenue>(mut event: Event<'_, R>, pid: Pid) -> Result<Effect, FieldError> {
    let device = device(&event)?.map(Box::from);
    Ok(Effect {
        pid,
        id: field::text(event.event_id.get(), "event_id", limits::ID)?.into(),
        name: field::required(field::text(event.name.get(), "name", limits::NAME)?, "name")?.into(),
        time: field::required_time(event.time.get(), "time")?,
        ids: owned(&field::ids(event.ids.take())?),
        device,
        app_version: field::text(event.app_version.get(), "app_version", limits::NAME)?.into(),
        revenue: event.revenue.decimal()?,
        currency: field::text(event.currency.get(), "currency", limits::CURRENCY)?.into(),
        props: owned(&field::pairs(event.props.take(), "props")?),
    })
}

fn device<'v, R>(event: &'v Event<'_, R>) -> Result<Device<&'v str>, FieldError> {
    let text = |slot: &'v Slot<'_>, field, limit| field::text(slot.get(), field, limit);
    Ok(Device {
        ip: text(&event.ip, "ip", limits::ID)?,
        ua: text(&event.ua, "ua", limits::LONG)?,
        model: text(&event.device_model, "device_model", limits::NAME)?,
        os: text(&event.os, "os", limits::NAME)?,
        os_version: text(&event.os_version, "os_version", limits::NAME)?,
    })
}

fn owned(members: &Members<'_>) -> Pairs {
    members.pairs().map(|(key, value)| (key.into(), value.into())).collect()
}
