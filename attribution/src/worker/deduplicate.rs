//! Chooses the message that is the fact (the identity rule of the contract), and makes facts readable.

use super::BatchReport;
use super::batch_state::BatchState;
use super::fact_cache::FactCache;
use super::index_facts::{Indexed, NewFact, index, index_new_facts};
use crate::facts::event::{EventTime, Fact, Family};
use crate::facts::keys::{FactKey, FactKeySet, MatchKey, MatchKeys};
use crate::facts::{canonical, match_keys};
use crate::ledger::record::{ActivationRecord, EffectRecord, FactRecord, Lookup};
use crate::ledger::{FactWrite, Facts, Ledger};
use crate::parallelism::Parallelism;
use crate::rules::classify::InstallChains;
use crate::rules::policy::{AppPolicy, Policy};

/// The known fact of an id.
struct Known {
    record: FactRecord,
    fact: Fact,
    /// Older versions of the fact that uncommitted batches have replaced.
    superseded: Vec<Fact>,
}

/// Deduplicates the messages against each other and the ledger, and records the new facts.
pub fn deduplicate<L: Ledger>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    parallelism: Parallelism,
    messages: Vec<Fact>,
    state: &mut BatchState,
    report: &mut BatchReport,
) -> Result<(), L::Error> {
    let mut pending = canonical_messages(policy, parallelism, messages, report);
    while !pending.is_empty() {
        let mut keys: Vec<FactKey> = pending.iter().map(|(key, _)| *key).collect();
        let lookups = facts.lookup(&keys)?;
        keys.truncate(lookups.len());
        let later = pending.split_off(keys.len());
        let is_known: Vec<bool> = lookups.iter().map(|found| *found != Lookup::Missing).collect();
        let mut conflicting = Vec::new();
        let mut writes = Vec::with_capacity(keys.len());
        let mut new = Vec::with_capacity(keys.len());
        for ((key, message), found) in pending.into_iter().zip(lookups) {
            let Some(app) = policy.app(key.pid) else { continue };
            let known = match found {
                Lookup::Missing => None,
                Lookup::Found(record) => Some(Known::new(record, Vec::new())),
                Lookup::Superseded(record, superseded) => Some(Known::new(record, superseded)),
                Lookup::Tombstone => continue,
            };
            let Some(mut known) = known else {
                let arrival_index = state.add_arrival(key, message.time(), false);
                new.push(NewFact { write: writes.len(), arrival_index });
                writes.push(fact_write(facts, key, message.into(), Indexed::default(), state));
                continue;
            };
            let order = canonical::compare(&message, &known.fact, &app.key);
            conflicting.extend(order.is_ne().then_some(key));
            if order.is_lt() && facts.is_changeable(app, known.fact.time()) {
                writes.push(replace(facts, policy, app, key, message, known, state));
            } else if L::SHARED {
                // If a worker crashed after it recorded the fact, the redelivery causes the decision. The record is
                // read again after recording, because another worker may be making the same decision.
                add_redelivered(policy, app, key, known.fact.time(), &mut known, state);
                state.add_events([key]);
            }
        }
        index_new_facts(parallelism, policy, &new, &mut writes, state);
        if L::SHARED {
            state.event_ids.clear();
            forget_others(facts, &keys, &writes);
        }
        let rejected = facts.ledger().record(writes)?;
        let rejected_keys: FactKeySet = rejected.iter().map(|write| write.key).collect();
        let is_recorded = |key: &FactKey| rejected_keys.is_empty() || !rejected_keys.contains(key);
        for (key, is_known) in keys.into_iter().zip(is_known).filter(|(key, _)| is_recorded(key)) {
            let counts = report.counts_mut(key.family);
            let count = if is_known { &mut counts.redelivered } else { &mut counts.accepted };
            *count += 1;
        }
        for key in conflicting.into_iter().filter(is_recorded) {
            report.counts_mut(key.family).conflicting += 1;
        }
        let rejected = rejected.into_iter().map(|write| (write.key, write.record.into()));
        pending = rejected.chain(later).collect();
    }
    Ok(())
}

/// Forgets the looked-up records that are not written.
fn forget_others<L: Ledger>(facts: &mut FactCache<'_, L>, keys: &[FactKey], writes: &[FactWrite]) {
    let mut written = writes.iter().map(|write| write.key).peekable();
    for key in keys {
        if written.next_if_eq(key).is_none() {
            facts.forget(key);
        }
    }
}

/// Returns, of each id, the message that sorts first, in key order; counts the others as redelivered.
fn canonical_messages(
    policy: &Policy,
    parallelism: Parallelism,
    mut messages: Vec<Fact>,
    report: &mut BatchReport,
) -> Vec<(FactKey, Fact)> {
    messages.retain(|fact| policy.app(fact.pid()).is_some());
    let key = |fact: &Fact| match_keys::fact_key(fact.id_space(), fact.pid(), fact.id());
    let keys = parallelism.map(&messages, |facts| facts.iter().map(key).collect::<Vec<_>>());
    // Sorts the keys without the messages, which are far larger.
    let mut order: Vec<(FactKey, usize)> = keys.into_iter().flatten().zip(0..).collect();
    order.sort_unstable();
    let mut messages: Vec<Option<Fact>> = messages.into_iter().map(Some).collect();
    let message = |(key, index): (FactKey, usize)| Some((key, messages.get_mut(index)?.take()?));
    let mut keyed: Vec<(FactKey, Fact)> = order.into_iter().filter_map(message).collect();
    keyed.dedup_by(|(key, fact), (kept_key, kept)| {
        let is_same = key == kept_key;
        if is_same {
            let app_key = policy.app(key.pid).map_or("", |app| &app.key);
            let order = canonical::compare(fact, kept, app_key);
            let counts = report.counts_mut(key.family);
            counts.redelivered += 1;
            counts.conflicting += u64::from(order.is_ne());
            if order.is_lt() {
                std::mem::swap(fact, kept);
            }
        }
        is_same
    });
    keyed
}

/// Replaces the known fact of an id by a message that sorts before it. The current row stays until the new decision;
/// the install chains are cleared, so that no other activation extends them.
fn replace<L: Ledger>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    app: &AppPolicy,
    key: FactKey,
    message: Fact,
    mut known: Known,
    state: &mut BatchState,
) -> FactWrite {
    let (arrival_index, before) =
        add_redelivered(policy, app, key, message.time(), &mut known, state);
    let time = known.fact.time();
    let superseded = L::SHARED.then(|| known.fact.clone());
    state.add_superseded(key, known.fact);
    let record = match (known.record, message) {
        (FactRecord::Activation(record), Fact::Activation(fact)) => {
            let chains = InstallChains::default();
            FactRecord::Activation(Box::new(ActivationRecord { fact: *fact, chains, ..*record }))
        }
        (FactRecord::Effect(record), Fact::Effect(fact)) => {
            FactRecord::Effect(Box::new(EffectRecord { fact: *fact, ..*record }))
        }
        (_, fact) => FactRecord::from(fact),
    };
    let after = index(&record, policy, app, &mut state.windows, arrival_index, false);
    let is_stale = |key: &MatchKey| time != record.time() || !after.keys.contains(key);
    let stale = before.into_iter().filter(is_stale).map(|key| (key, time)).collect();
    FactWrite { stale, superseded, ..fact_write(facts, key, record, after, state) }
}

/// Adds the arrival of a message with a known id, and everything that the known versions of its fact can change.
/// Returns the index in [`BatchState::arrived`] and the index keys of the current fact.
fn add_redelivered(
    policy: &Policy,
    app: &AppPolicy,
    key: FactKey,
    time: EventTime,
    known: &mut Known,
    state: &mut BatchState,
) -> (u32, MatchKeys) {
    let arrival_index = state.add_arrival(key, time, true);
    for superseded in std::mem::take(&mut known.superseded) {
        let superseded = FactRecord::from(superseded);
        index(&superseded, policy, app, &mut state.windows, arrival_index, true);
        state.add_superseded(key, superseded.into());
    }
    let indexed = index(&known.record, policy, app, &mut state.windows, arrival_index, true);
    (arrival_index, indexed.keys)
}

/// Returns the write of a new fact. If it is an activation or effect, adds it to the batch's events.
fn fact_write<L: Facts>(
    facts: &mut FactCache<'_, L>,
    key: FactKey,
    record: FactRecord,
    indexed: Indexed,
    state: &mut BatchState,
) -> FactWrite {
    state.add_events([key]);
    if key.family != Family::Touch {
        facts.insert(key, record.clone());
    }
    let Indexed { keys: index, received_md5, bucket_markers, event_ids } = indexed;
    if let Some(ids) = event_ids {
        state.event_ids.insert(key, ids);
    }
    FactWrite {
        key,
        record,
        index,
        received_md5,
        bucket_markers,
        stale: Vec::new(),
        superseded: None,
    }
}

impl Known {
    fn new(record: FactRecord, superseded: Vec<Fact>) -> Self {
        Self { fact: record.clone().into(), record, superseded }
    }
}
