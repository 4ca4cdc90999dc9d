//! Explanations of attributions, as text for people and as JSON for programs.

mod causes;
mod reasons;
#[cfg(test)]
mod tests;
mod text;
pub(crate) mod view;
mod words;

#[cfg(test)]
use attribution::explain::explanation::Ineligible;
use attribution::explain::explanation::{Evaluated, Explanation, Match, Verdict};
use attribution::facts::event::{EventTime, Pid, SpreadId};
use attribution::facts::ignored_values::{self, IgnoredValue};
use attribution::rules::candidate::{Tier, bad_signature};
use attribution::rules::classify::ActivationKey;
use attribution::rules::policy::{Campaign, Origin, Policy};
use attribution::rules::row::{AdDetails, RejectReason};
use attribution::rules::winner::Decision;
use serde_json::{Value, json};

use crate::format::columns::channel::channel_name;
use crate::format::time::writer::in_utc as time;
pub use text::text;
pub(crate) use words::span;

/// Returns an explanation as JSON, with the values of the export and, where they exist, the names of its columns.
pub fn json(explanation: &Explanation, policy: &Policy) -> Value {
    let Explanation { activation, decision, before, .. } = explanation;
    let catalogue = Catalogue { policy, pid: activation.pid };
    let member = |member: &ActivationKey| json!({ "event_id": &*member.id, "event_time": time(member.time) });
    let touches = explanation.considered.iter();
    json!({
        "app": catalogue.app_key(),
        "event_id": &*activation.id,
        "event_time": time(activation.time),
        "ignored_values": ignored(&ignored_values::of_activation(activation)),
        "decision": catalogue.decision(decision),
        "decision_with_these_settings": explanation.recomputed.as_ref().map(|new| catalogue.decision(new)),
        "previous_decision": explanation.previous.as_ref().map(|old| catalogue.decision(old)),
        "changed_by": explanation.changed_by.iter().map(causes::json).collect::<Vec<_>>(),
        "changed_by_more": explanation.changed_by_more,
        "revision": explanation.revision,
        "last_install": before.as_ref().map(|chain| member(&chain.install)),
        "last_not_duplicate": before.as_ref().map(|chain| member(&chain.last_counted)),
        "touches": touches.map(|one| catalogue.touch(one, activation.time)).collect::<Vec<_>>(),
        "touches_unlisted": explanation.unlisted,
        "has_uncounted_touches": explanation.has_more,
        "has_unread_runner_up": explanation.may_have_unread_runner_up,
        "touches_expired_before": explanation.expired_before.map(time),
        "settings_version": version(policy),
    })
}

/// Catalogue names of one app.
#[derive(Clone, Copy)]
struct Catalogue<'a> {
    policy: &'a Policy,
    pid: Pid,
}

impl<'a> Catalogue<'a> {
    fn app_key(self) -> &'a str {
        self.policy.app(self.pid).map_or("", |app| &app.key)
    }

    fn campaign(self, spreadid: SpreadId) -> Option<&'a Campaign> {
        self.policy.campaign(self.pid, spreadid)
    }

    /// Returns the channel as the export's column has it.
    fn channel(self, spreadid: SpreadId) -> &'a str {
        channel_name(self.policy, self.pid, spreadid)
    }

    fn decision(self, Decision { install_type, credit, .. }: &Decision) -> Value {
        let touch = credit.touch.as_ref();
        let ad = touch.and_then(|touch| touch.details.ad.as_deref());
        let params = ad.into_iter().flat_map(AdDetails::named_params);
        let params = params.map(|(name, value)| (name.to_owned(), value.into()));
        json!({
            "status": credit.status.name(),
            "install_type": install_type.name(),
            "spreadid": credit.spreadid.0,
            "campaign": self.campaign(credit.spreadid).map_or("", |campaign| &campaign.name),
            "channel": self.channel(credit.spreadid),
            "match_type": touch.map(|touch| touch.match_type.name()),
            "touch_type": touch.map(|touch| touch.kind.name()),
            "touch_time": touch.map(|touch| time(touch.time)),
            "click_id": touch.map(|touch| &*touch.click_id),
            "reject_reason": credit.reject_reason.map(RejectReason::name),
            "touch_params": Value::Object(params.collect()),
            "has_callback": ad.is_some_and(AdDetails::has_callback),
        })
    }

    fn touch(self, Evaluated { touch, verdict, found }: &Evaluated, at: EventTime) -> Value {
        let window = found.map(|found| found.window);
        json!({
            "verdict": verdict_name(*verdict),
            "reason": reason_name(*verdict),
            "touch_type": touch.kind.name(),
            "click_id": touch.id(),
            "touch_time": time(touch.time),
            "age_ms": i128::from(at.millis()) - i128::from(touch.time.millis()),
            "spreadid": touch.spreadid.0,
            "channel": self.channel(touch.spreadid),
            "match_type": found.map(|found| found.match_type.name()),
            "tier": found.map(tier_number),
            "window_ms": window.map(|window| window.ms),
            "window_from": window.map(|window| origin_name(window.origin)),
            "bad_signature": bad_signature(touch),
            "ignored_values": ignored(&ignored_values::of_touch(touch)),
        })
    }
}

fn ignored(values: &[IgnoredValue<'_>]) -> Vec<Value> {
    let one = |it: &IgnoredValue<'_>| json!({ "field": it.field, "value": it.value, "reason": it.reason.name() });
    values.iter().map(one).collect()
}

fn version(policy: &Policy) -> String {
    format!("{:016x}", policy.version())
}

/// The names of all verdicts.
#[cfg(test)]
pub(crate) fn verdict_names() -> [&'static str; 5] {
    [
        Verdict::Won,
        Verdict::Contributor,
        Verdict::Accepted,
        Verdict::Rejected(RejectReason::Blocked),
        Verdict::Ineligible(Ineligible::NoMatch),
    ]
    .map(verdict_name)
}

/// The names of all reasons.
#[cfg(test)]
pub(crate) fn reason_names() -> Vec<&'static str> {
    let rejected = RejectReason::ALL.map(Verdict::Rejected);
    let none = Ineligible::ALL.map(Verdict::Ineligible);
    rejected.into_iter().chain(none).filter_map(reason_name).collect()
}

/// The names of all levels that set a window.
#[cfg(test)]
pub(crate) fn origin_names() -> [&'static str; 6] {
    [
        None,
        Some(Origin::Default),
        Some(Origin::AllApps),
        Some(Origin::App),
        Some(Origin::Channel),
        Some(Origin::Campaign),
    ]
    .map(origin_name)
}

fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Won => "won",
        Verdict::Contributor => "contributor",
        Verdict::Accepted => "accepted",
        Verdict::Rejected(_) => "rejected",
        Verdict::Ineligible(_) => "no_candidate",
    }
}

fn reason_name(verdict: Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Rejected(reason) => Some(reason.name()),
        Verdict::Ineligible(reason) => Some(reason.name()),
        Verdict::Won | Verdict::Contributor | Verdict::Accepted => None,
    }
}

/// Returns the number of the tier in the contract.
fn tier_number(found: Match) -> u8 {
    match found.tier {
        Tier::ImpressionProbabilistic => 1,
        Tier::ImpressionById => 2,
        Tier::ClickProbabilistic => 3,
        Tier::ClickById => 4,
    }
}

fn origin_name(origin: Option<Origin>) -> &'static str {
    match origin {
        None => "touch",
        Some(Origin::Default) => "default",
        Some(Origin::AllApps) => "settings",
        Some(Origin::App) => "app",
        Some(Origin::Channel) => "channel",
        Some(Origin::Campaign) => "campaign",
    }
}
