//! Builds rows from decisions.

use std::hash::{Hash, Hasher};

use xxhash_rust::xxh3::Xxh3Default;

use super::inherit::Inheritance;
use super::row::{ActivationDetails, ActivationRef, EventType, InstallType, Row, STORE_PROP, seq};
use super::winner::{Credit, Decision};
use crate::facts::device_ids::{self, IdKind};
use crate::facts::event::{Activation, Device, Effect, EventTime, Pairs, Pid};

/// Builds the row of an activation, at revision 0.
pub fn activation_row(activation: &Activation, decision: &Decision) -> Row {
    row(
        Event {
            pid: activation.pid,
            time: activation.time,
            event_type: EventType::Activation,
            name: EventType::Activation.name(),
            id: &activation.id,
            ids: &activation.ids,
            device: &activation.device,
            app_version: &activation.app_version,
            revenue: "",
            currency: "",
            props: &activation.props,
        },
        Some((activation, decision.install_type)),
        (decision.credit.clone(), None),
    )
}

/// Builds the row of an effect, at revision 0.
pub fn effect_row(effect: &Effect, inheritance: Inheritance<'_>) -> Row {
    row(
        Event {
            pid: effect.pid,
            time: effect.time,
            event_type: EventType::Effect,
            name: &effect.name,
            id: &effect.id,
            ids: &effect.ids,
            device: &effect.device,
            app_version: &effect.app_version,
            revenue: &effect.revenue,
            currency: &effect.currency,
            props: &effect.props,
        },
        inheritance.activation,
        (inheritance.credit, inheritance.credit_of),
    )
}

/// Hashes a decision, to compare it with the current one.
pub fn digest(decided: &impl Hash) -> u64 {
    let mut hasher = Xxh3Default::new();
    decided.hash(&mut hasher);
    hasher.finish()
}

/// The fields of a row that come from its event, of either type.
struct Event<'a> {
    pid: Pid,
    time: EventTime,
    event_type: EventType,
    name: &'a str,
    id: &'a str,
    ids: &'a Pairs,
    device: &'a Device,
    app_version: &'a str,
    revenue: &'a str,
    currency: &'a str,
    props: &'a Pairs,
}

fn row(
    event: Event<'_>,
    activation: Option<(&Activation, InstallType)>,
    (credit, credit_of): (Credit, Option<&str>),
) -> Row {
    Row {
        pid: event.pid,
        event_time: event.time,
        spreadid: credit.spreadid,
        seq: seq(event.event_type, event.id),
        revision: 0,
        event_type: event.event_type,
        event_name: event.name.into(),
        event_id: event.id.into(),
        status: credit.status,
        install_type: activation.map(|(_, install_type)| install_type),
        touch: credit.touch,
        activation: activation.map(|(activation, _)| ActivationRef {
            id: activation.id.clone(),
            time: activation.time,
            details: ActivationDetails {
                install_begin_time: activation.install_begin_time,
                store: store(activation),
                credit_of: credit_of.unwrap_or_default().into(),
            },
        }),
        reject_reason: credit.reject_reason,
        contributors: credit.contributors,
        ids: IdKind::ALL.map(|kind| device_ids::display(event.ids, kind)),
        device: event.device.clone(),
        app_version: event.app_version.into(),
        revenue: event.revenue.into(),
        currency: event.currency.into(),
        props: event.props.clone(),
    }
}

fn store(activation: &Activation) -> Box<str> {
    let found = activation.props.binary_search_by(|(key, _)| (**key).cmp(STORE_PROP));
    let found = found.ok().and_then(|index| activation.props.get(index));
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}
