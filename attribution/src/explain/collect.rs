//! Reads what an explanation tells: all that the decision was made from, and the touches around it
//! that one would ask about.

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

/// Touches of one key and class that are looked at besides those of the decision.
const AROUND: usize = 8;
/// So many are read to be told of.
const READ_MAX: usize = 1_000;
/// For whoever came second, no more are read than these, but for those that the decision needs.
const SECOND_MAX: usize = 20_000;
/// Of one key and class, so many are counted.
const COUNTED_MAX: usize = 1_000;
/// How long after the activation a touch is still worth telling of.
const AFTER_MS: u64 = HOUR_MS;
/// How long before it.
const BEFORE_MS: u64 = 180 * DAY_MS;

/// Why an activation is credited as it is; `None` if there is none with this id.
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
    let changed_by = context.came_in(&record.changed_by)?;
    let before = context.chain_before_activation(key)?;
    let is_class_repeatable =
        InstallChain::step(before.as_ref(), app, ActivationKey::of(&record.fact)).1 == class;
    let (until, floor) = (context.ledger().consumed_until(), context.ledger().expiry_floor(pid));
    let expired_before = expiry::expired_before(policy, app, record.fact.time, until, &floor);
    let Some(pending) = context.pending_decision(key, class.clone(), false) else {
        return Ok(None);
    };
    let Grounds { recomputed, is_second_unread, considered: grounds } =
        context.grounds(pending, &decision)?;
    let is_repeatable = recomputed.is_none();
    // Without all touches it would be another one anyway.
    let recomputed = recomputed.filter(|_| expired_before.is_none());
    let Some(pending) = context.pending_decision(key, class, false) else { return Ok(None) };
    let Seen { considered: seen, mut unlisted, has_more } =
        context.see(pending, &decision, &grounds)?;
    let mut considered = explanation::ranked(grounds.into_iter().chain(seen).collect());
    unlisted += explanation::cut(&mut considered);
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

/// What the decision rests on.
struct Grounds {
    /// Where it would be another one now.
    recomputed: Option<Decision>,
    is_second_unread: bool,
    /// The accepted touches that are the strongest, and the newest; all that can be contributors.
    considered: Vec<Evaluated>,
}

/// What is found around the decision, bounded.
struct Seen {
    considered: Vec<Evaluated>,
    unlisted: usize,
    has_more: bool,
}

/// Touches with the activation's keys that are not looked at.
#[derive(Default)]
struct Around {
    others: BTreeSet<FactKey>,
    /// Whether some of them were not counted.
    has_more: bool,
}

impl<L: Facts> BatchContext<'_, L> {
    /// Reads as a decision does, with no more room, and on until it is known who came second: he
    /// may be older than the contributors.
    fn grounds(
        &mut self,
        mut pending: PendingDecision,
        decision: &Decision,
    ) -> Result<Grounds, L::Error> {
        self.start_reading_alone(&mut pending)?;
        let mut read = 0;
        loop {
            let before = pending.touches.len();
            self.read_newest(&mut pending)?;
            read += pending.touches.len() - before;
            let is_enough = || read >= SECOND_MAX || self.has_second(&pending, decision);
            if pending.is_read() || (self.decision(&pending).is_some() && is_enough()) {
                break;
            }
            self.prune(&mut pending);
        }
        let recomputed = self.decision(&pending).filter(|recomputed| !recomputed.is_same(decision));
        let is_second_unread = !self.has_second(&pending, decision);
        // With other settings it may be none of those that were kept.
        if let Some(winner) = &decision.credit.touch {
            let key = match_keys::fact_key(Family::Touch, pending.key.pid, &winner.click_id);
            self.load([key])?;
            self.note(&mut pending, key);
        }
        let mut considered = self.considered(&pending, decision);
        let is_open = !self.is_decided_without_touches(&pending);
        considered.retain(|one| is_open && matches!(one.verdict, Verdict::Won | Verdict::Accepted));
        Ok(Grounds { recomputed, is_second_unread, considered })
    }

    /// Reads what is nearest, whether it could be credited or not.
    fn see(
        &mut self,
        mut pending: PendingDecision,
        decision: &Decision,
        grounds: &[Evaluated],
    ) -> Result<Seen, L::Error> {
        if self.is_decided_without_touches(&pending) {
            return Ok(Seen { considered: Vec::new(), unlisted: 0, has_more: false });
        }
        self.start_reading_alone(&mut pending)?;
        loop {
            self.read_touches(std::slice::from_mut(&mut pending))?;
            if pending.is_read() || pending.touches.len() >= READ_MAX {
                break;
            }
        }
        let mut around = self.look_around(&mut pending)?;
        let mut considered = self.considered(&pending, decision);
        let pid = pending.key.pid;
        let of = |one: &Evaluated| match_keys::fact_key(Family::Touch, pid, &one.touch.id);
        let mut listed: BTreeSet<FactKey> = grounds.iter().map(of).collect();
        considered.retain(|one| listed.insert(of(one)));
        around.others.extend(pending.touches.keys());
        Ok(Seen {
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

    /// Whether whoever came second is among those that were read.
    fn has_second(&self, pending: &PendingDecision, decision: &Decision) -> bool {
        pending.is_read()
            || self.subject(pending).is_none_or(|subject| {
                explanation::is_second_settled(&subject, decision, &self.evidence(pending))
            })
    }

    /// What came in when the decision changed, with the names that it has now.
    fn came_in(&mut self, causes: &Causes) -> Result<Vec<ChangeCause>, L::Error> {
        self.load(causes.facts.iter().map(|cause| cause.fact))?;
        let came_in = |Cause { fact, time, is_update }: &Cause| {
            let record = self.record(fact);
            let kind = match record {
                Some(FactRecord::Touch(touch)) if touch.time == *time => Some(touch.kind),
                _ => None,
            };
            let id = record.map(|record| record.id().into());
            ChangeCause { id, kind, family: fact.family, time: *time, is_update: *is_update }
        };
        Ok(causes.facts.iter().map(came_in).collect())
    }

    /// Adds touches that could be no candidates: too late, too old, of another device, or of user
    /// acquisition before a reinstall.
    fn look_around(&mut self, pending: &mut PendingDecision) -> Result<Around, L::Error> {
        let mut around = Around::default();
        let Some(activation) = self.activation(&pending.key) else { return Ok(around) };
        let (pid, time) = (activation.pid, activation.time);
        let probabilistic = self.app(&pending.key).is_some_and(|app| app.probabilistic);
        // Apart, so that those after it do not hide those just before it.
        let times = [(time.minus(BEFORE_MS), time), (time.plus(1), time.plus(AFTER_MS))];
        let places: Vec<MatchKey> = if probabilistic {
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
        for place in places {
            for has_lookback in [false, true] {
                let key = match_keys::bucket_markers(place, has_lookback);
                markers.push((place, scan(pid, Family::Touch, key, marker_times)));
            }
        }
        let marker_scans: Vec<Scan> = markers.iter().map(|(_, scan)| *scan).collect();
        let mut marked: BTreeSet<(MatchKey, PlacedClass)> = BTreeSet::new();
        self.scan_all(&marker_scans, |number, entry| {
            let place = markers.get(number).map(|(place, _)| *place);
            marked.extend(place.map(|place| (place, PlacedClass::of_mark(&entry))));
        })?;
        keys.extend(marked.iter().map(|(place, class)| match_keys::touch_by_place(*class, *place)));
        let scans: Vec<Scan> = keys
            .into_iter()
            .flat_map(|key| times.map(|times| scan(pid, Family::Touch, key, times)))
            .map(|scan| Scan { limit: COUNTED_MAX, ..scan })
            .collect();
        let pages = self.ledger().scan(&scans)?;
        let near = || pages.iter().flat_map(|page| page.iter().take(AROUND));
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
