//! An explanation in plain words, section by section, for text and pages.

use attribution::explain::explanation::{Explanation, Match};
use attribution::facts::ignored_values::{self, IgnoredValue};
use attribution::facts::placeholders::IgnoredReason;
use attribution::facts::printable::printable;
use attribution::rules::policy::Policy;
use attribution::rules::row::{AdDetails, Status};
use serde::Serialize;

use super::causes::describe;
use super::reasons::Renderer;
use super::words::{class_name, origin, span, tier};
use super::{Catalogue, time, verdict_name, version};

#[derive(Debug, Serialize)]
pub(crate) struct View {
    pub app: String,
    pub event_id: String,
    pub event_time: String,
    pub status: &'static str,
    pub outcome: String,
    /// The outcome with the current settings, if they would decide otherwise.
    pub outcome_recomputed: Option<String>,
    /// The first [`WHY`] explain the class and the credit.
    pub answers: Vec<Answer>,
    pub touches: Vec<TouchView>,
    pub unlisted: usize,
    pub settings_version: String,
}

pub(crate) const WHY: usize = 2;

/// A heading and its sentences.
pub(crate) type Answer = (String, Vec<String>);

#[derive(Debug, Serialize)]
pub(crate) struct TouchView {
    /// Such as `won` or `no candidate`.
    pub verdict: String,
    pub kind: &'static str,
    pub id: String,
    pub time: String,
    pub age: String,
    pub spreadid: u32,
    pub campaign: String,
    pub channel: String,
    /// The tier, the key that matched, and the window.
    pub how: Option<String>,
    pub reason: Option<String>,
    /// The values that identify nobody.
    pub ignored: Option<String>,
}

pub(crate) fn view(explanation: &Explanation, policy: &Policy) -> Option<View> {
    let Explanation { activation, decision, recomputed, .. } = explanation;
    let catalogue = Catalogue { policy, pid: activation.pid };
    let app = policy.app(activation.pid)?;
    let renderer = Renderer { catalogue, app, explanation };
    Some(View {
        app: printable(&app.key).into(),
        event_id: printable(&activation.id).into(),
        event_time: time(activation.time),
        status: decision.credit.status.name(),
        outcome: renderer.outcome(decision),
        outcome_recomputed: recomputed.as_ref().map(|recomputed| renderer.outcome(recomputed)),
        answers: answers(&renderer),
        touches: touches(&renderer),
        unlisted: explanation.unlisted,
        settings_version: version(policy),
    })
}

fn answers(renderer: &Renderer<'_>) -> Vec<Answer> {
    let Explanation { activation, decision, previous, expired_before, .. } = renderer.explanation;
    let status = decision.credit.status;
    let mut answers = vec![
        (
            format!("Why {}", class_name(decision.install_type)),
            vec![format!("{} (section 2)", renderer.class())],
        ),
        (format!("Why {}", status.name()), vec![renderer.status()]),
    ];
    if let Some(ignored) = ignored(&ignored_values::of_activation(activation)) {
        answers.push(("Ignored values".into(), vec![format!("{ignored} (section 1)")]));
    }
    if let Some(ad) = decision.credit.touch.as_ref().and_then(|touch| touch.details.ad.as_deref()) {
        answers.push(("Ad".into(), ad_sentences(ad)));
    }
    let is_credited_by_touch = !matches!(status, Status::Duplicate | Status::Rejected);
    if let Some(before) = expired_before.filter(|_| is_credited_by_touch) {
        let expired = format!("Touches before {} have expired.", time(before));
        let unchanged =
            "The decision was made with them and does not change. (section 7)".to_owned();
        answers.push(("Expired touches".into(), vec![expired, unchanged]));
    }
    if let Some(previous) = previous {
        let of = match &previous.original {
            Some(id) if previous.original != decision.original => {
                format!(", after install {}", printable(id))
            }
            _ => String::new(),
        };
        let before = format!("Before: {}{of}.", renderer.outcome(previous));
        let why = format!("{} (section 7)", describe(renderer.explanation));
        answers.push(("Why it changed".into(), vec![before, why]));
    }
    answers
}

/// Describes the ad of the credited touch, without the callback token.
fn ad_sentences(ad: &AdDetails) -> Vec<String> {
    let params = ad.named_params().map(|(name, value)| format!("{name} {}", printable(value)));
    let params = params.collect::<Vec<_>>().join("; ");
    let params = Some(params).filter(|params| !params.is_empty());
    let callback = ad.has_callback().then(|| "It has a callback token.".to_owned());
    params.into_iter().chain(callback).collect()
}

/// Lists the values that identify nobody, each with the reason; `None` if there are none.
fn ignored(values: &[IgnoredValue<'_>]) -> Option<String> {
    let one = |IgnoredValue { field, value, reason }: &IgnoredValue<'_>| {
        let reason = match reason {
            IgnoredReason::Placeholder => "a placeholder",
            IgnoredReason::Macro => "an unexpanded macro",
            IgnoredReason::NotMd5 => "not an MD5",
            IgnoredReason::NotAnAddress => "not an address",
        };
        format!("{field} {}, {reason}", printable(value))
    };
    let all: Vec<String> = values.iter().map(one).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn touches(renderer: &Renderer<'_>) -> Vec<TouchView> {
    let catalogue = renderer.catalogue;
    let touches = renderer.explanation.considered.iter().map(|one| {
        let touch = &one.touch;
        let campaign = catalogue.campaign(touch.spreadid).map_or("", |campaign| &campaign.name);
        TouchView {
            verdict: verdict_name(one.verdict).replace('_', " "),
            kind: touch.kind.name(),
            id: printable(touch.id()).into(),
            time: time(touch.time),
            age: renderer.age_of(one),
            spreadid: touch.spreadid.0,
            campaign: printable(campaign).into(),
            channel: printable(catalogue.channel(touch.spreadid)).into(),
            how: one.found.map(|Match { match_type, window, .. }| {
                let (key, window, of) = (match_type.name(), span(window.ms), origin(window.origin));
                format!("{}, key {key}; window {window}, {of}", tier(one))
            }),
            reason: renderer.reason(one),
            ignored: ignored(&ignored_values::of_touch(touch)).map(|of| format!("ignored: {of}")),
        }
    });
    touches.collect()
}
