//! Why an activation is credited as it is: what was considered, and what became of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::facts::device_ids::DeviceIds;
use crate::facts::event::{Activation, EventTime, Family, Purpose, Touch, TouchKind};
use crate::facts::match_keys::Matches;
use crate::rules::candidate::{self, Candidate, ClickCounts, Subject, Tier, Window};
use crate::rules::classify::InstallChain;
use crate::rules::row::{CONTRIBUTORS_MAX, InstallType, MatchType, RejectReason};
use crate::rules::winner::{Decision, Evidence};

/// Touches that an explanation lists; of those beyond, only the number is told.
pub const LISTED_MAX: usize = 50;
/// Of one reason why touches were rejected or no candidates, so many are listed before those that
/// were accepted and changed nothing: with all nine reasons there is room for the rest.
const OF_REASON: usize = 5;

/// All that there is to tell about one activation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub activation: Activation,
    /// As its row shows it.
    pub decision: Decision,
    /// As these settings would have it, where that is another one for the class that it has: it was
    /// decided with others.
    pub recomputed: Option<Decision>,
    /// Whether these settings, and the touches that are kept, lead to the decision.
    pub is_repeatable: bool,
    /// Whether these settings, and the activations that are kept, lead to its class.
    pub is_class_repeatable: bool,
    /// As it was decided before, on fewer facts.
    pub previous: Option<Decision>,
    /// What came in when that one changed, the likeliest to have changed it first.
    pub changed_by: Vec<ChangeCause>,
    /// Whether more came in with these that can have changed it.
    pub changed_by_more: bool,
    /// How often it was decided in all.
    pub revision: u32,
    /// The activations of the same device before it that its class depends on.
    pub before: Option<InstallChain>,
    /// Best first: the winner, whoever else was accepted, the rejected, and who was no candidate.
    pub considered: Vec<Evaluated>,
    /// Touches with its keys that are not listed, as far as they were counted.
    pub unlisted: usize,
    /// Whether there may be more that were not even counted.
    pub has_more: bool,
    /// Whether one that was not read could have come second.
    pub is_second_unread: bool,
    /// Touches before this that it could have been credited with are no longer kept.
    pub expired_before: Option<EventTime>,
}

/// A touch or an activation that came in when the decision changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeCause {
    /// None if it is no longer kept.
    pub id: Option<Box<str>>,
    /// Of a touch that is as it was then.
    pub kind: Option<TouchKind>,
    pub family: Family,
    /// That it came with.
    pub time: EventTime,
    /// Whether it was known before, and came with an earlier time or other content.
    pub is_update: bool,
}

/// A touch that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluated {
    pub touch: Touch,
    pub verdict: Verdict,
    pub found: Option<Match>,
}

impl Evaluated {
    /// What the strongest is chosen by, before its id (the contract's section 5).
    pub fn strength(&self) -> (Option<Tier>, EventTime, Option<u8>) {
        let tier = self.found.map(|found| found.tier);
        (tier, self.touch.time, self.found.map(|found| found.match_type.rank()))
    }
}

/// How a touch and the activation match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    pub match_type: MatchType,
    pub tier: Tier,
    pub window: Window,
}

/// What became of a touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Won,
    /// Accepted, and among the contributors.
    Contributor,
    /// Accepted, and neither.
    Accepted,
    Rejected(RejectReason),
    Ineligible(Ineligible),
}

crate::named! {
    /// Why a touch is no candidate.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Ineligible {
        /// It was not before the activation.
        NotBefore = "not_before",
        /// Its window had passed.
        TooOld = "too_old",
        /// A reinstall considers only retargeting.
        NotRetargeting = "not_retargeting",
        /// Both carry an id of one kind, with different values.
        OtherDevice = "other_device",
        /// Its keys only seemed equal, or it has none that counts.
        NoMatch = "no_match",
    }
}

/// Says of each touch what became of it. Left out are clicks that may be one too many, because not
/// all that count against them were read: they could not have changed the decision.
pub fn consider(
    subject: &Subject<'_>,
    decision: &Decision,
    evidence: &Evidence<'_>,
) -> Vec<Evaluated> {
    let clicks = ClickCounts::new(subject, evidence.touches.iter().copied());
    evidence
        .touches
        .iter()
        .map(|(touch, ids)| Evaluated {
            touch: (*touch).clone(),
            verdict: verdict(subject, decision, (touch, ids), &clicks),
            found: found(subject, touch, ids),
        })
        .filter(|one| one.verdict != Verdict::Accepted || evidence.has_counted(subject, &one.touch))
        .collect()
}

/// The best first, with the contributors among those that were accepted, which must all be there.
pub fn ranked(mut considered: Vec<Evaluated>) -> Vec<Evaluated> {
    considered.sort_by_cached_key(|one| Reverse((one.touch.time, one.touch.id.clone())));
    let accepted = considered.iter_mut().filter(|one| one.verdict == Verdict::Accepted);
    accepted.take(CONTRIBUTORS_MAX).for_each(|one| one.verdict = Verdict::Contributor);
    considered.sort_by_key(|one| one.verdict);
    considered
}

/// The strongest of those that were accepted and did not win, as [`ranked`] orders them.
pub fn runner_up(considered: &[Evaluated]) -> Option<usize> {
    let lost = |one: &Evaluated| matches!(one.verdict, Verdict::Contributor | Verdict::Accepted);
    let accepted = considered.iter().enumerate().filter(|(_, one)| lost(one));
    accepted.max_by_key(|(_, one)| (one.strength(), &one.touch.id)).map(|(place, _)| place)
}

/// Whether no other touch than these could have come second: none that was not read, and none
/// against which not all clicks were counted.
pub fn is_second_settled(
    subject: &Subject<'_>,
    decision: &Decision,
    evidence: &Evidence<'_>,
) -> bool {
    let Some(winner) = &decision.credit.touch else { return true };
    let clicks = ClickCounts::new(subject, evidence.touches.iter().copied());
    let others = evidence
        .touches
        .iter()
        .filter(|(touch, _)| touch.id != winner.click_id)
        .filter_map(|(touch, ids)| subject.candidate(touch, ids, decision.install_type))
        .filter(|candidate| subject.reject_reason(candidate, &clicks).is_none());
    let is_counted = |other: &Candidate<'_>| evidence.has_counted(subject, other.touch);
    let (counted, open): (Vec<_>, Vec<_>) = others.partition(is_counted);
    let strength = |other: &Candidate<'_>| (other.tier, other.touch.time);
    let second = counted.iter().map(strength).max();
    let open = open.iter().map(strength).max();
    open.max(evidence.unread.strongest()).is_none_or(|open| Some(open) < second)
}

/// Cuts the list to its length and returns how many went. What stays is the winner, the
/// contributors, the runner-up, the newest of each reason why a touch was none of these, and as
/// many of the others as there is room for.
pub fn cut(considered: &mut Vec<Evaluated>) -> usize {
    let unlisted = considered.len().saturating_sub(LISTED_MAX);
    if unlisted == 0 {
        return 0;
    }
    let second = runner_up(considered);
    let mut of_verdict: BTreeMap<Verdict, usize> = BTreeMap::new();
    let mut ranks: Vec<(Rank, usize)> = Vec::with_capacity(considered.len());
    for (place, one) in considered.iter().enumerate() {
        let newer = of_verdict.entry(one.verdict).or_default();
        let rank = match one.verdict {
            Verdict::Won | Verdict::Contributor => Rank::Must,
            _ if second == Some(place) => Rank::Must,
            Verdict::Rejected(_) | Verdict::Ineligible(_) if *newer < OF_REASON => Rank::Sample,
            _ => Rank::Other,
        };
        *newer += 1;
        ranks.push((rank, place));
    }
    ranks.sort_unstable();
    ranks.truncate(LISTED_MAX);
    let mut listed = ranks.into_iter().map(|(_, place)| place).collect::<BTreeSet<_>>();
    let mut place = 0;
    considered.retain(|_| {
        place += 1;
        listed.remove(&(place - 1))
    });
    unlisted
}

/// What goes last when a list is cut.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Must,
    Sample,
    Other,
}

fn verdict(
    subject: &Subject<'_>,
    decision: &Decision,
    (touch, ids): (&Touch, &DeviceIds),
    clicks: &ClickCounts<'_>,
) -> Verdict {
    let winner = decision.credit.touch.as_ref().map(|winner| &winner.click_id);
    if winner == Some(&touch.id) {
        return Verdict::Won;
    }
    match subject.candidate(touch, ids, decision.install_type) {
        Some(candidate) => match subject.reject_reason(&candidate, clicks) {
            Some(reason) => Verdict::Rejected(reason),
            None => Verdict::Accepted,
        },
        None => Verdict::Ineligible(why_ineligible(subject, decision, touch, ids)),
    }
}

fn why_ineligible(
    subject: &Subject<'_>,
    decision: &Decision,
    touch: &Touch,
    ids: &DeviceIds,
) -> Ineligible {
    if touch.time >= subject.activation.time {
        return Ineligible::NotBefore;
    }
    if subject.matches(touch, ids) == Matches::default() {
        let contradicts = ids.contradicts(subject.ids);
        return if contradicts { Ineligible::OtherDevice } else { Ineligible::NoMatch };
    }
    let is_reinstall = decision.install_type == InstallType::Reinstall;
    if is_reinstall && touch.purpose != Purpose::Retargeting {
        return Ineligible::NotRetargeting;
    }
    Ineligible::TooOld
}

/// By the match that makes the touch a candidate, or else by its best one.
fn found(subject: &Subject<'_>, touch: &Touch, ids: &DeviceIds) -> Option<Match> {
    let Matches { by_id, probabilistic } = subject.matches(touch, ids);
    let age_ms = subject.activation.time.since(touch.time).unwrap_or(0);
    let found = |match_type: Option<MatchType>, is_probabilistic| {
        Some(Match {
            match_type: match_type?,
            tier: Tier::of(touch.kind, is_probabilistic),
            window: candidate::window(subject.policy, subject.app, touch, is_probabilistic),
        })
    };
    let (by_id, probabilistic) = (found(by_id, false), found(probabilistic, true));
    let is_within = |found: &Match| age_ms <= found.window.ms;
    by_id.filter(is_within).or(probabilistic.filter(is_within)).or(by_id).or(probabilistic)
}
