//! Which facts of a batch can have changed a decision: what an explanation tells of it.
//!
//! Looked for only where a decision was another one before, and among what arrived: nothing is
//! read. Of those that arrived together it is not told apart which one it was.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet, VecDeque};

use foldhash::fast::FixedState;

use super::BatchContext;
use super::batch_state::BatchState;
use super::match_windows::{MatchWindow, ProbabilisticWindow};
use crate::facts::device_ids::{self, DeviceId, DeviceIds};
use crate::facts::event::{Activation, Family, Pid};
use crate::facts::keys::{FactKey, MatchKey};
use crate::facts::match_keys;
use crate::ledger::Ledger;
use crate::ledger::record::{ActivationRecord, CAUSES_MAX, Cause, Causes, FactRecord};
use crate::rules::candidate::Tier;
use crate::rules::classify::ActivationKey;
use crate::rules::winner::{self, Decision};

/// Of one key and tier, so many of the newest touches are looked at.
const NEAR: usize = 16;

const TIERS: [Tier; 4] = [
    Tier::ClickById,
    Tier::ClickProbabilistic,
    Tier::ImpressionById,
    Tier::ImpressionProbabilistic,
];

/// So many activations are followed back from one.
const FOLLOWED: usize = 64;

/// An activation that arrived, or that others were walked to from elsewhere before.
struct Link {
    activation_key: ActivationKey,
    key: FactKey,
    ids: DeviceIds,
    cause: Option<Cause>,
}

/// The links that changed the walks of a batch, those that went as they were, and where they are under
/// each device id, oldest first.
#[derive(Default)]
struct Links {
    all: Vec<Link>,
    by_id: HashMap<(Pid, MatchKey), Vec<usize>, FixedState>,
}

/// An activation that was decided otherwise before.
struct Redecided<'a> {
    key: FactKey,
    record: &'a ActivationRecord,
    ids: DeviceIds,
    decision: &'a Decision,
    previous: &'a Decision,
}

impl<L: Ledger> BatchContext<'_, L> {
    /// Notes with each activation that was decided otherwise before what can have changed it.
    pub fn note_causes(&mut self, state: &BatchState) {
        let redecided = std::mem::take(&mut self.redecided);
        let mut links = None;
        for key in redecided {
            let Some(causes) = self.causes(key, state, &mut links) else { continue };
            self.keep_causes(&key, causes);
        }
    }

    fn causes(
        &self,
        key: FactKey,
        state: &BatchState,
        links: &mut Option<Links>,
    ) -> Option<Causes> {
        let Some(FactRecord::Activation(record)) = self.record(&key) else { return None };
        let (decision, previous) = (record.decision.as_ref()?, record.previous.as_ref()?);
        let ids = DeviceIds::new(&record.fact.ids);
        let one = Redecided { key, record, ids, decision, previous };
        let mut found = Found::default();
        found.facts.extend(arrival(state, &key));
        let class = |decision: &Decision| (decision.install_type, decision.original.clone());
        // On a device of other ids it can have the same class for another reason.
        if class(decision) != class(previous) || !found.facts.is_empty() {
            let links = links.get_or_insert_with(|| self.links(state));
            found.add_peers(&one, links);
        }
        for credited in [decision, previous].into_iter().filter_map(|one| one.credit.touch.as_ref())
        {
            let touch = match_keys::fact_key(Family::Touch, key.pid, &credited.click_id);
            found.facts.extend(arrival(state, &touch));
        }
        self.add_touches(&one, state, &mut found);
        Some(found.into_causes())
    }

    fn links(&self, state: &BatchState) -> Links {
        let arrived = state.arrived.iter().filter(|one| one.fact.family == Family::Activation);
        let arrived = arrived.map(|cause| (cause.fact, Some(*cause)));
        let visited = self.changed_chains.iter().filter(|key| arrival(state, key).is_none());
        let standing = arrived.chain(visited.map(|key| (*key, None)));
        let standing =
            standing.filter_map(|(key, cause)| Some(Link::new(key, self.activation(&key)?, cause)));
        let gone = state.outgoing_activations.iter();
        let gone = gone.map(|(key, gone)| Link::new(*key, gone, arrival(state, key)));
        Links::of(standing.chain(gone).collect())
    }

    fn add_touches(&self, one: &Redecided<'_>, state: &BatchState, found: &mut Found) {
        let Some(app) = self.app(&one.key) else { return };
        let activation = &one.record.fact;
        let can_change = |window: &MatchWindow| {
            window.newest >= activation.time
                && [one.previous, one.decision].into_iter().any(|decision| {
                    winner::can_change(app, decision, window.tier, window.touch_time)
                })
        };
        let mut near: Vec<&MatchWindow> = Vec::new();
        let named = device_ids::click_id(&activation.click_id).map(match_keys::by_click_id);
        for key in one.ids.iter().map(match_keys::by_id).chain(named) {
            found.has_more |= newest(&state.windows.by_key, |at| at, one, key, &mut near);
        }
        if app.probabilistic {
            let mut placed: Vec<&ProbabilisticWindow> = Vec::new();
            for key in match_keys::probabilistic_keys(&activation.device) {
                let by_place = &state.windows.by_place;
                found.has_more |= newest(by_place, |at| &at.window, one, key, &mut placed);
            }
            // Touches with ids of its kinds have equal ones and are found by them, or contradict it.
            placed.retain(|at| !at.kinds.overlaps(one.ids.kinds()));
            near.extend(placed.into_iter().map(|at| &at.window));
        }
        near.retain(|window| can_change(window));
        near.sort_by_key(|window| Reverse(window.touch_time));
        let arrived =
            near.into_iter().filter_map(|window| state.arrived.get(window.place as usize));
        found.facts.extend(arrived);
    }
}

/// What can have changed a decision, the likeliest first; some more than once.
#[derive(Default)]
struct Found {
    facts: Vec<Cause>,
    has_more: bool,
}

impl Found {
    /// Adds the activations that its class can depend on: those before it with an id of it, and those
    /// before these.
    fn add_peers(&mut self, one: &Redecided<'_>, links: &Links) {
        let mut seen: HashSet<usize, FixedState> = HashSet::default();
        let own = ActivationKey::of(&one.record.fact);
        let mut open = VecDeque::from([(&own, &one.ids)]);
        while let Some((activation_key, ids)) = open.pop_front() {
            for place in ids.iter().flat_map(|id| links.before(one.key.pid, id, activation_key)) {
                let Some(link) = links.all.get(place) else { continue };
                if link.key == one.key || !seen.insert(place) {
                    continue;
                }
                self.facts.extend(link.cause);
                if seen.len() == FOLLOWED {
                    self.has_more = true;
                    return;
                }
                open.push_back((&link.activation_key, &link.ids));
            }
        }
    }

    fn into_causes(self) -> Causes {
        let Self { facts: found, mut has_more } = self;
        let mut facts: Vec<Cause> = Vec::new();
        for cause in found {
            if facts.iter().any(|known| known.fact == cause.fact) {
                continue;
            }
            if facts.len() == CAUSES_MAX {
                has_more = true;
                break;
            }
            facts.push(cause);
        }
        Causes { facts, has_more }
    }
}

impl Link {
    fn new(key: FactKey, activation: &Activation, cause: Option<Cause>) -> Self {
        let (activation_key, ids) =
            (ActivationKey::of(activation), DeviceIds::new(&activation.ids));
        Self { activation_key, key, ids, cause }
    }
}

impl Links {
    fn of(mut all: Vec<Link>) -> Self {
        all.sort_unstable_by(|a, b| (&a.activation_key, a.key).cmp(&(&b.activation_key, b.key)));
        let mut by_id: HashMap<_, Vec<usize>, FixedState> = HashMap::default();
        for (place, link) in all.iter().enumerate() {
            for id in link.ids.iter() {
                by_id.entry((link.key.pid, match_keys::by_id(id))).or_default().push(place);
            }
        }
        Self { all, by_id }
    }

    /// Places of an app's activations with an id, before another one, newest first.
    fn before(
        &self,
        pid: Pid,
        id: &DeviceId,
        activation_key: &ActivationKey,
    ) -> impl Iterator<Item = usize> {
        let places = self.by_id.get(&(pid, match_keys::by_id(id)));
        let places = places.map(Vec::as_slice).unwrap_or_default();
        let is_before = |place: &usize| {
            self.all.get(*place).is_some_and(|it| it.activation_key < *activation_key)
        };
        let before = places.partition_point(is_before);
        places.get(..before).unwrap_or_default().iter().rev().copied()
    }
}

fn arrival(state: &BatchState, key: &FactKey) -> Option<Cause> {
    let place = state.place_of(key)?;
    state.arrived.get(place).copied()
}

/// Adds the newest touches of the batch that meet an activation by a key, of each tier, and says
/// whether there are more.
fn newest<'s, T>(
    windows: &'s [T],
    window: fn(&T) -> &MatchWindow,
    one: &Redecided<'_>,
    key: MatchKey,
    near: &mut Vec<&'s T>,
) -> bool {
    let mut has_more = false;
    for tier in TIERS {
        let group = (key, one.key.pid, tier);
        let end = windows.partition_point(|at| {
            (window(at).group(), window(at).touch_time) < (group, one.record.fact.time)
        });
        let before = windows.get(..end).unwrap_or_default().iter().rev();
        let mut before = before.take_while(|at| window(at).group() == group);
        near.extend(before.by_ref().take(NEAR));
        has_more |= before.next().is_some();
    }
    has_more
}
