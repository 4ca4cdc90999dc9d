//! An explanation for a page: the sentences of the text, each where it belongs.

use attribution::explain::explanation::{Explanation, Found};
use attribution::facts::printable::printable;
use attribution::rules::policy::Policy;
use attribution::rules::row::{Status, touch_kind_name};
use serde::Serialize;

use super::causes::came_in;
use super::text::Renderer;
use super::words::{class_name, origin, span, tier};
use super::{Catalogue, time, verdict_name, version};

#[derive(Debug, Serialize)]
pub(crate) struct Told {
    event_id: String,
    event_time: String,
    /// Of the status alone, for those who read no further.
    status: &'static str,
    outcome: String,
    /// With the settings of now, if they would decide otherwise.
    outcome_anew: Option<String>,
    /// Questions and what there is to say to them.
    answers: Vec<(String, Vec<String>)>,
    touches: Vec<ToldTouch>,
    unlisted: usize,
    settings_version: String,
}

#[derive(Debug, Serialize)]
struct ToldTouch {
    /// `won`, `no candidate`.
    verdict: String,
    kind: &'static str,
    id: String,
    time: String,
    age: String,
    spreadid: u32,
    campaign: String,
    channel: String,
    /// By what it was found, and how far back it may be.
    how: Option<String>,
    reason: Option<String>,
}

pub(crate) fn told(explanation: &Explanation, policy: &Policy) -> Option<Told> {
    let Explanation { activation, decision, anew, .. } = explanation;
    let catalogue = Catalogue { policy, pid: activation.pid };
    let app = policy.app(activation.pid)?;
    let teller = Renderer { catalogue, app, explanation };
    Some(Told {
        event_id: printable(&activation.id).into(),
        event_time: time(activation.time),
        status: decision.credit.status.name(),
        outcome: teller.outcome(decision),
        outcome_anew: anew.as_ref().map(|anew| teller.outcome(anew)),
        answers: answers(&teller),
        touches: touches(&teller),
        unlisted: explanation.unlisted,
        settings_version: version(policy),
    })
}

fn answers(teller: &Renderer<'_>) -> Vec<(String, Vec<String>)> {
    let Explanation { decision, previous, expired_before, .. } = teller.explanation;
    let status = decision.credit.status;
    let mut answers = vec![
        (format!("Why {}", class_name(decision.install_type)), vec![teller.class()]),
        (format!("Why {}", status.name()), vec![teller.status()]),
    ];
    let is_credited_by_touch = !matches!(status, Status::Duplicate | Status::Rejected);
    if let Some(before) = expired_before.filter(|_| is_credited_by_touch) {
        let gone = format!("Touches before {}.", time(before));
        let stands = "The decision was made with them and stands. (section 7)".to_owned();
        answers.push(("What is no longer kept".into(), vec![gone, stands]));
    }
    if let Some(previous) = previous {
        let of = match &previous.original {
            Some(id) if previous.original != decision.original => {
                format!(", after install {}", printable(id))
            }
            _ => String::new(),
        };
        let before = format!("Before: {}{of}.", teller.outcome(previous));
        let why = format!("{} (section 7)", came_in(teller.explanation));
        answers.push(("Decided anew".into(), vec![before, why]));
    }
    answers
}

fn touches(teller: &Renderer<'_>) -> Vec<ToldTouch> {
    let catalogue = teller.catalogue;
    let told = teller.explanation.considered.iter().map(|one| {
        let touch = &one.touch;
        let campaign = catalogue.campaign(touch.spreadid).map_or("", |campaign| &campaign.name);
        ToldTouch {
            verdict: verdict_name(one.verdict).replace('_', " "),
            kind: touch_kind_name(touch.kind),
            id: printable(&touch.id).into(),
            time: time(touch.time),
            age: teller.age_of(one),
            spreadid: touch.spreadid.0,
            campaign: printable(campaign).into(),
            channel: printable(catalogue.channel(touch.spreadid)).into(),
            how: one.found.map(|Found { match_type, window, .. }| {
                let (key, window, of) = (match_type.name(), span(window.ms), origin(window.origin));
                format!("{}, key {key}; window {window}, {of}", tier(one))
            }),
            reason: teller.reason(one),
        }
    });
    told.collect()
}
