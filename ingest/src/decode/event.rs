//! Builds a fact from the fields of an event, independent of the format.
//!
//! Parsing fills one flat struct of borrowed values, the same for every family. Then the fields of the event's family
//! are checked and copied into the fact.

use attribution::facts::event::{
    Activation, Device, Effect, Fact, Pid, Touch, TouchFields, TouchKind,
};
use attribution::facts::placeholders::IgnoredReason;
use attribution::facts::{canonical, device_ids};
use attribution::rules::policy::{AppPolicy, Policy};
use serde::Deserialize;

use super::field_error::{FieldError, is_like_an_id};
use super::value::{Slot, Value};
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
    mut event: Event<'_, R>,
    topic: Option<TopicKind>,
    policy: &Policy,
) -> Result<Built, FieldError> {
    let kind = kind(event.kind.get(), topic)?;
    let app = app(event.app.take(), policy)?;
    let mut fact = match kind {
        Kind::Touch(kind) => Fact::Touch(touch(event, app.pid, kind)?),
        Kind::Activation => Fact::Activation(Box::new(activation(event, app.pid)?)),
        Kind::Effect => Fact::Effect(Box::new(effect(event, app.pid)?)),
    };
    let ignored_event_id = match &fact {
        Fact::Touch(_) => None,
        Fact::Activation(_) | Fact::Effect(_) => device_ids::ignored_event_id(fact.id()),
    };
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

fn app<'p>(value: Value<'_>, policy: &'p Policy) -> Result<&'p AppPolicy, FieldError> {
    if let Some(app) = value.text().and_then(|key| policy.app_by_key(key)) {
        return Ok(app);
    }
    let key = field::required(field::unlimited_text(value, "app")?, "app")?;
    let shown: String = key.chars().take(APP_CHARS_MAX).collect();
    let problem =
        if is_like_an_id(&key) { "unknown".into() } else { format!("unknown ({shown:?})") };
    Err(FieldError::bad_value("app", &problem, APP).with_code(ErrorCode::UnknownApp))
}

fn touch<R>(mut event: Event<'_, R>, pid: Pid, kind: TouchKind) -> Result<Touch, FieldError> {
    let device = device(&mut event)?;
    let touch = TouchFields {
        pid,
        id: Box::default(),
        click_id: field::text(event.click_id.take(), "click_id", limits::ID)?,
        kind,
        purpose: field::purpose(event.purpose.get())?,
        spreadid: field::spreadid(event.spreadid.get())?,
        time: field::required_time(event.time.get(), "time")?,
        lookback_ms: field::lookback_ms(event.lookback_ms.get())?,
        ids: field::ids(event.ids.take())?,
        device,
        site: field::text(event.site.take(), "site", limits::ID)?,
        params: field::pairs(event.params.take(), "params")?,
    };
    let has_id = touch.ids.iter().any(|(_, value)| !value.is_empty());
    if has_id || !touch.click_id.is_empty() || !touch.device.ip.is_empty() {
        return Ok(touch.into());
    }
    let mut error = FieldError::missing("click_id", "at least one of the three");
    error.problem.push_str(", and so are ids and ip");
    Err(error)
}

fn activation<R>(mut event: Event<'_, R>, pid: Pid) -> Result<Activation, FieldError> {
    let device = device(&mut event)?;
    Ok(Activation {
        pid,
        id: field::text(event.event_id.take(), "event_id", limits::ID)?,
        time: field::required_time(event.time.get(), "time")?,
        install_begin_time: field::install_begin_time(event.install_begin_time.get())?,
        click_id: field::text(event.click_id.take(), "click_id", limits::ID)?,
        ids: field::ids(event.ids.take())?,
        device,
        app_version: field::text(event.app_version.take(), "app_version", limits::NAME)?,
        props: field::pairs(event.props.take(), "props")?,
    })
}

fn effect<R: Revenue>(mut event: Event<'_, R>, pid: Pid) -> Result<Effect, FieldError> {
    let device = device(&mut event)?;
    Ok(Effect {
        pid,
        id: field::text(event.event_id.take(), "event_id", limits::ID)?,
        name: field::required(field::text(event.name.take(), "name", limits::NAME)?, "name")?,
        time: field::required_time(event.time.get(), "time")?,
        ids: field::ids(event.ids.take())?,
        device,
        app_version: field::text(event.app_version.take(), "app_version", limits::NAME)?,
        revenue: event.revenue.decimal()?,
        currency: field::text(event.currency.take(), "currency", limits::CURRENCY)?,
        props: field::pairs(event.props.take(), "props")?,
    })
}

fn device<R>(event: &mut Event<'_, R>) -> Result<Device, FieldError> {
    let text = |slot: &mut Slot<'_>, field, limit| field::text(slot.take(), field, limit);
    Ok(Device {
        ip: text(&mut event.ip, "ip", limits::ID)?,
        ua: text(&mut event.ua, "ua", limits::LONG)?,
        model: text(&mut event.device_model, "device_model", limits::NAME)?,
        os: text(&mut event.os, "os", limits::NAME)?,
        os_version: text(&mut event.os_version, "os_version", limits::NAME)?,
    })
}
