//! The reasons of an activation's class and credit and of a touch's verdict, each in a sentence or two, with the
//! section of the contract.

use std::fmt::Write;

use attribution::explain::explanation::{self, Evaluated, Explanation, Verdict};
use attribution::facts::printable::printable;
use attribution::rules::candidate::bad_signature;
use attribution::rules::policy::AppPolicy;
use attribution::rules::row::{InstallType, RejectReason, Status};
use attribution::rules::winner::Decision;

use super::words::{age, ineligible_text, span, tier};
use super::{Catalogue, time};

pub struct Renderer<'a> {
    pub catalogue: Catalogue<'a>,
    pub app: &'a AppPolicy,
    pub explanation: &'a Explanation,
}

impl Renderer<'_> {
    pub fn outcome(&self, decision: &Decision) -> String {
        let Decision { install_type, credit, .. } = decision;
        if credit.status == Status::Duplicate {
            return "duplicate, not credited".into();
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
                touch.kind.name(),
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
            Verdict::Rejected(RejectReason::BadSignature) => format!(
                "bad_signature: its signature is {} (section 4)",
                printable(bad_signature(&one.touch).unwrap_or_default())
            ),
            Verdict::Ineligible(reason) => ineligible_text(reason).into(),
            Verdict::Won | Verdict::Contributor | Verdict::Accepted => {
                let outcome = printable(bad_signature(&one.touch)?);
                format!("its signature is {outcome}, for which no rule rejects it (section 4)")
            }
        })
    }

    pub fn class(&self) -> String {
        let Explanation { activation, decision, before, .. } = self.explanation;
        if before.is_some() && !self.explanation.is_class_repeatable {
            return "It was classified with other settings, or with activations that have \
                    expired since."
                .into();
        }
        let Some(chain) = before else {
            let install = decision.install_type == InstallType::Install;
            return if install {
                "No earlier activation of this app in the store shares a device id with it."
            } else {
                "The device's earlier activations have expired."
            }
            .into();
        };
        let since = |member: &attribution::rules::classify::ActivationKey| {
            let id = printable(&member.id);
            format!("{id} of {}, {}", time(member.time), age(activation.time, member.time))
        };
        match decision.install_type {
            InstallType::Duplicate => format!(
                "It is closer than duplicate_within ({}) to the device's activation {}.",
                span(self.app.duplicate_within_ms),
                since(&chain.last_counted),
            ),
            InstallType::Reinstall => format!(
                "The device's last install, {}, is within reattribution_window ({}).",
                since(&chain.install),
                span(self.app.reattribution_window_ms),
            ),
            InstallType::Install => format!(
                "The device's last install, {}, is longer ago than reattribution_window ({}).",
                since(&chain.install),
                span(self.app.reattribution_window_ms),
            ),
        }
    }

    pub fn status(&self) -> String {
        let Explanation { decision, considered, recomputed, .. } = self.explanation;
        match decision.credit.status {
            Status::Duplicate => "A duplicate is not credited to any touch. (section 2)".into(),
            _ if recomputed.is_some() => "It was decided with other settings.".into(),
            _ if !self.explanation.is_repeatable => {
                "It was decided with touches some of which have expired since, or with other \
                 settings. (section 7)"
                    .into()
            }
            Status::Rejected => {
                "The activation's own address or device is block-listed, so it is not credited \
                 to any touch. (section 4)"
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
            Status::Unattributed => "It is a reinstall, and no touch with purpose retargeting \
                 could be credited. (sections 3 to 5)"
                .into(),
            Status::Organic | Status::Orphan => {
                "No touch could be credited; the reasons are below. (sections 3 to 5)".into()
            }
        }
    }

    /// Says which touches were searched for, and how far back.
    fn nothing_found(&self) -> String {
        let by_id = "No stored touch has its click id";
        let by_device = "180 d before it to an hour after it has one of its device ids";
        if self.app.probabilistic {
            return format!(
                "{by_id}; none from {by_device}; and none from 7 d before it to an hour after it \
                 matches probabilistically. (section 3)"
            );
        }
        format!(
            "{by_id}, and none from {by_device}. Probabilistic matching is off \
             (attribution.probabilistic). (section 3)"
        )
    }

    fn won(&self) -> String {
        let Explanation { considered, expired_before, may_have_unread_runner_up, .. } =
            self.explanation;
        let winner = considered.iter().find(|one| one.verdict == Verdict::Won);
        let runner_up = explanation::runner_up(considered).and_then(|index| considered.get(index));
        let Some(winner) = winner else {
            return "The touch to which it was credited has expired. (section 7)".into();
        };
        let of = match (expired_before, may_have_unread_runner_up) {
            (Some(_), _) => "of those still stored",
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
                "they have the same tier and it is later: {} against {}",
                self.age_of(winner),
                self.age_of(other)
            )
        } else if ours.2 != theirs.2 {
            "they have the same tier and time, and its key ranks higher".into()
        } else {
            "they have the same tier, time and key, and its click id is greater".into()
        };
        let of = if of.is_empty() { String::new() } else { format!(", the best other {of}") };
        let (kind, id) = (other.touch.kind.name(), printable(other.touch.id()));
        format!("It beats {kind} {id}{of}: {by}. (section 5)")
    }
}
