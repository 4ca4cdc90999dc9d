//! Collects the data of an explanation: the touches that the decision is based on, and nearby touches that a reader may
//! ask about.

use std::collections::BTreeSet;

use super::explanation::{self, ChangeCause, Evaluated, Explanation, Verdict, consider};
use crate::facts::event::{Family, Pid};
use crate::facts::keys::{FactKey, MatchKey};
use crate::facts::match_keys::{self, BUCKET_MS, ProbabilisticClass, TouchClass};
use crate::ledger::Facts;
use crate::ledger::index::{IndexEntry, Scan};
use crate::ledger::record::{Cause, Causes, FactRecord};
use crate::rules::classify::{ActivationKey, InstallChain};
use crate::rules::expiry;
use crate::rules::policy::{DAY_MS, HOUR_MS, Policy};
use crate::rules::row::EventType;
use crate::rules::winner::Decision;
use crate::worker::classify_batch::chain_before_activation;
use crate::worker::fact_cache::{FactCache, scan};
use crate::worker::limits::ReadLimits;
use crate::worker::pending_decision::{
    PendingDecision, read_newest, read_touches, start_reading_alone,
};
use crate::worker::prune_touches::prune;
use crate::worker::touch_search::marker_scans;

/// Number of further touches that are evaluated per key and class, besides those of the decision.
const NEARBY_PER_KEY: usize = 8;
/// Number of touches after which the search for touches to list ends.
const READ_MAX: usize = 1_000;
/// Number of touches after which the search for the runner-up ends, unless the decision needs more.
const RUNNER_UP_READ_MAX: usize = 20_000;
/// Maximum number of touches that are counted per key and class.
const COUNTED_MAX: usize = 1_000;
/// Touches are listed up to this time after the activation.
const AFTER_MS: u64 = HOUR_MS;
/// Touches are listed from this time before the activation on.
const BEFORE_MS: u64 = 180 * DAY_MS;

/// Maximum number of index entries that are read to count touches.
const COUNTED_ENTRIES_MAX: usize = 1 << 18;

/// Explains the credit of an activation; `None` if no activation has this id.
pub fn explain<L: Facts>(
    facts: &mut L,
    policy: &Policy,
    pid: Pid,
    event_id: &str,
) -> Result<Option<Explanation>, L::Error> {
    explain_with_limits(facts, policy, pid, event_id, ReadLimits::default())
}

/// [`explain`] with other limits. They change how many of the touches that do not matter are listed.
pub fn explain_with_limits<L: Facts>(
    facts: &mut L,
    policy: &Policy,
    pid: Pid,
    event_id: &str,
    limits: ReadLimits,
) -> Result<Option<Explanation>, L::Error> {
    let facts = &mut FactCache::with_limits(facts, limits);
    let key = match_keys::fact_key(EventType::Activation, pid, event_id);
    facts.load([key])?;
    let Some(record) = facts.activation(&key).cloned() else { return Ok(None) };
    let (Some(decision), Some(app)) = (record.decision, policy.app(pid)) else { return Ok(None) };
    let class = decision.class();
    let changed_by = causes(facts, &record.changed_by)?;
    let before = chain_before_activation(facts, policy, key)?;
    let is_class_repeatable =
        InstallChain::advance(before.as_ref(), app, ActivationKey::of(&record.fact)).1 == class;
    let (until, floor) = (facts.ledger().consumed_until(), facts.ledger().expiry_floor(pid));
    let expired_before = expiry::expired_before(policy, app, record.fact.time, until, &floor);
    let pending = PendingDecision::new(facts, policy, key, class.clone(), false);
    let Some(pending) = pending else { return Ok(None) };
    let Basis { recomputed, may_have_unread_runner_up, considered: basis } =
        read_basis(facts, pending, &decision)?;
    let is_repeatable = recomputed.is_none();
    // If touches have expired, a different decision does not show that the settings have changed.
    let recomputed = recomputed.filter(|_| expired_before.is_none());
    let pending = PendingDecision::new(facts, policy, key, class, false);
    let Some(pending) = pending else { return Ok(None) };
    let Nearby { considered: nearby, mut unlisted, has_more } =
        read_nearby(facts, pending, &decision, &basis)?;
    let mut considered = explanation::ranked(basis.into_iter().chain(nearby).collect());
    unlisted += explanation::truncate(&mut considered);
    Ok(Some(Explanation {
        activation: record.fact,
        decision,
        recomputed,
        is_repeatable,
        is_class_repeatable,
        previous: record.previous,
        changed_by,
        changed_by_more: record.changed_by.may_have_more,
        revision: record.current_row.map_or(0, |current_row| current_row.revision),
        before,
        considered,
        unlisted,
        has_more,
        may_have_unread_runner_up,
        expired_before,
    }))
}

/// The touches on which the decision is based.
struct Basis {
    /// The decision that the current settings give, if it differs.
    recomputed: Option<Decision>,
    may_have_unread_runner_up: bool,
    /// The strongest and the newest accepted touches, including all contributors.
    considered: Vec<Evaluated>,
}

/// Further touches near the decision, bounded in number.
struct Nearby {
    considered: Vec<Evaluated>,
    unlisted: usize,
    has_more: bool,
}

/// Touches with the activation's keys that are not evaluated.
#[derive(Default)]
struct Around {
    others: BTreeSet<FactKey>,
    /// There are more that were not counted.
    has_more: bool,
}

/// Reads touches as for a decision, with the same limit of memory, but continues until the runner-up is known, which
/// may be older than the contributors.
fn read_basis<L: Facts>(
    facts: &mut FactCache<'_, L>,
    mut pending: PendingDecision<'_>,
    decision: &Decision,
) -> Result<Basis, L::Error> {
    start_reading_alone(facts, &mut pending)?;
    loop {
        read_newest(facts, &mut pending)?;
        let is_enough =
            || pending.read >= RUNNER_UP_READ_MAX || has_runner_up(facts, &pending, decision);
        if pending.is_read() || (pending.decision(facts).is_some() && is_enough()) {
            break;
        }
        prune(facts, &mut pending);
    }
    let recomputed = pending.decision(facts).filter(|recomputed| !recomputed.is_same(decision));
    let may_have_unread_runner_up = !has_runner_up(facts, &pending, decision);
    // The stored winner may have been pruned, if it does not win by the current settings.
    if let Some(winner) = &decision.credit.touch {
        let key = match_keys::fact_key(winner.kind, pending.key.pid, &winner.click_id);
        facts.load([key])?;
        pending.counted.remove(&key);
        pending.add_touch(facts, key);
    }
    let mut considered = evaluated(facts, &pending, decision);
    let is_open = pending.without_touches.is_none();
    considered.retain(|it| is_open && matches!(it.verdict, Verdict::Won | Verdict::Accepted));
    Ok(Basis { recomputed, may_have_unread_runner_up, considered })
}

/// Reads the newest touches, whether or not they could be credited.
fn read_nearby<L: Facts>(
    facts: &mut FactCache<'_, L>,
    mut pending: PendingDecision<'_>,
    decision: &Decision,
    basis: &[Evaluated],
) -> Result<Nearby, L::Error> {
    if pending.without_touches.is_some() {
        return Ok(Nearby { considered: Vec::new(), unlisted: 0, has_more: false });
    }
    facts.forget_touches();
    start_reading_alone(facts, &mut pending)?;
    loop {
        read_touches(facts, std::slice::from_mut(&mut pending))?;
        let is_full =
            pending.touches.len() >= READ_MAX || facts.bytes(Family::Touch) >= facts.limits.bytes;
        if pending.is_read() || is_full {
            break;
        }
    }
    let mut around = add_ineligible(facts, &mut pending)?;
    let mut considered = evaluated(facts, &pending, decision);
    let pid = pending.key.pid;
    let key_of = |it: &Evaluated| match_keys::fact_key(it.touch.kind, pid, it.touch.id());
    let mut listed: BTreeSet<FactKey> = basis.iter().map(key_of).collect();
    considered.retain(|it| listed.insert(key_of(it)));
    around.others.extend(pending.touches.keys());
    Ok(Nearby {
        unlisted: around.others.difference(&listed).count(),
        has_more: around.has_more || !pending.is_read(),
        considered,
    })
}

fn evaluated<L: Facts>(
    facts: &FactCache<'_, L>,
    pending: &PendingDecision<'_>,
    decision: &Decision,
) -> Vec<Evaluated> {
    let Some(subject) = pending.subject(facts) else { return Vec::new() };
    consider(&subject, decision, &pending.evidence(facts))
}

/// Checks whether the runner-up is among the touches that were read.
fn has_runner_up<L: Facts>(
    facts: &FactCache<'_, L>,
    pending: &PendingDecision<'_>,
    decision: &Decision,
) -> bool {
    pending.is_read()
        || pending.subject(facts).is_none_or(|subject| {
            explanation::is_runner_up_settled(&subject, decision, &pending.evidence(facts))
        })
}

/// Returns the causes of the last change, with their current ids.
fn causes<L: Facts>(
    facts: &mut FactCache<'_, L>,
    causes: &Causes,
) -> Result<Vec<ChangeCause>, L::Error> {
    facts.load(causes.facts.iter().map(|cause| cause.fact))?;
    let change_cause = |Cause { fact, time, is_update }: &Cause| {
        let record = facts.record(fact);
        let kind = match record {
            Some(FactRecord::Touch(touch)) if touch.time == *time => Some(touch.kind),
            _ => None,
        };
        let id = record.map(|record| record.id().into());
        ChangeCause { id, kind, family: fact.family, time: *time, is_update: *is_update }
    };
    Ok(causes.facts.iter().map(change_cause).collect())
}

/// Adds touches that cannot be candidates: they are too late, too old, from another device, or for user acquisition
/// although the activation is a reinstall.
fn add_ineligible<L: Facts>(
    facts: &mut FactCache<'_, L>,
    pending: &mut PendingDecision<'_>,
) -> Result<Around, L::Error> {
    let mut around = Around::default();
    let Some(subject) = pending.subject(facts) else { return Ok(around) };
    let (pid, time) = (subject.activation.pid, subject.activation.time);
    // Two ranges, so that touches after the activation do not displace those just before it.
    let times = [(time.minus(BEFORE_MS), time), (time.plus(1), time.plus(AFTER_MS))];
    let marker_times = (time.minus(7 * DAY_MS + BUCKET_MS), time.plus(AFTER_MS));
    let (probabilistic_keys, marker_scans): (Vec<MatchKey>, Vec<Scan>) =
        marker_scans(&subject, marker_times).into_iter().unzip();
    let mut marked: BTreeSet<(MatchKey, ProbabilisticClass)> = BTreeSet::new();
    facts.scan_all(&marker_scans, |index, entry| {
        let key = probabilistic_keys.get(index);
        marked.extend(key.map(|key| (*key, ProbabilisticClass::of_marker(&entry))));
    })?;
    let by_id = TouchClass::all()
        .flat_map(|class| pending.ids.iter().map(move |id| match_keys::touch_by_id(class, id)));
    let by_probabilistic_key =
        marked.iter().map(|(key, class)| match_keys::touch_by_probabilistic_key(*class, *key));
    let mut scans: Vec<Scan> = by_id
        .chain(by_probabilistic_key)
        .flat_map(|key| times.map(|times| scan(pid, Family::Touch, key, times)))
        .collect();
    let counted_max = (COUNTED_ENTRIES_MAX / scans.len().max(1)).clamp(1, COUNTED_MAX);
    scans.iter_mut().for_each(|scan| scan.limit = counted_max);
    let pages = facts.ledger().scan(&scans)?;
    let mut near: Vec<Vec<IndexEntry>> =
        pages.iter().map(|page| page.iter().take(NEARBY_PER_KEY).copied().collect()).collect();
    facts.load_pages(&mut near)?;
    for entry in near.iter().flatten() {
        if facts.at(entry).is_some() {
            pending.add_touch(facts, entry.fact);
        }
    }
    around.has_more = pages.iter().any(|page| page.len() >= counted_max);
    let others = pages.iter().flatten().map(|entry| entry.fact);
    around.others.extend(others.filter(|key| !pending.touches.contains_key(key)));
    Ok(around)
}
