//! Makes the decisions on effects: finds the activation that each effect inherits from, and its credit.

use std::sync::Arc;

use super::batch_state::EventIds;
use super::decisions::Decisions;
use super::fact_cache::{FactCache, NEXT_PAGE, scan};
use crate::facts::device_ids::DeviceIds;
use crate::facts::event::{Activation, EventTime, Family};
use crate::facts::keys::FactKey;
use crate::facts::match_keys;
use crate::ledger::Facts;
use crate::ledger::index::{IndexEntry, Scan};
use crate::rules::policy::{AppPolicy, Policy};
use crate::rules::row::{EventType, Row};
use crate::rules::winner::Decision;
use crate::rules::{build_row, inherit};

/// Number of effects that are decided together.
const BATCH_SIZE: usize = 512;
/// Number of pages of activations that are read for all of them together: most effects need no more. Longer histories
/// are read one by one, to save memory.
const BATCH_PAGES: usize = 2;

/// An effect that is being decided.
struct PendingEffect<'p> {
    app: &'p AppPolicy,
    key: FactKey,
    ids: Arc<DeviceIds>,
    /// Open searches for activations of the device.
    scans: Vec<Scan>,
    found: Vec<IndexEntry>,
}

/// Makes the decisions on effects.
pub fn decide_effects<L: Facts>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    known_ids: &EventIds,
    decisions: &mut Decisions,
    keys: &[FactKey],
) -> Result<(), L::Error> {
    let mut rest = keys;
    while !rest.is_empty() {
        rest = decide_next(facts, policy, known_ids, decisions, rest, false)?;
    }
    Ok(())
}

/// Makes the decisions on the first of the effects, as many as are loaded together. Returns the rest.
///
/// On a shared store, `must_reread_activations` is true: the effects are loaded first, and loaded activations are
/// dropped and read again. So if another worker recomputes an effect after it has changed an activation, a decision
/// made here from the old activation also has an old effect record, and is rejected at commit.
pub fn decide_next<'k, L: Facts>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    known_ids: &EventIds,
    decisions: &mut Decisions,
    keys: &'k [FactKey],
    must_reread_activations: bool,
) -> Result<&'k [FactKey], L::Error> {
    let (chunk, rest) = keys.split_at(load_chunk(facts, keys)?);
    if must_reread_activations {
        facts.retain(|key| key.family == Family::Effect);
    }
    decide_chunk(facts, policy, known_ids, decisions, chunk)?;
    Ok(rest)
}

/// Loads the first of the effects, up to the limits of a chunk. Returns how many.
fn load_chunk<L: Facts>(facts: &mut FactCache<'_, L>, keys: &[FactKey]) -> Result<usize, L::Error> {
    let chunk = keys.get(..BATCH_SIZE).unwrap_or(keys);
    if facts.load_up_to(chunk.iter().copied())? {
        return Ok(chunk.len());
    }
    facts.load(chunk.first().copied())?;
    Ok(chunk.iter().take_while(|key| facts.is_loaded(key)).count())
}

/// Decides loaded effects, and drops those whose row stays the same.
fn decide_chunk<L: Facts>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    known_ids: &EventIds,
    decisions: &mut Decisions,
    keys: &[FactKey],
) -> Result<(), L::Error> {
    let pending = keys.iter().filter_map(|key| PendingEffect::new(facts, policy, known_ids, *key));
    let mut open: Vec<_> = pending.collect();
    let mut settled = Vec::with_capacity(open.len());
    for _ in 0..BATCH_PAGES {
        read_activations(facts, &mut open)?;
        let (newly_settled, remaining): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|pending| pending.is_settled(facts));
        settled.extend(newly_settled);
        open = remaining;
    }
    settle(facts, decisions, &settled)?;
    forget_activations(facts, decisions);
    for mut pending in open {
        // Another effect may have dropped activations that this one has read.
        facts.load(pending.found.iter().map(|entry| entry.fact))?;
        while !pending.is_settled(facts) {
            pending.forget_others(facts, decisions);
            read_activations(facts, std::slice::from_mut(&mut pending))?;
        }
        settle(facts, decisions, &[pending])?;
        forget_activations(facts, decisions);
    }
    for key in keys.iter().filter(|key| !decisions.has_row(key)) {
        facts.forget(key);
    }
    Ok(())
}

/// Drops the loaded activations, except those to be written, once they have reached the limit of bytes.
fn forget_activations<L: Facts>(facts: &mut FactCache<'_, L>, decisions: &Decisions) {
    if facts.bytes(Family::Activation) >= facts.limits.bytes {
        facts.retain(|key| key.family != Family::Activation || decisions.has_row(key));
    }
}

/// Reads the next page of every open search. If the activations are larger than one read may load, pages end earlier.
fn read_activations<L: Facts>(
    facts: &mut FactCache<'_, L>,
    pending_effects: &mut [PendingEffect<'_>],
) -> Result<(), L::Error> {
    let scans: Vec<Scan> =
        pending_effects.iter().flat_map(|pending| pending.scans.iter().copied()).collect();
    let mut pages = facts.ledger().scan(&scans)?;
    let is_full: Vec<bool> =
        pages.iter().zip(&scans).map(|(page, scan)| page.len() >= scan.limit).collect();
    let is_cut = facts.load_pages(&mut pages)?;
    let mut pages = pages.into_iter().zip(is_full.into_iter().zip(is_cut));
    for pending in pending_effects {
        pending.scans.retain_mut(|scan| {
            let (page, (is_full, is_cut)) = pages.next().unwrap_or_default();
            (scan.after, scan.limit) = (page.last().copied().or(scan.after), NEXT_PAGE);
            pending.found.extend(page);
            is_full || is_cut
        });
        // Nearly all activations are found by several ids.
        pending.found.sort_unstable_by_key(|entry| (entry.fact, entry.time));
        pending.found.dedup();
    }
    Ok(())
}

fn settle<L: Facts>(
    facts: &mut FactCache<'_, L>,
    decisions: &mut Decisions,
    pending_effects: &[PendingEffect<'_>],
) -> Result<(), L::Error> {
    let originals: Vec<Option<FactKey>> =
        pending_effects.iter().map(|pending| pending.original(facts)).collect();
    facts.load(originals.iter().flatten().copied())?;
    for (pending, original) in pending_effects.iter().zip(originals) {
        if let Some(row) = pending.row(facts, original) {
            decisions.decide_effect(facts, pending.key, row);
        }
    }
    Ok(())
}

impl<'p> PendingEffect<'p> {
    fn new<L: Facts>(
        facts: &FactCache<'_, L>,
        policy: &'p Policy,
        known_ids: &EventIds,
        key: FactKey,
    ) -> Option<Self> {
        let (effect, app) = (facts.effect(&key)?, policy.app(key.pid)?);
        let ids = known_ids.of(&key, facts.record(&key)?);
        let times = inherit::activation_times(app, effect);
        let search = |id| scan(key.pid, Family::Activation, match_keys::by_id(id), times);
        let received_md5 = facts.received_md5(key.pid).by_activations();
        let scans = ids.searched(received_md5).map(search).collect();
        Some(Self { app, key, ids, scans, found: Vec::new() })
    }

    /// Checks that the effect cannot inherit from an unread activation.
    fn is_settled<L: Facts>(&self, facts: &FactCache<'_, L>) -> bool {
        let unread = |scan: &Scan| scan.after.map_or(scan.newest, |entry| entry.time);
        let unread: Option<EventTime> = self.scans.iter().map(unread).max();
        let Some(unread) = unread else { return true };
        self.attribution(facts).is_some_and(|(activation, _)| activation.time > unread)
    }

    /// Returns the activation that the effect inherits from, among those read so far.
    fn attribution<'a, L: Facts>(
        &self,
        facts: &'a FactCache<'_, L>,
    ) -> Option<(&'a Activation, &'a Decision)> {
        let found = self.found.iter().filter_map(|entry| facts.at(entry)?.activation());
        inherit::attribution_at(self.app, facts.effect(&self.key)?, &self.ids, found)
    }

    /// Drops the activations read so far from which the effect cannot inherit, except those to be written.
    fn forget_others<L: Facts>(&mut self, facts: &mut FactCache<'_, L>, decisions: &Decisions) {
        let pid = self.key.pid;
        let best = self.attribution(facts).map(|(activation, _)| {
            match_keys::fact_key(EventType::Activation, pid, &activation.id)
        });
        self.found.retain(|entry| {
            let is_best = Some(entry.fact) == best;
            if !is_best && !decisions.has_row(&entry.fact) {
                facts.forget(&entry.fact);
            }
            is_best
        });
    }

    /// Returns the key of the original install, if the effect may carry its credit instead.
    fn original<L: Facts>(&self, facts: &FactCache<'_, L>) -> Option<FactKey> {
        let (_, decision) = self.attribution(facts)?;
        let id = inherit::original(self.app, decision)?;
        Some(match_keys::fact_key(EventType::Activation, self.key.pid, id))
    }

    /// Returns the row; `original` is the key of the loaded original install.
    fn row<L: Facts>(&self, facts: &FactCache<'_, L>, original: Option<FactKey>) -> Option<Row> {
        let original = original.and_then(|key| facts.activation(&key));
        let original = original.and_then(|record| record.decision.as_ref());
        let inheritance = inherit::inherit(self.app, self.attribution(facts), original);
        Some(build_row::effect_row(facts.effect(&self.key)?, inheritance))
    }
}
