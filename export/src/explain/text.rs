//! An explanation in words that a marketer understands, each with the contract's section.

use std::fmt::Write;

use attribution::attribute::Decision;
use attribution::event::EventTime;
use attribution::explain::{self, Because, Considered, Explanation, Found, Verdict};
use attribution::policy::{AppPolicy, Origin, Policy};
use attribution::row::{InstallType, RejectReason, Status, touch_kind_name};

use super::{Catalogue, origin_name, tier_number, time, verdict_name, version};

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
        let app_key = self.catalogue.app_key();
        writeln!(out, "Activation {} of {app_key}, {}", activation.id, time(activation.time))?;
        writeln!(out, "\n  {}", self.outcome(decision))?;
        if let Some(anew) = &self.explanation.anew {
            writeln!(out, "\nDecided with other settings than these, with which it would be")?;
            writeln!(out, "  {}", self.outcome(anew))?;
            writeln!(out, "What follows is told with these settings.")?;
        }
        writeln!(out, "\nWhy {}", class_name(decision.install_type))?;
        writeln!(out, "  {} (section 2)", self.class())?;
        writeln!(out, "\nWhy {}", decision.credit.status.name())?;
        writeln!(out, "  {}", self.status())?;
        self.tell_touches(out)?;
        self.tell_expired(out)?;
        if let Some(previous) = previous {
            writeln!(out, "\nDecided {} times", self.explanation.revision)?;
            writeln!(out, "  Before: {}.", self.outcome(previous))?;
            writeln!(out, "  {} (section 7)", self.change(previous))?;
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
            let name = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
            let _ = write!(
                text,
                " to campaign {}{name} of channel {}, by {} {} of {}, matched by {}",
                credit.spreadid.0,
                self.catalogue.channel(credit.spreadid),
                touch_kind_name(touch.kind),
                touch.click_id,
                time(touch.time),
                touch.match_type.name(),
            );
        }
        text
    }

    fn class(&self) -> String {
        let Explanation { activation, decision, before, .. } = self.explanation;
        let Some(walk) = before else {
            let install = decision.install_type == InstallType::Install;
            return match (install, self.explanation.expired_before) {
                (true, None) => "No earlier activation of this app shares a device id with it.",
                (true, Some(_)) => {
                    "No earlier activation that is still kept shares a device id with it."
                }
                (false, _) => "The device's activations before it are no longer kept.",
            }
            .into();
        };
        let since = |member: &attribution::classify::Member| {
            let id = &member.id;
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
        let Explanation { decision, considered, .. } = self.explanation;
        match decision.credit.status {
            Status::Duplicate => "A duplicate is credited to nobody. (section 2)".into(),
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
                let place = if self.app.probabilistic {
                    ""
                } else {
                    " Matching by place is off (attribution.probabilistic)."
                };
                format!(
                    "There is no touch with its click id, and none with a key of it in the 180 d \
                     before it and the hour after.{place} (section 3)"
                )
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

    fn won(&self) -> String {
        let considered = &self.explanation.considered;
        let winner = considered.iter().find(|one| one.verdict == Verdict::Won);
        let runner_up = explain::runner_up(considered).and_then(|place| considered.get(place));
        let Some(winner) = winner else {
            return "The touch that it was credited to is no longer kept. (section 7)".into();
        };
        let has_more = self.explanation.has_more;
        let Some(other) = runner_up else {
            let of = if has_more { ", of those that were read," } else { "" };
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
        let of = if has_more { ", the best other of those that were read" } else { "" };
        format!(
            "It beats {} {}{of}: {by}. (section 5)",
            touch_kind_name(other.touch.kind),
            other.touch.id
        )
    }

    fn age_of(&self, one: &Considered) -> String {
        age(self.explanation.activation.time, one.touch.time)
    }

    fn tell_touches(&self, out: &mut String) -> std::fmt::Result {
        let Explanation { considered, unlisted, has_more, .. } = self.explanation;
        if considered.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nTouches, the best first")?;
        for one in considered {
            let Considered { touch, verdict, found } = one;
            let verdict_name = verdict_name(*verdict).replace('_', " ");
            let (kind, id, age) = (touch_kind_name(touch.kind), &touch.id, self.age_of(one));
            let channel = self.catalogue.channel(touch.spreadid);
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
            let least = if *has_more { "at least " } else { "" };
            let touches = if *unlisted == 1 { "touch" } else { "touches" };
            writeln!(
                out,
                "  and {least}{unlisted} more {touches} with a key of it, which change nothing"
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

    /// Whether a touch can not be credited any more, as far as it is listed.
    fn is_out(&self, id: &str) -> bool {
        self.explanation.considered.iter().any(|one| {
            *one.touch.id == *id
                && matches!(one.verdict, Verdict::Rejected(_) | Verdict::NoCandidate(_))
        })
    }

    /// Which fact came later and made the difference, as far as both decisions tell.
    fn change(&self, previous: &Decision) -> String {
        let decision = &self.explanation.decision;
        if previous.install_type != decision.install_type || previous.original != decision.original
        {
            return "An activation of the device, or an earlier time of one, came in later and \
                 changed the class."
                .into();
        }
        let (old, new) = (&previous.credit.touch, &decision.credit.touch);
        match (old, new) {
            (Some(old), Some(new)) if old.click_id == new.click_id => {
                "Another touch came in later and changed the contributors, or this one had an \
                 earlier time than first reported."
                    .into()
            }
            (Some(old), Some(new)) if self.is_out(&old.click_id) => {
                let (old, new) = (&old.click_id, &new.click_id);
                format!("A later fact left {old} out, for the reason above, and {new} was next.")
            }
            (_, Some(new)) => {
                let (kind, id) = (touch_kind_name(new.kind), &new.click_id);
                format!("{kind} {id} came in later and won.")
            }
            (Some(old), None) => {
                let (kind, id) = (touch_kind_name(old.kind), &old.click_id);
                format!("A later fact made {kind} {id} no candidate any more.")
            }
            (None, None) => "A later fact changed what the row shows.".into(),
        }
    }
}

fn because_text(because: Because) -> &'static str {
    match because {
        Because::NotBefore => "not before the activation (section 3)",
        Because::TooOld => "older than its window (section 3)",
        Because::NotRetargeting => "a reinstall considers only purpose retargeting (section 3)",
        Because::OtherDevice => {
            "of another device: both carry an id of one kind, with different values (section 3)"
        }
        Because::NoMatch => "no id, click id or place of it equals the activation's (section 3)",
    }
}

fn class_name(install_type: InstallType) -> &'static str {
    match install_type {
        InstallType::Install => "an install",
        InstallType::Reinstall => "a reinstall",
        InstallType::Duplicate => "a duplicate",
    }
}

fn tier(one: &Considered) -> String {
    let Some(found) = one.found else { return "no tier".into() };
    let how = if found.match_type.is_probabilistic() { "probabilistic" } else { "by id" };
    format!("tier {} ({} {how})", tier_number(found), touch_kind_name(one.touch.kind))
}

fn origin(origin: Option<Origin>) -> String {
    match origin {
        None => "its own lookback".into(),
        Some(Origin::Default) => "the default".into(),
        Some(Origin::AllApps) => "set for all apps".into(),
        Some(_) => format!("set for its {}", origin_name(origin)),
    }
}

/// How long before the activation, or after it.
fn age(activation: EventTime, other: EventTime) -> String {
    match activation.since(other) {
        Some(0) => "at the same millisecond".into(),
        Some(ms) => format!("{} before", span(ms)),
        None => format!("{} after", span(other.since(activation).unwrap_or(0))),
    }
}

/// A span in its largest units that are not zero: `7 d`, `1 h 30 min`, `59.999 s`.
fn span(ms: u64) -> String {
    let (days, hours, minutes) = (ms / 86_400_000, ms / 3_600_000 % 24, ms / 60_000 % 60);
    let mut parts = Vec::new();
    for (count, unit) in [(days, "d"), (hours, "h"), (minutes, "min")] {
        if count > 0 {
            parts.push(format!("{count} {unit}"));
        }
    }
    let rest_ms = ms % 60_000;
    if !rest_ms.is_multiple_of(1_000) {
        parts.push(format!("{}.{:03} s", rest_ms / 1_000, rest_ms % 1_000));
    } else if rest_ms > 0 || parts.is_empty() {
        parts.push(format!("{} s", rest_ms / 1_000));
    }
    parts.join(" ")
}
