//! Which facts of a batch can have changed a decision: what an explanation tells of it.
//!
//! Looked for only where a decision was another one before, and among what arrived: nothing is
//! read. Of those that arrived together it is not told apart which one it was.

use std::cmp::Reverse;
use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::Desk;
use super::affected::{PlaceReach, Reach};
use super::settled::Settled;
use crate::attribute::{self, Decision};
use crate::candidate::Tier;
use crate::classify::Member;
use crate::event::{Activation, Family};
use crate::ids::{self, DeviceIds};
use crate::ledger::{ActivationHome, CAUSES_MAX, Cause, Causes, FactKey, Home, Ledger};
use crate::matching::{self, MatchKey};

/// Of one key and tier, so many of the newest touches are looked at.
const NEAR: usize = 16;

const TIERS: [Tier; 4] = [
    Tier::ClickById,
    Tier::ClickProbabilistic,
    Tier::ImpressionById,
    Tier::ImpressionProbabilistic,
];

/// The activations that arrived, as they are and as they were, oldest first under each device id.
type Arrived = HashMap<MatchKey, Vec<(Member, Cause)>, FixedState>;

/// An activation that was decided otherwise before.
struct Redecided<'a> {
    key: FactKey,
    home: &'a ActivationHome,
    ids: DeviceIds,
    decision: &'a Decision,
    previous: &'a Decision,
}

impl<L: Ledger> Desk<'_, L> {
    /// Notes with each activation that was decided otherwise before what can have changed it.
    pub fn note_causes(&mut self, settled: &Settled) {
        let redecided = std::mem::take(&mut self.redecided);
        let mut arrived = None;
        for key in redecided {
            let Some(causes) = self.causes(key, settled, &mut arrived) else { continue };
            self.keep_causes(&key, causes);
        }
    }

    fn causes(
        &self,
        key: FactKey,
        settled: &Settled,
        arrived: &mut Option<Arrived>,
    ) -> Option<Causes> {
        let Some(Home::Activation(home)) = self.home(&key) else { return None };
        let (decision, previous) = (home.decision.as_ref()?, home.previous.as_ref()?);
        let ids = DeviceIds::new(&home.fact.ids);
        let one = Redecided { key, home, ids, decision, previous };
        let mut found = Found::default();
        found.facts.extend(arrival(settled, &key));
        let class = |decision: &Decision| (decision.install_type, decision.original.clone());
        // On a device of other ids it can have the same class for another reason.
        if class(decision) != class(previous) || !found.facts.is_empty() {
            let arrived = arrived.get_or_insert_with(|| self.arrived(settled));
            found.add_peers(&one, arrived);
        }
        for credited in [decision, previous].into_iter().filter_map(|one| one.credit.touch.as_ref())
        {
            let touch = matching::fact_key(Family::Touch, key.pid, &credited.click_id);
            found.facts.extend(arrival(settled, &touch));
        }
        self.add_touches(&one, settled, &mut found);
        Some(found.into_causes())
    }

    fn arrived(&self, settled: &Settled) -> Arrived {
        let mut arrived = Arrived::default();
        let mut add = |activation: &Activation, cause: &Cause| {
            for id in DeviceIds::new(&activation.ids).iter() {
                let peers: &mut Vec<_> = arrived.entry(matching::by_id(id)).or_default();
                peers.push((Member::of(activation), *cause));
            }
        };
        for cause in settled.arrived.iter().filter(|cause| cause.fact.family == Family::Activation)
        {
            if let Some(activation) = self.activation(&cause.fact) {
                add(activation, cause);
            }
        }
        for (key, activation) in &settled.outgoing_activations {
            if let Some(cause) = arrival(settled, key) {
                add(activation, &cause);
            }
        }
        for peers in arrived.values_mut() {
            peers.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        }
        arrived
    }

    fn add_touches(&self, one: &Redecided<'_>, settled: &Settled, found: &mut Found) {
        let Some(app) = self.app(&one.key) else { return };
        let activation = &one.home.fact;
        let can_change = |reach: &Reach| {
            reach.newest >= activation.time
                && [one.previous, one.decision].into_iter().any(|decision| {
                    attribute::can_change(app, decision, reach.tier, reach.touch_time)
                })
        };
        let mut near: Vec<&Reach> = Vec::new();
        let named = ids::click_id(&activation.click_id).map(matching::by_click_id);
        for key in one.ids.iter().map(matching::by_id).chain(named) {
            found.has_more |= newest(&settled.reaches.by_key, |at| at, one, key, &mut near);
        }
        if app.probabilistic {
            let mut placed: Vec<&PlaceReach> = Vec::new();
            for key in matching::probabilistic_keys(&activation.device) {
                let by_place = &settled.reaches.by_place;
                found.has_more |= newest(by_place, |at| &at.reach, one, key, &mut placed);
            }
            // Touches with ids of its kinds have equal ones and are found by them, or contradict it.
            placed.retain(|at| !at.forms.meet(one.ids.forms()));
            near.extend(placed.into_iter().map(|at| &at.reach));
        }
        near.retain(|reach| can_change(reach));
        near.sort_by_key(|reach| Reverse(reach.touch_time));
        let arrived =
            near.into_iter().filter_map(|reach| settled.arrived.get(reach.place as usize));
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
    /// Adds the activations that its class can depend on: those before it with an id of it.
    fn add_peers(&mut self, one: &Redecided<'_>, arrived: &Arrived) {
        let own = Member::of(&one.home.fact);
        for id in one.ids.iter() {
            let Some(peers) = arrived.get(&matching::by_id(id)) else { continue };
            let before = peers.partition_point(|(member, _)| *member < own);
            let before = peers.get(..before).unwrap_or_default().iter().rev();
            let others =
                before.filter(|(_, cause)| cause.fact.pid == one.key.pid && cause.fact != one.key);
            self.facts.extend(others.take(CAUSES_MAX + 1).map(|(_, cause)| *cause));
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

fn arrival(settled: &Settled, key: &FactKey) -> Option<Cause> {
    let place = settled.arrived.binary_search_by_key(key, |cause| cause.fact).ok()?;
    settled.arrived.get(place).copied()
}

/// Adds the newest touches of the batch that meet an activation by a key, of each tier, and says
/// whether there are more.
fn newest<'s, T>(
    reaches: &'s [T],
    reach: fn(&T) -> &Reach,
    one: &Redecided<'_>,
    key: MatchKey,
    near: &mut Vec<&'s T>,
) -> bool {
    let mut has_more = false;
    for tier in TIERS {
        let group = (key, one.key.pid, tier);
        let end = reaches.partition_point(|at| {
            (reach(at).group(), reach(at).touch_time) < (group, one.home.fact.time)
        });
        let before = reaches.get(..end).unwrap_or_default().iter().rev();
        let mut before = before.take_while(|at| reach(at).group() == group);
        near.extend(before.by_ref().take(NEAR));
        has_more |= before.next().is_some();
    }
    has_more
}
