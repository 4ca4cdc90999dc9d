//! Builds a fact from the fields of an event, independent of the format.
//!
//! Parsing fills one flat struct of borrowed values for every family. Then the fields of the event's family are checked
//! and copied into the fact.

use attribution::facts::canonical;
use attribution::facts::event::{Activation, Device, Effect, Fact, Pid, Touch, TouchKind};
use attribution::rules::policy::{AppPolicy, Policy};
use serde::Deserialize;

use super::field_error::{FieldError, is_like_an_id};
use super::value::{Slot, Value};
use super::{ErrorCode, field};
use crate::kafka::topics::TopicKind;

/// Maximum length of an event.
pub const EVENT_BYTES_MAX: usize = 1 << 20;

const TYPES: &str = "\"click\", \"impression\", \"activation\" or \"effect\"";
const APP: &str = "the key of an app of the configuration";
/// Maximum length of an unknown app's key in the message.
const APP_CHARS_MAX: usize = 64;

/// The names of [`Event`]'s fields.
pub const FIELDS: [&str; 22] = [
    "type",
    "app",
    "time",
    "ids",
    "ip",
    "ua",
    "device_model",
    "os",
    "os_version",
    "click_id",
    "spreadid",
    "purpose",
    "lookback_ms",
    "site",
    "params",
    "event_id",
    "install_begin_time",
    "app_version",
    "props",
    "name",
    "revenue",
    "currency",
];

/// Every field of every family.
#[derive(Default, Deserialize)]
#[serde(bound(deserialize = "R: Deserialize<'de> + Default"))]
pub struct Event<'a, R> {
    #[serde(borrow, default, rename = "type")]
    kind: Slot<'a>,
    #[serde(borrow, default)]
    app: Slot<'a>,
    #[serde(borrow, default)]
    time: Slot<'a>,
    #[serde(borrow, default)]
    ids: Slot<'a>,
    #[serde(borrow, default)]
    ip: Slot<'a>,
    #[serde(borrow, default)]
    ua: Slot<'a>,
    #[serde(borrow, default)]
    device_model: Slot<'a>,
    #[serde(borrow, default)]
    os: Slot<'a>,
    #[serde(borrow, default)]
    os_version: Slot<'a>,
    #[serde(borrow, default)]
    click_id: Slot<'a>,
    #[serde(borrow, default)]
    spreadid: Slot<'a>,
    #[serde(borrow, default)]
    purpose: Slot<'a>,
    #[serde(borrow, default)]
    lookback_ms: Slot<'a>,
    #[serde(borrow, default)]
    site: Slot<'a>,
    #[serde(borrow, default)]
    params: Slot<'a>,
    #[serde(borrow, default)]
    event_id: Slot<'a>,
    #[serde(borrow, default)]
    install_begin_time: Slot<'a>,
    #[serde(borrow, default)]
    app_version: Slot<'a>,
    #[serde(borrow, default)]
    props: Slot<'a>,
    #[serde(borrow, default)]
    name: Slot<'a>,
    #[serde(default)]
    pub revenue: R,
    #[serde(borrow, default)]
    currency: Slot<'a>,
}

impl<'a, R> Event<'a, R> {
    /// Sets a field by its index in [`FIELDS`], at most once. `revenue` is set directly.
    pub fn set(&mut self, field: usize, value: Value<'a>) {
        let field = match field {
            0 => &mut self.kind,
            1 => &mut self.app,
            2 => &mut self.time,
            3 => &mut self.ids,
            4 => &mut self.ip,
            5 => &mut self.ua,
            6 => &mut self.device_model,
            7 => &mut self.os,
            8 => &mut self.os_version,
            9 => &mut self.click_id,
            10 => &mut self.spreadid,
            11 => &mut self.purpose,
            12 => &mut self.lookback_ms,
            13 => &mut self.site,
            14 => &mut self.params,
            15 => &mut self.event_id,
            16 => &mut self.install_begin_time,
            17 => &mut self.app_version,
            18 => &mut self.props,
            19 => &mut self.name,
            21 => &mut self.currency,
            _ => return,
        };
        field.set(value);
    }
}

/// A decimal, kept exactly as written if the format has it as text.
pub trait Revenue {
    /// Returns the text; empty if absent.
    fn decimal(self) -> Result<Box<str>, FieldError>;
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
) -> Result<Fact, FieldError> {
    let kind = kind(event.kind.get(), topic)?;
    let app = app(event.app.take(), policy)?;
    let mut fact = match kind {
        Kind::Touch(kind) => Fact::Touch(Box::new(touch(event, app.pid, kind)?)),
        Kind::Activation => Fact::Activation(Box::new(activation(event, app.pid)?)),
        Kind::Effect => Fact::Effect(Box::new(effect(event, app.pid)?)),
    };
    canonical::identify(&mut fact, &app.key);
    Ok(fact)
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
    let key = field::required_text(value, "app")?;
    let shown: String = key.chars().take(APP_CHARS_MAX).collect();
    let problem =
        if is_like_an_id(&key) { "unknown".into() } else { format!("unknown ({shown:?})") };
    let mut error = FieldError::bad_value("app", &problem, APP);
    error.code = ErrorCode::UnknownApp;
    Err(error)
}

fn touch<R>(mut event: Event<'_, R>, pid: Pid, kind: TouchKind) -> Result<Touch, FieldError> {
    let device = device(&mut event)?;
    let touch = Touch {
        pid,
        id: Box::default(),
        click_id: field::text(event.click_id.take(), "click_id")?,
        kind,
        purpose: field::purpose(event.purpose.get())?,
        spreadid: field::spreadid(event.spreadid.get())?,
        time: field::required_time(event.time.get(), "time")?,
        lookback_ms: field::lookback_ms(event.lookback_ms.get())?,
        ids: field::pairs(event.ids.take(), "ids")?,
        device,
        site: field::text(event.site.take(), "site")?,
        params: field::pairs(event.params.take(), "params")?,
    };
    let has_id = touch.ids.iter().any(|(_, value)| !value.is_empty());
    if has_id || !touch.click_id.is_empty() || !touch.device.ip.is_empty() {
        return Ok(touch);
    }
    let mut error = FieldError::missing("click_id", "at least one of the three");
    error.problem.push_str(", and so are ids and ip");
    Err(error)
}

fn activation<R>(mut event: Event<'_, R>, pid: Pid) -> Result<Activation, FieldError> {
    let device = device(&mut event)?;
    Ok(Activation {
        pid,
        id: field::text(event.event_id.take(), "event_id")?,
        time: field::required_time(event.time.get(), "time")?,
        install_begin_time: field::optional_time(
            event.install_begin_time.get(),
            "install_begin_time",
        )?,
        click_id: field::text(event.click_id.take(), "click_id")?,
        ids: field::pairs(event.ids.take(), "ids")?,
        device,
        app_version: field::text(event.app_version.take(), "app_version")?,
        props: field::pairs(event.props.take(), "props")?,
    })
}

fn effect<R: Revenue>(mut event: Event<'_, R>, pid: Pid) -> Result<Effect, FieldError> {
    let device = device(&mut event)?;
    Ok(Effect {
        pid,
        id: field::text(event.event_id.take(), "event_id")?,
        name: field::required_text(event.name.take(), "name")?,
        time: field::required_time(event.time.get(), "time")?,
        ids: field::pairs(event.ids.take(), "ids")?,
        device,
        app_version: field::text(event.app_version.take(), "app_version")?,
        revenue: event.revenue.decimal()?,
        currency: field::text(event.currency.take(), "currency")?,
        props: field::pairs(event.props.take(), "props")?,
    })
}

fn device<R>(event: &mut Event<'_, R>) -> Result<Device, FieldError> {
    let text = |slot: &mut Slot<'_>, field| field::text(slot.take(), field);
    Ok(Device {
        ip: text(&mut event.ip, "ip")?,
        ua: text(&mut event.ua, "ua")?,
        model: text(&mut event.device_model, "device_model")?,
        os: text(&mut event.os, "os")?,
        os_version: text(&mut event.os_version, "os_version")?,
    })
}
