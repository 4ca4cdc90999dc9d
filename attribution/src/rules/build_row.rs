//! Builds rows from decisions.

use std::hash::{Hash, Hasher};

use xxhash_rust::xxh3::Xxh3Default;

use super::inherit::Inheritance;
use super::row::{ActivationDetails, ActivationRef, EventType, Row, STORE_PROP, seq};
use super::winner::Decision;
use crate::facts::addresses::parse_address;
use crate::facts::device_ids::{self, IdKind};
use crate::facts::event::{Activation, Device, Effect, Pairs, value};
use crate::facts::placeholders::without_macro;

/// Builds the row of an activation, at revision 0.
pub fn activation_row(activation: &Activation, decision: &Decision) -> Row {
    let credit = decision.credit.clone();
    Row {
        pid: activation.pid,
        event_time: activation.time,
        spreadid: credit.spreadid,
        seq: seq(EventType::Activation, &activation.id),
        revision: 0,
        event_type: EventType::Activation,
        event_name: EventType::Activation.name().into(),
        event_id: activation.id.clone(),
        status: credit.status,
        install_type: Some(decision.install_type),
        touch: credit.touch,
        activation: Some(activation_ref(activation, None)),
        reject_reason: credit.reject_reason,
        contributors: credit.contributors,
        ids: ids(&activation.ids),
        device: device(&activation.device),
        app_version: activation.app_version.clone(),
        revenue: Box::default(),
        currency: Box::default(),
        props: activation.props.clone(),
    }
}

/// Builds the row of an effect, at revision 0.
pub fn effect_row(effect: &Effect, inheritance: Inheritance<'_>) -> Row {
    let Inheritance { activation, credit, credit_of } = inheritance;
    Row {
        pid: effect.pid,
        event_time: effect.time,
        spreadid: credit.spreadid,
        seq: seq(EventType::Effect, &effect.id),
        revision: 0,
        event_type: EventType::Effect,
        event_name: effect.name.clone(),
        event_id: effect.id.clone(),
        status: credit.status,
        install_type: activation.map(|(_, install_type)| install_type),
        touch: credit.touch,
        activation: activation.map(|(activation, _)| activation_ref(activation, credit_of)),
        reject_reason: credit.reject_reason,
        contributors: credit.contributors,
        ids: ids(&effect.ids),
        device: device(&effect.device),
        app_version: effect.app_version.clone(),
        revenue: effect.revenue.clone(),
        currency: effect.currency.clone(),
        props: effect.props.clone(),
    }
}

/// Hashes a decision, for comparison with the current one.
pub fn digest(decision: &impl Hash) -> u64 {
    let mut hasher = Xxh3Default::new();
    decision.hash(&mut hasher);
    hasher.finish()
}

fn activation_ref(activation: &Activation, credit_of: Option<&str>) -> ActivationRef {
    ActivationRef {
        id: activation.id.clone(),
        time: activation.time,
        details: ActivationDetails {
            install_begin_time: activation.install_begin_time,
            store: value(&activation.props, STORE_PROP).into(),
            credit_of: credit_of.unwrap_or_default().into(),
        },
    }
}

/// Returns the attributes without unexpanded macros. An `ip` that is not an address stays as text.
fn device(received: &Device) -> Device {
    let text = |text: &str| without_macro(text).into();
    let is_address = parse_address(&received.ip).is_some();
    Device {
        ip: if is_address { received.ip.clone() } else { text(&received.ip) },
        ua: text(&received.ua),
        model: text(&received.model),
        os: text(&received.os),
        os_version: text(&received.os_version),
    }
}

fn ids(received: &Pairs) -> [Box<str>; IdKind::ALL.len()] {
    IdKind::ALL.map(|kind| device_ids::display(received, kind))
}
