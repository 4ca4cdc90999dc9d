//! Explains the credit of an activation: the touches that were considered, and the verdict on each.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::device_ids::DeviceIds;
use crate::facts::event::{Activation, EventTime, Family, Purpose, Touch, TouchKind};
use crate::facts::matches::Matches;
use crate::rules::candidate::{Candidate, ClickCounts, Subject, Tier, Window};
use crate::rules::classify::InstallChain;
use crate::rules::row::{CONTRIBUTORS_MAX, InstallType, MatchType, RejectReason};
use crate::rules::winner::{Decision, Evidence, recency};

/// Maximum number of touches that an explanation lists; others are only counted.
pub const LISTED_MAX: usize = 50;
/// Number of touches per reason of rejection or ineligibility that take precedence over accepted touches without
/// influence. Even with all nine reasons, the list has space for others.
const LISTED_PER_REASON: usize = 5;

/// The explanation of one activation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub activation: Activation,
    /// The stored decision, as the row shows it.
    pub decision: Decision,
    /// The decision that the current settings give for the same class, if it differs because the stored one was made
    /// with other settings.
    pub recomputed: Option<Decision>,
    /// The current settings and the unexpired touches lead to the same decision.
    pub is_repeatable: bool,
    /// The current settings and the unexpired activations lead to the same class.
    pub is_class_repeatable: bool,
    /// The previous decision, made from fewer facts.
    pub previous: Option<Decision>,
    /// Facts that may have changed the decision, the likeliest cause first.
    pub changed_by: Vec<ChangeCause>,
    /// There may be more such facts.
    pub changed_by_more: bool,
    /// The number of decisions so far.
    pub revision: u32,
    /// The install chain before the activation, on which its class depends.
    pub before: Option<InstallChain>,
    /// The winner, then the other accepted touches, the rejected ones and the ineligible ones.
    pub considered: Vec<Evaluated>,
    /// The number of touches with the activation's keys that were counted but are not listed.
    pub unlisted: usize,
    /// There may be more touches that were not counted.
    pub has_more: bool,
    /// An unread touch may be the real runner-up.
    pub may_have_unread_runner_up: bool,
    /// Touches before this time have expired, although the activation could have been credited to them.
    pub expired_before: Option<EventTime>,
}

/// A touch or an activation that may have changed the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeCause {
    /// `None` if the fact has expired.
    pub id: Option<Box<str>>,
    /// The kind of touch; `None` if the fact is not a touch or has been replaced since.
    pub kind: Option<TouchKind>,
    pub family: Family,
    /// The fact's event time when it arrived.
    pub time: EventTime,
    /// The fact was known, and arrived again with an earlier time or other content.
    pub is_update: bool,
}

/// A considered touch and the verdict on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluated {
    pub touch: Touch,
    pub verdict: Verdict,
    pub found: Option<Match>,
}

impl Evaluated {
    /// Returns the sort key by which the strongest touch wins; ties are broken by id (section 5 of the contract).
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

/// The verdict on a touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Won,
    /// Accepted, and among the contributors.
    Contributor,
    /// Accepted, but neither winner nor contributor.
    Accepted,
    Rejected(RejectReason),
    Ineligible(Ineligible),
}

crate::named! {
    /// Why a touch is not a candidate.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Ineligible {
        /// It is not earlier than the activation.
        NotBefore = "not_before",
        /// It is older than its window.
        TooOld = "too_old",
        /// A reinstall considers only retargeting.
        NotRetargeting = "not_retargeting",
        /// It and the activation have different ids of the same kind.
        OtherDevice = "other_device",
        /// It has no match: only hashes of keys are equal, or the equal key does not count.
        NoMatch = "no_match",
    }
}

/// Returns the verdict on each touch. Omits accepted clicks for which not all counting clicks were read: they could not
/// have changed the decision.
pub fn consider(
    subject: &Subject<'_>,
    decision: &Decision,
    evidence: &Evidence<'_>,
) -> Vec<Evaluated> {
    let clicks = evidence.click_counts(subject);
    evidence
        .touches
        .iter()
        .map(|(touch, ids)| Evaluated {
            touch: (*touch).clone(),
            verdict: verdict(subject, decision, touch, ids, &clicks),
            found: found(subject, touch, ids),
        })
        .filter(|it| it.verdict != Verdict::Accepted || evidence.has_counted(subject, &it.touch))
        .collect()
}

/// Sorts the touches, best first, and marks the contributors among the accepted ones, which must all be present.
pub fn ranked(mut considered: Vec<Evaluated>) -> Vec<Evaluated> {
    considered.sort_by(|a, b| recency(&b.touch).cmp(&recency(&a.touch)));
    let accepted = considered.iter_mut().filter(|it| it.verdict == Verdict::Accepted);
    accepted.take(CONTRIBUTORS_MAX).for_each(|it| it.verdict = Verdict::Contributor);
    considered.sort_by_key(|it| it.verdict);
    considered
}

/// Returns the index of the strongest accepted touch besides the winner; `considered` is sorted by [`ranked`].
pub fn runner_up(considered: &[Evaluated]) -> Option<usize> {
    let lost = |it: &Evaluated| matches!(it.verdict, Verdict::Contributor | Verdict::Accepted);
    let accepted = considered.iter().enumerate().filter(|(_, it)| lost(it));
    accepted.max_by_key(|(_, it)| (it.strength(), it.touch.id())).map(|(index, _)| index)
}

/// Checks that the runner-up can be neither an unread touch nor a click for which not all counting clicks were read.
pub fn is_runner_up_settled(
    subject: &Subject<'_>,
    decision: &Decision,
    evidence: &Evidence<'_>,
) -> bool {
    let Some(winner) = &decision.credit.touch else { return true };
    let clicks = evidence.click_counts(subject);
    let others = evidence
        .touches
        .iter()
        .filter(|(touch, _)| !winner.is(touch))
        .filter_map(|(touch, ids)| subject.candidate(touch, ids, decision.install_type))
        .filter(|candidate| subject.reject_reason(candidate, &clicks).is_none());
    let is_counted = |other: &Candidate<'_>| evidence.has_counted(subject, other.touch);
    let (counted, open): (Vec<_>, Vec<_>) = others.partition(is_counted);
    let strength = |other: &Candidate<'_>| (other.tier, other.touch.time);
    let second = counted.iter().map(strength).max();
    let open = open.iter().map(strength).max();
    open.max(evidence.unread.strongest()).is_none_or(|open| Some(open) < second)
}

/// Shortens the list to [`LISTED_MAX`] and returns the number of removed touches. It keeps the winner, the
/// contributors, the runner-up, the newest of each reason of rejection or ineligibility, and as many others as fit.
pub fn truncate(considered: &mut Vec<Evaluated>) -> usize {
    let unlisted = considered.len().saturating_sub(LISTED_MAX);
    if unlisted == 0 {
        return 0;
    }
    let second = runner_up(considered);
    let mut by_verdict: BTreeMap<Verdict, usize> = BTreeMap::new();
    let mut ranks: Vec<(Rank, usize)> = Vec::with_capacity(considered.len());
    for (index, evaluated) in considered.iter().enumerate() {
        let newer = by_verdict.entry(evaluated.verdict).or_default();
        let rank = match evaluated.verdict {
            Verdict::Won | Verdict::Contributor => Rank::Must,
            _ if second == Some(index) => Rank::Must,
            Verdict::Rejected(_) | Verdict::Ineligible(_) if *newer < LISTED_PER_REASON => {
                Rank::Sample
            }
            _ => Rank::Other,
        };
        *newer += 1;
        ranks.push((rank, index));
    }
    ranks.sort_unstable();
    ranks.truncate(LISTED_MAX);
    let mut listed = ranks.into_iter().map(|(_, index)| index).collect::<BTreeSet<_>>();
    let mut index = 0;
    considered.retain(|_| {
        index += 1;
        listed.remove(&(index - 1))
    });
    unlisted
}

/// The order in which touches are kept when the list is shortened.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Must,
    Sample,
    Other,
}

fn verdict(
    subject: &Subject<'_>,
    decision: &Decision,
    touch: &Touch,
    ids: &DeviceIds,
    clicks: &ClickCounts<'_>,
) -> Verdict {
    if decision.credit.touch.as_ref().is_some_and(|winner| winner.is(touch)) {
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

/// Returns the match that makes the touch a candidate, or else its best match.
fn found(subject: &Subject<'_>, touch: &Touch, ids: &DeviceIds) -> Option<Match> {
    let Matches { by_id, probabilistic } = subject.matches(touch, ids);
    let age_ms = subject.activation.time.since(touch.time).unwrap_or(0);
    let found = |match_type: Option<MatchType>, is_probabilistic| {
        Some(Match {
            match_type: match_type?,
            tier: Tier::of(touch.kind, is_probabilistic),
            window: subject.window(touch, is_probabilistic),
        })
    };
    let (by_id, probabilistic) = (found(by_id, false), found(probabilistic, true));
    let is_within = |found: &Match| age_ms <= found.window.ms;
    by_id.filter(is_within).or(probabilistic.filter(is_within)).or(by_id).or(probabilistic)
}
