//! Chooses the touch that an activation is credited to (section 5 of the contract).

use std::cmp::Reverse;

use super::candidate::{self, CLICK_COUNT_MS, Candidate, ClickCounts, CountedClick, Subject, Tier};
use super::classify::Class;
use super::policy::AppPolicy;
use super::row::{
    AD_PARAMS, AdDetails, CALLBACK_PARAM, CONTRIBUTORS_MAX, Contributor, CreditedTouch,
    InstallType, RejectReason, SUB_PARAMS, Status, TouchDetails,
};
use crate::facts::device_ids::DeviceIds;
use crate::facts::event::{EventTime, SpreadId, Touch, TouchKind, value};
use crate::facts::placeholders::without_macro;

/// The decision on an activation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub install_type: InstallType,
    /// For a reinstall, the id of the install before it, whose credit the reinstall's effects may carry.
    pub original: Option<Box<str>>,
    pub credit: Credit,
}

/// The touch that an activation is credited to, or the reason why it is not credited. Effects inherit it as
/// [`Credit::of_effects`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credit {
    pub status: Status,
    pub spreadid: SpreadId,
    pub touch: Option<CreditedTouch>,
    pub reject_reason: Option<RejectReason>,
    /// Newest first.
    pub contributors: Vec<Contributor>,
}

/// The touches read so far, and the bounds of the unread ones.
#[derive(Debug, Default)]
pub struct Evidence<'a> {
    /// Each touch once.
    pub touches: Vec<(&'a Touch, &'a DeviceIds)>,
    /// Further clicks, which can no longer be credited and only count against others.
    pub counted: Vec<CountedClick<'a>>,
    pub unread: Unread,
    /// The latest possible time of an unread click that counts against others.
    pub uncounted: Option<EventTime>,
}

impl<'a> Evidence<'a> {
    /// Counts the clicks that were read.
    pub fn click_counts(&self, subject: &Subject<'a>) -> ClickCounts<'a> {
        ClickCounts::new(subject, self.touches.iter().copied(), self.counted.iter().copied())
    }

    /// Checks whether all clicks that count against a touch have been read.
    pub fn has_counted(&self, subject: &Subject<'_>, touch: &Touch) -> bool {
        let is_too_old = |click| touch.time.since(click).is_some_and(|ms| ms >= CLICK_COUNT_MS);
        !subject.counts_clicks()
            || touch.kind != TouchKind::Click
            || self.uncounted.is_none_or(is_too_old)
    }
}

/// For each tier, the latest possible time of an unread touch; `None` if all are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unread([Option<EventTime>; 4]);

impl Unread {
    pub fn extend_to(&mut self, tier: Tier, time: EventTime) {
        let unread = &mut self.0[tier as usize];
        *unread = (*unread).max(Some(time));
    }

    fn newest_in(&self, tier: Tier) -> Option<EventTime> {
        self.0[tier as usize]
    }

    fn newest(&self) -> Option<EventTime> {
        self.0.iter().copied().max().flatten()
    }

    /// Returns the highest tier with unread touches, and their latest possible time.
    pub fn strongest(&self) -> Option<(Tier, EventTime)> {
        Tier::ALL.into_iter().rev().find_map(|tier| Some((tier, self.newest_in(tier)?)))
    }
}

impl Decision {
    pub fn class(&self) -> Class {
        Class { install_type: self.install_type, original: self.original.clone() }
    }

    /// Checks whether class and credit are the same. Ignores the touch's details, because its lookback depends on the
    /// settings.
    pub fn is_same(&self, other: &Self) -> bool {
        let mut other = other.clone();
        if let (Some(touch), Some(expected)) = (&mut other.credit.touch, &self.credit.touch) {
            touch.details = expected.details.clone();
        }
        *self == other
    }

    /// Returns the approximate size of the texts in memory.
    pub fn text_bytes(&self) -> usize {
        let Credit { touch, contributors, .. } = &self.credit;
        self.original.as_ref().map_or(0, |id| id.len())
            + touch.as_ref().map_or(0, CreditedTouch::text_bytes)
            + contributors.iter().map(Contributor::bytes).sum::<usize>()
    }
}

impl Credit {
    /// Returns the credit as effects have it. Callback tokens, and what is known of the ads of contributors, stay with
    /// the activation, by which a callback of an effect finds them: a device can have any number of effects.
    pub fn of_effects(&self) -> Self {
        Self {
            status: self.status,
            spreadid: self.spreadid,
            touch: self.touch.as_ref().map(CreditedTouch::without_callback),
            reject_reason: self.reject_reason,
            contributors: self.contributors.iter().map(Contributor::without_ad).collect(),
        }
    }

    pub fn uncredited(status: Status, reject_reason: Option<RejectReason>) -> Self {
        Self {
            status,
            spreadid: SpreadId::default(),
            touch: None,
            reject_reason,
            contributors: Vec::new(),
        }
    }
}

/// Returns the decision on an activation that no touch can be credited with (block-listed, or a duplicate); for others
/// `None`.
pub fn without_touches(subject: &Subject<'_>, class: &Class) -> Option<Decision> {
    let credit = if candidate::is_activation_blocked(subject.app, subject.activation, subject.ids) {
        Credit::uncredited(Status::Rejected, Some(RejectReason::Blocked))
    } else if class.install_type == InstallType::Duplicate {
        Credit::uncredited(Status::Duplicate, None)
    } else {
        return None;
    };
    Some(decision(class, credit))
}

/// Makes the decision; returns `None` if an unread touch could change it.
pub fn attribute<'a>(
    subject: &Subject<'a>,
    class: &Class,
    evidence: &Evidence<'a>,
) -> Option<Decision> {
    let clicks = evidence.click_counts(subject);
    let candidates = evidence
        .touches
        .iter()
        .filter_map(|(touch, ids)| subject.candidate(touch, ids, class.install_type));
    let accepted: Vec<_> =
        candidates.filter(|found| subject.reject_reason(found, &clicks).is_none()).collect();
    let Some(winner) = accepted.iter().max_by_key(|candidate| strength(candidate)) else {
        return evidence.unread.newest().is_none().then(|| decision(class, uncredited(class)));
    };
    let mut others: Vec<_> =
        accepted.iter().filter(|other| !std::ptr::eq(other.touch, winner.touch)).collect();
    others.sort_unstable_by_key(|other| Reverse(recency(other.touch)));
    others.truncate(CONTRIBUTORS_MAX);
    let is_counted = |candidate: &Candidate<'_>| evidence.has_counted(subject, candidate.touch);
    if !is_settled(winner, &others, evidence.unread)
        || !is_counted(winner)
        || !others.iter().copied().all(is_counted)
    {
        return None;
    }
    let credit = Credit {
        status: Status::Attributed,
        spreadid: winner.touch.spreadid,
        touch: Some(CreditedTouch {
            kind: winner.touch.kind,
            time: winner.touch.time,
            click_id: winner.touch.id().into(),
            match_type: winner.match_type,
            details: Box::new(details(subject, winner)),
        }),
        reject_reason: None,
        contributors: others.iter().map(|other| contributor(other)).collect(),
    };
    Some(decision(class, credit))
}

/// Checks whether adding or removing a touch of this tier and time can change the decision: as the winner, as a
/// contributor, or by counting against an accepted click.
pub fn can_change(app: &AppPolicy, decision: &Decision, tier: Tier, time: EventTime) -> bool {
    let Credit { status, touch, contributors, .. } = &decision.credit;
    let Some(winner) = touch else {
        return !matches!(status, Status::Duplicate | Status::Rejected);
    };
    let Some(last) = contributors.get(CONTRIBUTORS_MAX - 1) else { return true };
    let counts = app.fraud.clicks_per_device_max > 0 && tier == Tier::ClickById;
    let newest = if counts { time.plus(CLICK_COUNT_MS) } else { time };
    let winner_tier = Tier::of(winner.kind, winner.match_type.is_probabilistic());
    (tier, newest) >= (winner_tier, winner.time) || newest >= last.time
}

/// Checks whether a click that is too old to be a candidate can make an accepted touch exceed the click limit.
pub fn can_exceed_click_limit(decision: &Decision, time: EventTime) -> bool {
    let Credit { touch, contributors, .. } = &decision.credit;
    let accepted = touch.iter().map(|winner| winner.time);
    let mut accepted = accepted.chain(contributors.iter().map(|other| other.time));
    accepted.any(|accepted| accepted < time.plus(CLICK_COUNT_MS))
}

/// Returns the sort key of contributors, which are listed newest first. A greater kind is a click.
pub fn recency(touch: &Touch) -> (EventTime, &str, TouchKind) {
    (touch.time, touch.id(), touch.kind)
}

/// Returns the sort key of a candidate. The order is total: only a click and an impression can have the same id, and
/// their tiers differ.
pub fn strength<'a>(candidate: &Candidate<'a>) -> (Tier, EventTime, u8, &'a [u8]) {
    let touch = candidate.touch;
    (candidate.tier, touch.time, candidate.match_type.rank(), touch.id().as_bytes())
}

/// Checks that no unread touch can win or be a contributor.
fn is_settled(winner: &Candidate<'_>, others: &[&Candidate<'_>], unread: Unread) -> bool {
    let can_win = |tier: Tier| match unread.newest_in(tier) {
        Some(time) => tier > winner.tier || (tier == winner.tier && time >= winner.touch.time),
        None => false,
    };
    if Tier::ALL.into_iter().any(can_win) {
        return false;
    }
    match (unread.newest(), others.get(CONTRIBUTORS_MAX - 1)) {
        (None, _) => true,
        (Some(time), Some(last)) => time < last.touch.time,
        (Some(_), None) => false,
    }
}

fn uncredited(class: &Class) -> Credit {
    let status = match class.install_type {
        InstallType::Reinstall => Status::Unattributed,
        InstallType::Install | InstallType::Duplicate => Status::Organic,
    };
    Credit::uncredited(status, None)
}

fn details(subject: &Subject<'_>, winner: &Candidate<'_>) -> TouchDetails {
    let touch = winner.touch;
    let is_probabilistic = winner.match_type.is_probabilistic();
    TouchDetails {
        purpose: touch.purpose,
        lookback_ms: subject.window(touch, is_probabilistic).ms,
        site: without_macro(touch.site()).into(),
        subs: SUB_PARAMS.map(|name| param(touch, name)),
        ad: ad_details(touch),
    }
}

fn ad_details(touch: &Touch) -> Option<Box<AdDetails>> {
    AdDetails::non_empty(param(touch, CALLBACK_PARAM), AD_PARAMS.map(|name| param(touch, name)))
}

/// Returns a param of a touch; empty if it is an unexpanded macro.
fn param(touch: &Touch, name: &str) -> Box<str> {
    without_macro(value(touch.params(), name)).into()
}

fn contributor(candidate: &Candidate<'_>) -> Contributor {
    Contributor {
        spreadid: candidate.touch.spreadid,
        kind: candidate.touch.kind,
        time: candidate.touch.time,
        match_type: candidate.match_type,
        ad: ad_details(candidate.touch),
    }
}

fn decision(class: &Class, credit: Credit) -> Decision {
    Decision { install_type: class.install_type, original: class.original.clone(), credit }
}
