//! Why an activation has its class and its credit, each in a sentence or two.

use attribution::explain::explanation::{self, Explanation, Verdict};
use attribution::facts::printable::printable;
use attribution::rules::row::{InstallType, Status, touch_kind_name};

use super::text::Renderer;
use super::time;
use super::words::{age, span, tier};

impl Renderer<'_> {
    pub fn class(&self) -> String {
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
        let since = |member: &attribution::rules::classify::ActivationKey| {
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

    pub fn status(&self) -> String {
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
        let runner_up = explanation::runner_up(considered).and_then(|place| considered.get(place));
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
}
