//! Why an activation is credited as it is: what was considered, and what became of it.

use std::cmp::Reverse;

use crate::attribute::{Decision, Evidence};
use crate::candidate::{self, ClickCounts, Subject, Tier, Window};
use crate::classify::Walk;
use crate::event::{Activation, EventTime, Purpose, Touch};
use crate::ids::DeviceIds;
use crate::matching::Matches;
use crate::row::{CONTRIBUTORS_MAX, InstallType, MatchType, RejectReason};

/// Touches that an explanation lists; of those beyond, only the number is told.
pub const LISTED_MAX: usize = 50;

/// All that there is to tell about one activation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub activation: Activation,
    /// As its row shows it.
    pub decision: Decision,
    /// As these settings would have it, where that is another one: it was decided with others.
    pub anew: Option<Decision>,
    /// As it was decided before, on fewer facts.
    pub previous: Option<Decision>,
    /// How often it was decided in all.
    pub revision: u32,
    /// The activations of the same device before it that its class depends on.
    pub before: Option<Walk>,
    /// Best first: the winner, whoever else was accepted, the rejected, and who was no candidate.
    pub considered: Vec<Considered>,
    /// Touches with its keys that are not listed, as far as they were counted.
    pub unlisted: usize,
    /// Whether there may be more that were not even counted, or could have come second.
    pub has_more: bool,
    /// Touches before this that it could have been credited with are no longer kept.
    pub expired_before: Option<EventTime>,
}

/// A touch that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Considered {
    pub touch: Touch,
    pub verdict: Verdict,
    pub found: Option<Found>,
}

impl Considered {
    /// What the strongest is chosen by, before its id (the contract's section 5).
    pub fn strength(&self) -> (Option<Tier>, EventTime, Option<u8>) {
        let tier = self.found.map(|found| found.tier);
        (tier, self.touch.time, self.found.map(|found| found.match_type.rank()))
    }
}

/// How a touch and the activation match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
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
    NoCandidate(Because),
}

/// Why a touch is no candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Because {
    /// It was not before the activation.
    NotBefore,
    /// Its window had passed.
    TooOld,
    /// A reinstall considers only retargeting.
    NotRetargeting,
    /// Both carry an id of one kind, with different values.
    OtherDevice,
    /// Its keys only seemed equal, or it has none that counts.
    NoMatch,
}

/// Says of each touch what became of it, best first. Left out are clicks that may be one too many,
/// because not all that count against them were read: they could not have changed the decision.
pub fn consider(
    subject: &Subject<'_>,
    decision: &Decision,
    evidence: &Evidence<'_>,
) -> Vec<Considered> {
    let clicks = ClickCounts::new(subject, evidence.touches.iter().copied());
    let mut considered: Vec<Considered> = evidence
        .touches
        .iter()
        .map(|(touch, ids)| Considered {
            touch: (*touch).clone(),
            verdict: verdict(subject, decision, (touch, ids), &clicks),
            found: found(subject, touch, ids),
        })
        .filter(|one| one.verdict != Verdict::Accepted || evidence.has_counted(subject, &one.touch))
        .collect();
    considered.sort_by_cached_key(|one| Reverse((one.touch.time, one.touch.id.clone())));
    let accepted = considered.iter_mut().filter(|one| one.verdict == Verdict::Accepted);
    accepted.take(CONTRIBUTORS_MAX).for_each(|one| one.verdict = Verdict::Contributor);
    considered.sort_by_key(|one| one.verdict);
    considered
}

/// The strongest of those that were accepted and did not win, as [`consider`] orders them.
pub fn runner_up(considered: &[Considered]) -> Option<usize> {
    let lost = |one: &Considered| matches!(one.verdict, Verdict::Contributor | Verdict::Accepted);
    let accepted = considered.iter().enumerate().filter(|(_, one)| lost(one));
    accepted.max_by_key(|(_, one)| (one.strength(), &one.touch.id)).map(|(place, _)| place)
}

/// Cuts the list to its length, the runner-up not; returns how many went.
pub fn cut(considered: &mut Vec<Considered>) -> usize {
    let unlisted = considered.len().saturating_sub(LISTED_MAX);
    if let Some(place) = runner_up(considered).filter(|place| *place >= LISTED_MAX) {
        considered.swap(place, LISTED_MAX - 1);
    }
    considered.truncate(LISTED_MAX);
    unlisted
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
        None => Verdict::NoCandidate(because(subject, decision, touch, ids)),
    }
}

fn because(subject: &Subject<'_>, decision: &Decision, touch: &Touch, ids: &DeviceIds) -> Because {
    if touch.time >= subject.activation.time {
        return Because::NotBefore;
    }
    if subject.matches(touch, ids) == Matches::default() {
        let contradicts = ids.contradicts(subject.ids);
        return if contradicts { Because::OtherDevice } else { Because::NoMatch };
    }
    let is_reinstall = decision.install_type == InstallType::Reinstall;
    if is_reinstall && touch.purpose != Purpose::Retargeting {
        return Because::NotRetargeting;
    }
    Because::TooOld
}

/// By the match that makes the touch a candidate, or else by its best one.
fn found(subject: &Subject<'_>, touch: &Touch, ids: &DeviceIds) -> Option<Found> {
    let Matches { by_id, probabilistic } = subject.matches(touch, ids);
    let age_ms = subject.activation.time.since(touch.time).unwrap_or(0);
    let found = |match_type: Option<MatchType>, is_probabilistic| {
        Some(Found {
            match_type: match_type?,
            tier: Tier::of(touch.kind, is_probabilistic),
            window: candidate::window(subject.policy, subject.app, touch, is_probabilistic),
        })
    };
    let (by_id, probabilistic) = (found(by_id, false), found(probabilistic, true));
    let is_within = |found: &Found| age_ms <= found.window.ms;
    by_id.filter(is_within).or(probabilistic.filter(is_within)).or(by_id).or(probabilistic)
}
