//! An explanation in words that a marketer understands, each with the contract's section.

use std::fmt::Write;

use attribution::attribute::Decision;
use attribution::explain::{self, Considered, Explanation, Found, Verdict};
use attribution::policy::{AppPolicy, Policy};
use attribution::printable::printable;
use attribution::row::{InstallType, RejectReason, Status, touch_kind_name};

use super::change::came_in;
use super::words::{age, because_text, class_name, origin, span, tier};
use super::{Catalogue, time, verdict_name, version};

/// The explanation as lines of text.
pub fn text(explanation: &Explanation, policy: &Policy) -> String {
    let catalogue = Catalogue { policy, pid: explanation.activation.pid };
    let Some(app) = policy.app(explanation.activation.pid) else { return String::new() };
    let teller = Teller { catalogue, app, explanation };
    let mut out = String::new();
    // Writing to a text does not fail.
    let _ = teller.tell(&mut out);
    out
}

struct Teller<'a> {
    catalogue: Catalogue<'a>,
    app: &'a AppPolicy,
    explanation: &'a Explanation,
}

impl Teller<'_> {
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

    fn outcome(&self, decision: &Decision) -> String {
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

    fn class(&self) -> String {
        let Explanation { activation, decision, before, .. } = self.explanation;
        if before.is_some() && !self.explanation.is_class_repeatable {
            return "It was classified so with other settings than these, or with activations \
                    that are no longer kept."
                .into();
        }
        let Some(walk) = before else {
            let install = decision.install_type == InstallType::Install;
            return if install {
                "No earlier activation of this app that is kept shares a device id with it."
            } else {
                "The device's activations before it are no longer kept."
            }
            .into();
        };
        let since = |member: &attribution::classify::Member| {
            let id = printable(&member.id);
            format!("{id} of {}, {}", time(member.time), age(activation.time, member.time))
        };
        match decision.install_type {
            InstallType::Duplicate => format!(
                "It is closer than duplicate_within ({}) to the device's activation {}.",
                span(self.app.duplicate_within_ms),
                since(&walk.real),
            ),
            InstallType::Reinstall => format!(
                "The device's last install, {}, is no further back than reattribution_window ({}).",
                since(&walk.install),
                span(self.app.reattribution_window_ms),
            ),
            InstallType::Install => format!(
                "The device's last install, {}, is further back than reattribution_window ({}).",
                since(&walk.install),
                span(self.app.reattribution_window_ms),
            ),
        }
    }

    fn status(&self) -> String {
        let Explanation { decision, considered, anew, .. } = self.explanation;
        match decision.credit.status {
            Status::Duplicate => "A duplicate is credited to nobody. (section 2)".into(),
            _ if anew.is_some() => "So it was with the settings that it was decided with.".into(),
            _ if !self.explanation.is_repeatable => {
                "So it was with the touches that it was decided with, not all of which are kept, \
                 or with other settings. (section 7)"
                    .into()
            }
            Status::Rejected => {
                "The activation's own address or device is block-listed, so it is credited to \
                 nobody. (section 4)"
                    .into()
            }
            Status::Attributed => self.won(),
            Status::Organic | Status::Unattributed | Status::Orphan
                if considered.is_empty() && self.explanation.expired_before.is_some() =>
            {
                "When it was decided, no touch could be credited. (sections 3 to 5)".into()
            }
            Status::Organic | Status::Unattributed | Status::Orphan if considered.is_empty() => {
                self.nothing_found()
            }
            Status::Unattributed => "It is a reinstall, and no touch with purpose retargeting is \
                 left that could be credited. (sections 3 to 5)"
                .into(),
            Status::Organic | Status::Orphan => {
                "No touch is left that could be credited; those below tell why. \
                 (sections 3 to 5)"
                    .into()
            }
        }
    }

    /// What was looked for, and how far back.
    fn nothing_found(&self) -> String {
        let by_id = "No touch that is kept has its click id";
        let by_device = "180 d before it to an hour after it has a device id of it";
        if self.app.probabilistic {
            return format!(
                "{by_id}; none from {by_device}; and none from 7 d before it to an hour after it \
                 is found by its place. (section 3)"
            );
        }
        format!(
            "{by_id}, and none from {by_device}. Matching by place is off \
             (attribution.probabilistic). (section 3)"
        )
    }

    fn won(&self) -> String {
        let Explanation { considered, expired_before, is_second_unread, .. } = self.explanation;
        let winner = considered.iter().find(|one| one.verdict == Verdict::Won);
        let runner_up = explain::runner_up(considered).and_then(|place| considered.get(place));
        let Some(winner) = winner else {
            return "The touch that it was credited to is no longer kept. (section 7)".into();
        };
        let of = match (expired_before, is_second_unread) {
            (Some(_), _) => "of those that are kept",
            (None, true) => "of those that were read",
            (None, false) => "",
        };
        let Some(other) = runner_up else {
            let of = if of.is_empty() { String::new() } else { format!(", {of},") };
            return format!("It is the only touch{of} that could be credited. (section 5)");
        };
        let (ours, theirs) = (winner.strength(), other.strength());
        let by = if ours.0 != theirs.0 {
            format!("its tier is higher: {} against {}", tier(winner), tier(other))
        } else if ours.1 != theirs.1 {
            format!(
                "of the same tier it is the later: {} against {}",
                self.age_of(winner),
                self.age_of(other)
            )
        } else if ours.2 != theirs.2 {
            "of the same tier and time, its key ranks higher".into()
        } else {
            "of the same tier, time and key, its click id is the greater".into()
        };
        let of = if of.is_empty() { String::new() } else { format!(", the best other {of}") };
        let (kind, id) = (touch_kind_name(other.touch.kind), printable(&other.touch.id));
        format!("It beats {kind} {id}{of}: {by}. (section 5)")
    }

    fn age_of(&self, one: &Considered) -> String {
        age(self.explanation.activation.time, one.touch.time)
    }

    fn tell_touches(&self, out: &mut String) -> std::fmt::Result {
        let Explanation { considered, unlisted, .. } = self.explanation;
        if considered.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nTouches, the best first")?;
        for one in considered {
            let Considered { touch, verdict, found } = one;
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

    fn reason(&self, one: &Considered) -> Option<String> {
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
