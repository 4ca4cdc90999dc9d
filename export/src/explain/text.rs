//! An explanation in words that a marketer understands, each with the contract's section.

use std::fmt::Write;

use attribution::explain::explanation::{Evaluated, Explanation, Found, Verdict};
use attribution::facts::printable::printable;
use attribution::rules::policy::{AppPolicy, Policy};
use attribution::rules::row::{RejectReason, Status, touch_kind_name};
use attribution::rules::winner::Decision;

use super::causes::came_in;
use super::words::{age, because_text, class_name, origin, span, tier};
use super::{Catalogue, time, verdict_name, version};

/// The explanation as lines of text.
pub fn text(explanation: &Explanation, policy: &Policy) -> String {
    let catalogue = Catalogue { policy, pid: explanation.activation.pid };
    let Some(app) = policy.app(explanation.activation.pid) else { return String::new() };
    let teller = Renderer { catalogue, app, explanation };
    let mut out = String::new();
    // Writing to a text does not fail.
    let _ = teller.tell(&mut out);
    out
}

pub struct Renderer<'a> {
    pub catalogue: Catalogue<'a>,
    pub app: &'a AppPolicy,
    pub explanation: &'a Explanation,
}

impl Renderer<'_> {
    fn tell(&self, out: &mut String) -> std::fmt::Result {
        let Explanation { activation, decision, previous, .. } = self.explanation;
        let (id, app_key) = (printable(&activation.id), printable(self.catalogue.app_key()));
        writeln!(out, "Activation {id} of {app_key}, {}", time(activation.time))?;
        writeln!(out, "\n  {}", self.outcome(decision))?;
        if let Some(anew) = &self.explanation.anew {
            writeln!(out, "\nDecided with other settings than these, with which it would be")?;
            writeln!(out, "  {}", self.outcome(anew))?;
            writeln!(out, "Windows and reasons below are those of these settings.")?;
        }
        writeln!(out, "\nWhy {}", class_name(decision.install_type))?;
        writeln!(out, "  {} (section 2)", self.class())?;
        writeln!(out, "\nWhy {}", decision.credit.status.name())?;
        writeln!(out, "  {}", self.status())?;
        self.tell_touches(out)?;
        self.tell_expired(out)?;
        if let Some(previous) = previous {
            writeln!(out, "\nDecided anew")?;
            let of = match &previous.original {
                Some(id) if previous.original != decision.original => {
                    format!(", after install {}", printable(id))
                }
                _ => String::new(),
            };
            writeln!(out, "  Before: {}{of}.", self.outcome(previous))?;
            writeln!(out, "  {} (section 7)", came_in(self.explanation))?;
        }
        writeln!(out, "\nSettings version {}", version(self.catalogue.policy))
    }

    pub fn outcome(&self, decision: &Decision) -> String {
        let Decision { install_type, credit, .. } = decision;
        if credit.status == Status::Duplicate {
            return "duplicate, credited to nobody".into();
        }
        let mut text = format!("{}, {}", install_type.name(), credit.status.name());
        if let Some(touch) = &credit.touch {
            let name = self.catalogue.campaign(credit.spreadid).map_or("", |named| &named.name);
            let name =
                if name.is_empty() { "".into() } else { format!(" \"{}\"", printable(name)) };
            let _ = write!(
                text,
                " to campaign {}{name} of channel {}, by {} {} of {}, matched by {}",
                credit.spreadid.0,
                printable(self.catalogue.channel(credit.spreadid)),
                touch_kind_name(touch.kind),
                printable(&touch.click_id),
                time(touch.time),
                touch.match_type.name(),
            );
        }
        text
    }

    pub fn age_of(&self, one: &Evaluated) -> String {
        age(self.explanation.activation.time, one.touch.time)
    }

    fn tell_touches(&self, out: &mut String) -> std::fmt::Result {
        let Explanation { considered, unlisted, .. } = self.explanation;
        if considered.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nTouches, the best first")?;
        for one in considered {
            let Evaluated { touch, verdict, found } = one;
            let verdict_name = verdict_name(*verdict).replace('_', " ");
            let (kind, age) = (touch_kind_name(touch.kind), self.age_of(one));
            let id = printable(&touch.id);
            let channel = printable(self.catalogue.channel(touch.spreadid));
            writeln!(out, "  {verdict_name:<13}{kind} {id}, {} ({age})", time(touch.time))?;
            write!(out, "  {:<13}campaign {} of channel {channel}", "", touch.spreadid.0)?;
            if let Some(Found { match_type, window, .. }) = found {
                let origin = origin(window.origin);
                let (key, window) = (match_type.name(), span(window.ms));
                write!(out, "; {}, key {key}; window {window}, {origin}", tier(one))?;
            }
            writeln!(out)?;
            if let Some(reason) = self.reason(one) {
                writeln!(out, "  {:<13}{reason}", "")?;
            }
        }
        if *unlisted > 0 {
            let (touches, are) = if *unlisted == 1 { ("touch", "is") } else { ("touches", "are") };
            writeln!(
                out,
                "  and at least {unlisted} more {touches} with a key of it that {are} not listed"
            )?;
        }
        Ok(())
    }

    fn tell_expired(&self, out: &mut String) -> std::fmt::Result {
        let status = self.explanation.decision.credit.status;
        let is_credited_by_touch = !matches!(status, Status::Duplicate | Status::Rejected);
        if let Some(before) = self.explanation.expired_before.filter(|_| is_credited_by_touch) {
            let before = time(before);
            writeln!(out, "\nWhat is no longer kept")?;
            writeln!(
                out,
                "  Touches before {before}. The decision was made with them and stands."
            )?;
            writeln!(out, "  (section 7)")?;
        }
        Ok(())
    }

    pub fn reason(&self, one: &Evaluated) -> Option<String> {
        let fraud = &self.app.fraud;
        Some(match one.verdict {
            Verdict::Rejected(RejectReason::Blocked) => {
                "blocked: its address, site or device is block-listed (section 4)".into()
            }
            Verdict::Rejected(RejectReason::ClickInjection) => {
                "click_injection: it came after the installation had begun (section 4)".into()
            }
            Verdict::Rejected(RejectReason::CtitTooShort) => format!(
                "ctit_too_short: closer to the activation than ctit_min, {} (section 4)",
                span(fraud.ctit_min_ms)
            ),
            Verdict::Rejected(RejectReason::TooManyClicks) => format!(
                "too_many_clicks: more than {} clicks of its channel in the 24 h up to it \
                 (section 4)",
                fraud.clicks_per_device_max
            ),
            Verdict::NoCandidate(because) => because_text(because).into(),
            Verdict::Won | Verdict::Contributor | Verdict::Accepted => return None,
        })
    }
}
