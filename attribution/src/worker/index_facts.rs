//! Normalises and hashes the ids of facts: yields the keys under which other facts find them, and match windows.

use std::sync::Arc;

use super::batch_state::{BatchState, EventIds};
use super::match_windows::{MatchWindows, add_windows};
use crate::facts::device_ids::{DeviceIds, IdKindSet};
use crate::facts::event::Family;
use crate::facts::keys::{MatchKey, MatchKeys};
use crate::facts::match_keys::{self, TouchKeys};
use crate::ledger::FactWrite;
use crate::ledger::index::IndexEntry;
use crate::ledger::record::FactRecord;
use crate::parallelism::Parallelism;
use crate::rules::policy::{AppPolicy, Policy};

/// What the ids of a fact yield.
#[derive(Default)]
pub struct Indexed {
    /// The keys under which other facts find it.
    pub keys: MatchKeys,
    pub received_md5: IdKindSet,
    /// The markers of its probabilistic keys.
    pub bucket_markers: Vec<(MatchKey, IndexEntry)>,
    /// The ids of an activation or effect.
    pub event_ids: Option<Arc<DeviceIds>>,
}

/// A new fact whose ids are not normalised yet.
pub struct NewFact {
    /// The index of its write.
    pub write: usize,
    /// The index in `BatchState::arrived`.
    pub arrival_index: u32,
}

/// The results for some of the new facts, each with the index of its write.
#[derive(Default)]
struct IndexedFacts {
    facts: Vec<(usize, Indexed)>,
    windows: MatchWindows,
}

/// Adds what the ids of new facts yield to their writes and to `state`: the match windows of the touches among them,
/// and the ids of the others.
pub fn index_new_facts(
    parallelism: Parallelism,
    policy: &Policy,
    new: &[NewFact],
    writes: &mut [FactWrite],
    state: &mut BatchState,
) {
    let BatchState { windows, event_ids, .. } = state;
    let mut first = IndexedFacts { facts: Vec::new(), windows: std::mem::take(windows) };
    let unindexed = &*writes;
    let later = parallelism.fold(new, &mut first, |indexed, new| {
        indexed.facts.reserve(new.len());
        for NewFact { write: number, arrival_index } in new {
            let Some(FactWrite { key, record, .. }) = unindexed.get(*number) else { continue };
            let Some(app) = policy.app(key.pid) else { continue };
            let yielded = index(record, policy, app, &mut indexed.windows, *arrival_index, false);
            indexed.facts.push((*number, yielded));
        }
    });
    *windows = first.windows;
    set_indexes(writes, first.facts, event_ids);
    for IndexedFacts { facts, windows: others } in later {
        windows.append(others);
        set_indexes(writes, facts, event_ids);
    }
}

fn set_indexes(writes: &mut [FactWrite], facts: Vec<(usize, Indexed)>, event_ids: &mut EventIds) {
    for (number, indexed) in facts {
        if let Some(write) = writes.get_mut(number) {
            (write.index, write.received_md5) = (indexed.keys, indexed.received_md5);
            write.bucket_markers = indexed.bucket_markers;
            if let Some(ids) = indexed.event_ids {
                event_ids.insert(write.key, ids);
            }
        }
    }
}

/// Normalises the ids of a fact, and returns what they yield. For a touch, also adds the match windows of the
/// activations that it can change; superfluous windows do no harm.
pub fn index(
    record: &FactRecord,
    policy: &Policy,
    app: &AppPolicy,
    windows: &mut MatchWindows,
    arrival_index: u32,
    is_removed: bool,
) -> Indexed {
    let ids = record.device_ids();
    let (keys, bucket_markers) = match record {
        FactRecord::Touch(touch) => {
            let keys = TouchKeys::new(touch, &ids, app.probabilistic);
            add_windows(windows, &keys, policy, app, arrival_index, is_removed);
            (keys.index(), Some(keys.bucket_markers()))
        }
        FactRecord::Activation(record) => {
            let keys = match_keys::activation_index(&record.fact, &ids, app.probabilistic);
            let markers = || match_keys::activation_bucket_markers(&record.fact, &ids);
            (keys, app.probabilistic.then(markers))
        }
        FactRecord::Effect(_) => (ids.iter().map(match_keys::by_id).collect(), None),
    };
    Indexed {
        keys,
        received_md5: ids.received_md5(),
        bucket_markers: bucket_markers.unwrap_or_default(),
        event_ids: (record.family() != Family::Touch).then(|| Arc::new(ids)),
    }
}
