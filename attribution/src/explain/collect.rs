//! Gathers an explanation: the touches that the decision was made from, and others around it that a reader may ask
//! about.

use std::collections::BTreeSet;

use super::explanation::{self, ChangeCause, Evaluated, Explanation, Verdict, consider};
use crate::facts::event::{Family, Pid};
use crate::facts::keys::{FactKey, MatchKey};
use crate::facts::match_keys::{self, BUCKET_MS, PlacedClass, TouchClass};
use crate::ledger::Facts;
use crate::ledger::index::Scan;
use crate::ledger::record::{Cause, Causes, FactRecord};
use crate::rules::classify::{ActivationKey, Class, InstallChain};
use crate::rules::expiry;
use crate::rules::policy::{DAY_MS, HOUR_MS, Policy};
use crate::rules::winner::{self, Decision};
use crate::worker::BatchContext;
use crate::worker::batch_context::scan;
use crate::worker::touch_search::PendingDecision;

/// Further touches that are evaluated per key and class, besides those of the decision.
const NEARBY_PER_KEY: usize = 8;
/// Touches that are read to be listed.
const READ_MAX: usize = 1_000;
/// To find the runner-up, no more touches than these are read, except those that the decision needs.
const RUNNER_UP_READ_MAX: usize = 20_000;
/// Touches that are counted per key and class.
const COUNTED_MAX: usize = 1_000;
/// How long after the activation touches are listed.
const AFTER_MS: u64 = HOUR_MS;
/// How long before the activation touches are listed.
const BEFORE_MS: u64 = 180 * DAY_MS;

/// Explains the credit of an activation; `None` if no activation has this id.
pub fn explain<L: Facts>(
    facts: &mut L,
    policy: &Policy,
    pid: Pid,
    event_id: &str,
) -> Result<Option<Explanation>, L::Error> {
    let mut context = BatchContext::new(facts, policy);
    let key = match_keys::fact_key(Family::Activation, pid, event_id);
    context.load([key])?;
    let Some(FactRecord::Activation(record)) = context.record(&key).cloned() else {
        return Ok(None);
    };
    let (Some(decision), Some(app)) = (record.decision, policy.app(pid)) else { return Ok(None) };
    let class = Class { install_type: decision.install_type, original: decision.original.clone() };
    let changed_by = context.change_causes(&record.changed_by)?;
    let before = context.chain_before_activation(key)?;
    let is_class_repeatable =
        InstallChain::step(before.as_ref(), app, ActivationKey::of(&record.fact)).1 == class;
    let (until, floor) = (context.ledger().consumed_until(), context.ledger().expiry_floor(pid));
    let expired_before = expiry::expired_before(policy, app, record.fact.time, until, &floor);
    let Some(pending) = context.pending_decision(key, class.clone(), false) else {
        return Ok(None);
    };
    let Basis { recomputed, is_second_unread, considered: basis } =
        context.basis(pending, &decision)?;
    let is_repeatable = recomputed.is_none();
    // If touches have expired, the decision would differ anyway.
    let recomputed = recomputed.filter(|_| expired_before.is_none());
    let Some(pending) = context.pending_decision(key, class, false) else { return Ok(None) };
    let Nearby { considered: nearby, mut unlisted, has_more } =
        context.read_nearby(pending, &decision, &basis)?;
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
        changed_by_more: record.changed_by.has_more,
        revision: record.current_row.map_or(0, |current_row| current_row.revision),
        before,
        considered,
        unlisted,
        has_more,
        is_second_unread,
        expired_before,
    }))
}

/// The touches that the decision is based on.
struct Basis {
    /// The decision that the current settings give, if it differs.
    recomputed: Option<Decision>,
    is_second_unread: bool,
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
    /// Some of them were not counted.
    has_more: bool,
}

impl<L: Facts> BatchContext<'_, L> {
    /// Reads like a decision, within the same memory, and continues until the runner-up is known, which may be older
    /// than the contributors.
    fn basis(
        &mut self,
        mut pending: PendingDecision,
        decision: &Decision,
    ) -> Result<Basis, L::Error> {
        self.start_reading_alone(&mut pending)?;
        let mut read = 0;
        loop {
            let before = pending.touches.len();
            self.read_newest(&mut pending)?;
            read += pending.touches.len() - before;
            let is_enough = || read >= RUNNER_UP_READ_MAX || self.has_second(&pending, decision);
            if pending.is_read() || (self.decision(&pending).is_some() && is_enough()) {
                break;
            }
            self.prune(&mut pending);
        }
        let recomputed = self.decision(&pending).filter(|recomputed| !recomputed.is_same(decision));
        let is_second_unread = !self.has_second(&pending, decision);
        // With the current settings the stored winner may have been pruned.
        if let Some(winner) = &decision.credit.touch {
            let key = match_keys::fact_key(Family::Touch, pending.key.pid, &winner.click_id);
            self.load([key])?;
            self.note(&mut pending, key);
        }
        let mut considered = self.considered(&pending, decision);
        let is_open = !self.is_decided_without_touches(&pending);
        considered.retain(|it| is_open && matches!(it.verdict, Verdict::Won | Verdict::Accepted));
        Ok(Basis { recomputed, is_second_unread, considered })
    }

    /// Reads the nearest touches, whether they could be credited or not.
    fn read_nearby(
        &mut self,
        mut pending: PendingDecision,
        decision: &Decision,
        basis: &[Evaluated],
    ) -> Result<Nearby, L::Error> {
        if self.is_decided_without_touches(&pending) {
            return Ok(Nearby { considered: Vec::new(), unlisted: 0, has_more: false });
        }
        self.start_reading_alone(&mut pending)?;
        loop {
            self.read_touches(std::slice::from_mut(&mut pending))?;
            if pending.is_read() || pending.touches.len() >= READ_MAX {
                break;
            }
        }
        let mut around = self.add_ineligible(&mut pending)?;
        let mut considered = self.considered(&pending, decision);
        let pid = pending.key.pid;
        let key_of = |it: &Evaluated| match_keys::fact_key(Family::Touch, pid, &it.touch.id);
        let mut listed: BTreeSet<FactKey> = basis.iter().map(key_of).collect();
        considered.retain(|it| listed.insert(key_of(it)));
        around.others.extend(pending.touches.keys());
        Ok(Nearby {
            unlisted: around.others.difference(&listed).count(),
            has_more: around.has_more || !pending.is_read(),
            considered,
        })
    }

    fn considered(&self, pending: &PendingDecision, decision: &Decision) -> Vec<Evaluated> {
        let Some(subject) = self.subject(pending) else { return Vec::new() };
        consider(&subject, decision, &self.evidence(pending))
    }

    fn is_decided_without_touches(&self, pending: &PendingDecision) -> bool {
        self.subject(pending)
            .is_some_and(|subject| winner::without_touches(&subject, &pending.class).is_some())
    }

    /// Checks whether the runner-up is among the touches that were read.
    fn has_second(&self, pending: &PendingDecision, decision: &Decision) -> bool {
        pending.is_read()
            || self.subject(pending).is_none_or(|subject| {
                explanation::is_second_settled(&subject, decision, &self.evidence(pending))
            })
    }

    /// Returns the causes of the last change, with their current ids.
    fn change_causes(&mut self, causes: &Causes) -> Result<Vec<ChangeCause>, L::Error> {
        self.load(causes.facts.iter().map(|cause| cause.fact))?;
        let change_cause = |Cause { fact, time, is_update }: &Cause| {
            let record = self.record(fact);
            let kind = match record {
                Some(FactRecord::Touch(touch)) if touch.time == *time => Some(touch.kind),
                _ => None,
            };
            let id = record.map(|record| record.id().into());
            ChangeCause { id, kind, family: fact.family, time: *time, is_update: *is_update }
        };
        Ok(causes.facts.iter().map(change_cause).collect())
    }

    /// Adds touches that cannot be candidates: too late, too old, of another device, or of user acquisition before a
    /// reinstall.
    fn add_ineligible(&mut self, pending: &mut PendingDecision) -> Result<Around, L::Error> {
        let mut around = Around::default();
        let Some(activation) = self.activation(&pending.key) else { return Ok(around) };
        let (pid, time) = (activation.pid, activation.time);
        let probabilistic = self.app(&pending.key).is_some_and(|app| app.probabilistic);
        // Two ranges, so that touches after the activation do not displace those just before it.
        let times = [(time.minus(BEFORE_MS), time), (time.plus(1), time.plus(AFTER_MS))];
        let probabilistic_keys: Vec<MatchKey> = if probabilistic {
            match_keys::probabilistic_keys(&activation.device).collect()
        } else {
            Vec::new()
        };
        let mut keys: Vec<MatchKey> = Vec::new();
        for class in TouchClass::all() {
            keys.extend(pending.ids.iter().map(|id| match_keys::touch_by_id(class, id)));
        }
        let marker_times = (time.minus(7 * DAY_MS + BUCKET_MS), time.plus(AFTER_MS));
        let mut markers: Vec<(MatchKey, Scan)> = Vec::new();
        for probabilistic_key in probabilistic_keys {
            for has_lookback in [false, true] {
                let key = match_keys::bucket_markers(probabilistic_key, has_lookback);
                markers.push((probabilistic_key, scan(pid, Family::Touch, key, marker_times)));
            }
        }
        let marker_scans: Vec<Scan> = markers.iter().map(|(_, scan)| *scan).collect();
        let mut marked: BTreeSet<(MatchKey, PlacedClass)> = BTreeSet::new();
        self.scan_all(&marker_scans, |index, entry| {
            let key = markers.get(index).map(|(key, _)| *key);
            marked.extend(key.map(|key| (key, PlacedClass::of_marker(&entry))));
        })?;
        keys.extend(
            marked.iter().map(|(key, class)| match_keys::touch_by_probabilistic_key(*class, *key)),
        );
        let scans: Vec<Scan> = keys
            .into_iter()
            .flat_map(|key| times.map(|times| scan(pid, Family::Touch, key, times)))
            .map(|scan| Scan { limit: COUNTED_MAX, ..scan })
            .collect();
        let pages = self.ledger().scan(&scans)?;
        let near = || pages.iter().flat_map(|page| page.iter().take(NEARBY_PER_KEY));
        self.load(near().map(|entry| entry.fact))?;
        for entry in near() {
            if self.at(entry).is_some() {
                self.note(pending, entry.fact);
            }
        }
        around.has_more = pages.iter().any(|page| page.len() >= COUNTED_MAX);
        let others = pages.iter().flatten().map(|entry| entry.fact);
        around.others.extend(others.filter(|key| !pending.touches.contains_key(key)));
        Ok(around)
    }
}
