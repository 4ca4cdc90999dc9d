//! Gives effects the credit of their activation (section 6 of the contract).

use super::policy::{AppPolicy, ReinstallEffects};
use super::row::{InstallType, Status};
use super::winner::{Credit, Decision};
use crate::facts::device_ids::DeviceIds;
use crate::facts::event::{Activation, Effect, EventTime};
use crate::ledger::record::ActivationRecord;

/// The credit of an effect, and the activation that it comes from.
#[derive(Debug, Clone)]
pub struct Inheritance<'a> {
    pub activation: Option<(&'a Activation, InstallType)>,
    pub credit: Credit,
    /// The id of the install that the credit belongs to, if it is not `activation`.
    pub credit_of: Option<&'a str>,
}

/// Returns the time range of an effect's possible activations, both ends inclusive.
pub fn activation_times(app: &AppPolicy, effect: &Effect) -> (EventTime, EventTime) {
    (effect.time.minus(app.effect_window_ms), effect.time.plus(app.clock_skew_ms))
}

/// Returns the time range of an activation's possible effects, both ends inclusive.
pub fn effect_times(app: &AppPolicy, activation_time: EventTime) -> (EventTime, EventTime) {
    (activation_time.minus(app.clock_skew_ms), activation_time.plus(app.effect_window_ms))
}

/// Returns the activation that an effect inherits from, with its decision: the latest one in the effect's time range
/// that shares a device id with it and is not a duplicate.
pub fn attribution_at<'a>(
    app: &AppPolicy,
    effect: &Effect,
    effect_ids: &DeviceIds,
    found: impl Iterator<Item = &'a ActivationRecord>,
) -> Option<(&'a Activation, &'a Decision)> {
    let (oldest, newest) = activation_times(app, effect);
    found
        .filter_map(|record| Some((&record.fact, record.decision.as_ref()?)))
        .filter(|(activation, decision)| {
            activation.time >= oldest
                && activation.time <= newest
                && decision.install_type != InstallType::Duplicate
                && DeviceIds::of_app_event(&activation.ids).shared(effect_ids).is_some()
        })
        .max_by_key(|(activation, _)| (activation.time, &activation.id))
}

/// Returns the id of the original install, if effects of this activation carry the install's credit instead of the
/// activation's.
pub fn original<'a>(app: &AppPolicy, decision: &'a Decision) -> Option<&'a str> {
    let is_uncredited_reinstall = decision.credit.status == Status::Unattributed
        && app.reinstall_effects == ReinstallEffects::Original;
    decision.original.as_deref().filter(|_| is_uncredited_reinstall)
}

/// Returns the credit of an effect; `original` is the decision on the install that [`original`] returned.
pub fn inherit<'a>(
    app: &AppPolicy,
    attribution_at: Option<(&'a Activation, &'a Decision)>,
    original: Option<&Decision>,
) -> Inheritance<'a> {
    let Some((activation, decision)) = attribution_at else {
        let credit = Credit::uncredited(Status::Orphan, None);
        return Inheritance { activation: None, credit, credit_of: None };
    };
    let mut credit_of = None;
    let credit = match (decision.credit.status, app.reinstall_effects) {
        (Status::Unattributed, ReinstallEffects::Organic) => {
            Credit::uncredited(Status::Organic, None)
        }
        (Status::Unattributed, ReinstallEffects::Original) => {
            credit_of = original.and(decision.original.as_deref());
            original.unwrap_or(decision).credit.of_effects()
        }
        _ => decision.credit.of_effects(),
    };
    Inheritance { activation: Some((activation, decision.install_type)), credit, credit_of }
}
