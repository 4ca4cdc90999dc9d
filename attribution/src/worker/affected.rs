//! What else a batch can change besides its own events.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use foldhash::fast::FixedState;

use super::BatchContext;
use super::batch_context::{merged, scan};
use super::batch_state::BatchState;
use super::classify_batch::Classified;
use crate::facts::device_ids::{DeviceIds, Forms};
use crate::facts::event::{Activation, EventTime, Family, Pid};
use crate::facts::keys::FactKey;
use crate::facts::match_keys;
use crate::ledger::Ledger;
use crate::ledger::index::{IndexEntry, Scan};
use crate::ledger::record::Home;
use crate::rules::inherit;
use crate::rules::row::Status;
use crate::rules::winner::{self, Decision};
use crate::worker::reach::{PlaceReach, Reach, Reaches};

/// Reaches that are looked into together; more would only take room.
const TOGETHER: usize = 1_024;

impl<L: Ledger> BatchContext<'_, L> {
    /// The activations that a touch of the batch can change.
    pub fn touched_activations(
        &mut self,
        state: &mut BatchState,
    ) -> Result<Vec<FactKey>, L::Error> {
        let Reaches { by_key, by_place } = &mut state.reaches;
        let mut near = Vec::new();
        self.add_near(by_key, &mut near)?;
        let mut marked = self.marked(by_place)?;
        self.add_near(&mut marked, &mut near)?;
        self.load(near.iter().map(|(entry, _)| entry.fact))?;
        let mut touched: Vec<_> = near
            .into_iter()
            .filter(|(entry, reach)| self.can_change(entry, reach, state.must_redecide_all))
            .map(|(entry, _)| entry.fact)
            .collect();
        touched.sort_unstable();
        touched.dedup();
        Ok(touched)
    }

    /// Adds the activations within reach, each with the newest touch before it: if that can not
    /// change it, no older one can.
    fn add_near(
        &mut self,
        reaches: &mut [Reach],
        near: &mut Vec<(IndexEntry, Reach)>,
    ) -> Result<(), L::Error> {
        reaches.sort_unstable_by_key(|reach| (reach.group(), reach.touch_time));
        for place in 1..reaches.len() {
            let (before, after) = reaches.split_at_mut(place);
            if let (Some(older), Some(reach)) = (before.last(), after.first_mut())
                && older.group() == reach.group()
            {
                reach.candidate_until = reach.candidate_until.max(older.candidate_until);
            }
        }
        for reaches in reaches.chunks(TOGETHER) {
            let (scans, groups) = scans(reaches);
            self.scan_all(&scans, |place, entry| {
                let group = groups.get(place).and_then(|group| reaches.get(group.clone()));
                let group = group.unwrap_or_default();
                let end = group.partition_point(|reach| reach.touch_time < entry.time);
                let newest = end.checked_sub(1).and_then(|last| group.get(last));
                near.extend(newest.map(|reach| (entry, *reach)));
            })?;
        }
        Ok(())
    }

    /// The reaches at places as such by the keys of what is marked there.
    fn marked(&mut self, by_place: &mut [PlaceReach]) -> Result<Vec<Reach>, L::Error> {
        by_place.sort_unstable_by_key(|at| (at.reach.group(), at.reach.touch_time));
        let mut reaches = Vec::new();
        for by_place in by_place.chunks(TOGETHER) {
            let marks: Vec<Reach> = by_place.iter().map(PlaceReach::marks).collect();
            let (scans, groups) = scans(&marks);
            let mut found: BTreeSet<(usize, Forms)> = BTreeSet::new();
            self.scan_all(&scans, |scan, entry| {
                found.insert((scan, match_keys::marked_forms(&entry)));
            })?;
            for (scan, marked) in found {
                let group = groups.get(scan).and_then(|group| by_place.get(group.clone()));
                let met = group.unwrap_or_default().iter().filter(|at| !at.forms.meet(marked));
                reaches.extend(met.map(|PlaceReach { reach, .. }| Reach {
                    key: match_keys::activation_by_place(marked, reach.key),
                    ..*reach
                }));
            }
        }
        Ok(reaches)
    }

    fn can_change(&self, entry: &IndexEntry, reach: &Reach, must_redecide_all: bool) -> bool {
        let (Some(Home::Activation(home)), Some(app)) = (self.at(entry), self.app(&entry.fact))
        else {
            return false;
        };
        if !self.is_changeable(&entry.fact, entry.time) {
            return false;
        }
        home.decision.as_ref().filter(|_| !must_redecide_all).is_none_or(|decision| {
            if entry.time > reach.candidate_until {
                return winner::can_deny(decision, reach.touch_time);
            }
            winner::can_change(app, decision, reach.tier, reach.touch_time)
        })
    }

    /// The batch's effects, those of activations that changed, and those of uncredited
    /// reinstalls that follow an install which changed.
    pub fn affected_effects(
        &mut self,
        state: &BatchState,
        classified: &[Classified],
        changed: &HashSet<FactKey, FixedState>,
    ) -> Result<Vec<FactKey>, L::Error> {
        let mut scans = Vec::new();
        for (key, activation) in &state.outgoing_activations {
            scans.extend(self.effect_scans(key, activation));
        }
        for key in changed.iter().copied().chain(self.reinstalls(state, classified, changed)?) {
            if let Some(activation) = self.activation(&key) {
                scans.extend(self.effect_scans(&key, activation));
            }
        }
        let mut keys = state.effects.clone();
        self.scan_all(&merged(scans), |_, entry| keys.push(entry.fact))?;
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// The uncredited reinstalls whose effects carry the credit of an install that changed: an
    /// install in their sets, whatever it is in its own.
    fn reinstalls(
        &mut self,
        state: &BatchState,
        classified: &[Classified],
        changed: &HashSet<FactKey, FixedState>,
    ) -> Result<Vec<FactKey>, L::Error> {
        let mut followers: Vec<FactKey> = classified.iter().map(|visited| visited.key).collect();
        let arrived: HashSet<&FactKey, FixedState> = state.activations.iter().collect();
        let mut scans = Vec::new();
        // Those who follow one that arrived have all been classified.
        for key in changed.iter().filter(|key| !arrived.contains(key)) {
            if let Some(activation) = self.activation(key) {
                let times = (activation.time, EventTime::MAX);
                scans.extend(device_scans(key.pid, activation, Family::Activation, times));
            }
        }
        self.scan_all(&merged(scans), |_, entry| followers.push(entry.fact))?;
        self.load(followers.iter().copied())?;
        followers.retain(|key| match self.home(key) {
            Some(Home::Activation(_)) if state.must_redecide_all => true,
            Some(Home::Activation(home)) => home.decision.as_ref().is_some_and(|decision| {
                decision.credit.status == Status::Unattributed
                    && original(key, decision).is_some_and(|original| changed.contains(&original))
            }),
            _ => false,
        });
        Ok(followers)
    }

    fn effect_scans(&self, key: &FactKey, activation: &Activation) -> Vec<Scan> {
        let Some(app) = self.app(key) else { return Vec::new() };
        let times = inherit::effect_times(app, activation.time);
        device_scans(key.pid, activation, Family::Effect, times)
    }
}

fn original(key: &FactKey, decision: &Decision) -> Option<FactKey> {
    let id = decision.original.as_deref()?;
    Some(match_keys::fact_key(Family::Activation, key.pid, id))
}

/// The scans of sorted reaches, and of each the reaches that it is for.
fn scans(reaches: &[Reach]) -> (Vec<Scan>, Vec<Range<usize>>) {
    let mut scans: Vec<Scan> = Vec::with_capacity(reaches.len());
    let mut groups: Vec<Range<usize>> = Vec::with_capacity(reaches.len());
    for (place, reach) in reaches.iter().enumerate() {
        let oldest = reach.touch_time.plus(1);
        if let (Some(scan), Some(range)) = (scans.last_mut(), groups.last_mut())
            && reaches.get(range.start).is_some_and(|first| first.group() == reach.group())
            && oldest <= scan.newest
        {
            scan.newest = scan.newest.max(reach.newest);
            range.end = place + 1;
        } else {
            scans.push(scan(reach.pid, Family::Activation, reach.key, (oldest, reach.newest)));
            groups.push(place..place + 1);
        }
    }
    (scans, groups)
}

fn device_scans(
    pid: Pid,
    activation: &Activation,
    family: Family,
    times: (EventTime, EventTime),
) -> Vec<Scan> {
    let ids = DeviceIds::new(&activation.ids);
    ids.iter().map(|id| scan(pid, family, match_keys::by_id(id), times)).collect()
}
