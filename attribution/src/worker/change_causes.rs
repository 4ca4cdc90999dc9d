//! Finds the facts of a batch that may have changed a decision, for explanations.
//!
//! Runs only for changed decisions and considers only facts of the batch, so it reads nothing from the store. It does
//! not determine which of several possible causes was the real one.

use std::cell::LazyCell;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet, VecDeque};

use foldhash::fast::FixedState;

use super::batch_state::BatchState;
use super::classify_batch::Classified;
use super::decisions::Decisions;
use super::fact_cache::FactCache;
use super::match_windows::{MatchWindow, ProbabilisticWindow};
use crate::facts::device_ids::{self, DeviceId, DeviceIds};
use crate::facts::event::Pid;
use crate::facts::keys::{FactKey, MatchKey};
use crate::facts::match_keys;
use crate::ledger::Facts;
use crate::ledger::record::{ActivationRecord, CAUSES_MAX, Cause, Causes, FactRecord};
use crate::rules::candidate::Tier;
use crate::rules::classify::ActivationKey;
use crate::rules::policy::Policy;
use crate::rules::winner::{self, Decision};

/// Maximum number of touches, the newest, that are considered per key and tier.
const NEWEST_PER_KEY: usize = 16;

/// Maximum number of earlier activations that are visited for one activation.
const VISITED_MAX: usize = 64;

/// An activation that arrived, or whose install chains changed.
struct Link<'a> {
    activation_key: &'a ActivationKey,
    key: FactKey,
    ids: &'a DeviceIds,
    cause: Option<Cause>,
}

/// The activations of a batch that arrived or whose install chains changed (replaced ones also as they were before),
/// and their indexes by device id, oldest first.
#[derive(Default)]
struct Links<'a> {
    all: Vec<Link<'a>>,
    by_id: HashMap<(Pid, MatchKey), Vec<usize>, FixedState>,
}

/// An activation whose decision changed.
struct Redecided<'a> {
    key: FactKey,
    record: &'a ActivationRecord,
    ids: DeviceIds,
    decision: &'a Decision,
    previous: &'a Decision,
}

/// Stores the causes of the change with each activation whose decision changed.
pub fn note_causes<L: Facts>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    decisions: &mut Decisions,
    state: &BatchState,
    classified: &[Classified],
) {
    let redecided = std::mem::take(&mut decisions.redecided);
    let links = LazyCell::new(|| Links::new(classified, state));
    for key in redecided {
        let causes = causes(facts, policy, state, key, &links);
        if let (Some(causes), Some(FactRecord::Activation(record))) =
            (causes, facts.record_mut(&key))
        {
            record.changed_by = causes;
        }
    }
}

fn causes<'l, L: Facts>(
    facts: &FactCache<'_, L>,
    policy: &Policy,
    state: &BatchState,
    key: FactKey,
    links: &LazyCell<Links<'l>, impl FnOnce() -> Links<'l>>,
) -> Option<Causes> {
    let record = facts.activation(&key)?;
    let (decision, previous) = (record.decision.as_ref()?, record.previous.as_ref()?);
    let ids = DeviceIds::of_app_event(&record.fact.ids);
    let redecided = Redecided { key, record, ids, decision, previous };
    let mut causes = Causes { may_have_more: state.is_interrupted, ..Causes::default() };
    add(&mut causes, arrival(state, &key));
    // If the activation's device ids changed, an equal class can have another reason.
    if decision.class() != previous.class() || !causes.facts.is_empty() {
        add_history(&mut causes, &redecided, links);
    }
    let credited = [decision, previous].into_iter().filter_map(|it| it.credit.touch.as_ref());
    let credited = credited.map(|it| match_keys::fact_key(it.kind, key.pid, &it.click_id));
    add(&mut causes, credited.filter_map(|touch| arrival(state, &touch)));
    add_touches(&mut causes, &redecided, policy, state);
    Some(causes)
}

/// Adds possible causes of a change; the caller adds the likeliest first.
fn add(causes: &mut Causes, found: impl IntoIterator<Item = Cause>) {
    for cause in found {
        if causes.facts.iter().any(|known| known.fact == cause.fact) {
            continue;
        }
        if causes.facts.len() == CAUSES_MAX {
            causes.may_have_more = true;
            return;
        }
        causes.facts.push(cause);
    }
}

/// Adds the activations that the class can depend on: earlier activations with one of its ids, and recursively the
/// earlier ones with an id of these.
fn add_history(causes: &mut Causes, redecided: &Redecided<'_>, links: &Links<'_>) {
    let mut seen: HashSet<usize, FixedState> = HashSet::default();
    let activation_key = ActivationKey::of(&redecided.record.fact);
    let mut open = VecDeque::from([(&activation_key, &redecided.ids)]);
    while let Some((activation_key, ids)) = open.pop_front() {
        for index in ids.iter().flat_map(|id| links.before(redecided.key.pid, id, activation_key)) {
            let Some(link) = links.all.get(index) else { continue };
            if link.key == redecided.key || !seen.insert(index) {
                continue;
            }
            add(causes, link.cause);
            if seen.len() == VISITED_MAX {
                causes.may_have_more = true;
                return;
            }
            open.push_back((link.activation_key, link.ids));
        }
    }
}

/// Adds the touches of the batch that match the activation and can change its decision, newest first.
fn add_touches(
    causes: &mut Causes,
    redecided: &Redecided<'_>,
    policy: &Policy,
    state: &BatchState,
) {
    let Some(app) = policy.app(redecided.key.pid) else { return };
    let activation = &redecided.record.fact;
    let mut near: Vec<&MatchWindow> = Vec::new();
    let by_click_id = device_ids::click_id(&activation.click_id).map(match_keys::by_click_id);
    for key in redecided.ids.iter().map(match_keys::by_id).chain(by_click_id) {
        causes.may_have_more |=
            add_newest(&state.windows.by_key, |it| it, redecided, key, &mut near);
    }
    if app.probabilistic {
        let mut probabilistic: Vec<&ProbabilisticWindow> = Vec::new();
        for key in match_keys::probabilistic_keys(activation.device.borrowed()) {
            let windows = &state.windows.by_probabilistic_key;
            causes.may_have_more |=
                add_newest(windows, |it| &it.window, redecided, key, &mut probabilistic);
        }
        // Touches with an id of a kind that the activation has either have an equal id, by which they are found, or
        // contradict it.
        probabilistic.retain(|it| !it.kinds.overlaps(redecided.ids.kinds()));
        near.extend(probabilistic.into_iter().map(|it| &it.window));
    }
    near.retain(|window| {
        let can_change =
            |decision| winner::can_change(app, decision, window.tier, window.touch_time);
        window.newest >= activation.time
            && (can_change(redecided.previous) || can_change(redecided.decision))
    });
    near.sort_by_key(|window| Reverse(window.touch_time));
    let arrived =
        near.into_iter().filter_map(|window| state.arrived.get(window.arrival_index as usize));
    add(causes, arrived.copied());
}

impl<'a> Links<'a> {
    fn new(classified: &'a [Classified], state: &'a BatchState) -> Self {
        let link = |key, activation_key, ids| Link {
            activation_key,
            key,
            ids,
            cause: arrival(state, &key),
        };
        let current = classified.iter().filter_map(|Classified { entry, .. }| {
            let link = link(entry.key, &entry.activation_key, entry.ids.as_ref());
            (link.cause.is_some() || entry.has_new_chains).then_some(link)
        });
        let superseded = state.superseded_activations.iter();
        let superseded = superseded.map(|it| link(it.key, &it.activation_key, &it.ids));
        let mut all: Vec<Link<'a>> = current.chain(superseded).collect();
        all.sort_unstable_by(|a, b| (a.activation_key, a.key).cmp(&(b.activation_key, b.key)));
        let mut by_id: HashMap<_, Vec<usize>, FixedState> = HashMap::default();
        for (index, link) in all.iter().enumerate() {
            for id in link.ids.iter() {
                by_id.entry((link.key.pid, match_keys::by_id(id))).or_default().push(index);
            }
        }
        Self { all, by_id }
    }

    /// Returns the indexes of an app's activations with a device id that precede `activation_key`, newest first.
    fn before(
        &self,
        pid: Pid,
        id: &DeviceId,
        activation_key: &ActivationKey,
    ) -> impl Iterator<Item = usize> {
        let indexes = self.by_id.get(&(pid, match_keys::by_id(id)));
        let indexes = indexes.map(Vec::as_slice).unwrap_or_default();
        let is_before = |index: &usize| {
            self.all.get(*index).is_some_and(|link| *link.activation_key < *activation_key)
        };
        let before = indexes.partition_point(is_before);
        indexes.get(..before).unwrap_or_default().iter().rev().copied()
    }
}

fn arrival(state: &BatchState, key: &FactKey) -> Option<Cause> {
    let index = state.arrival_index(key)?;
    state.arrived.get(index).copied()
}

/// Adds, for each tier, the newest touches of the batch that can match the activation by a key. Returns whether there
/// are more.
fn add_newest<'s, T>(
    windows: &'s [T],
    window: fn(&T) -> &MatchWindow,
    redecided: &Redecided<'_>,
    key: MatchKey,
    near: &mut Vec<&'s T>,
) -> bool {
    let mut has_more = false;
    for tier in Tier::ALL.into_iter().rev() {
        let group = (key, redecided.key.pid, tier);
        let end = windows.partition_point(|it| {
            (window(it).group(), window(it).touch_time) < (group, redecided.record.fact.time)
        });
        let before = windows.get(..end).unwrap_or_default().iter().rev();
        let mut before = before.take_while(|it| window(it).group() == group);
        near.extend(before.by_ref().take(NEWEST_PER_KEY));
        has_more |= before.next().is_some();
    }
    has_more
}
