//! What the arriving facts can change: which activations and effects to decide on anew.

use super::Desk;
use super::desk::scan;
use super::settled::{Changed, Settled};
use crate::candidate;
use crate::event::{Activation, EventTime, Family, Touch};
use crate::ids::DeviceIds;
use crate::inherit;
use crate::ledger::{FactKey, Home, Ledger, Scan};
use crate::matching;
use crate::policy::{AppPolicy, Policy};
use crate::row::Status;

impl<L: Ledger> Desk<'_, L> {
    /// The batch's activations, those within reach of its touches, and those that follow one of
    /// its activations on a device.
    pub fn affected_activations(&mut self, settled: &Settled) -> Result<Vec<FactKey>, L::Error> {
        self.load(settled.activations.iter().copied())?;
        let mut scans = Vec::new();
        for (key, activation) in self.standing(&settled.activations) {
            scans.extend(device_scans(&key, activation, Family::Activation, from(activation)));
        }
        for (key, activation) in &settled.outgoing_activations {
            scans.extend(device_scans(key, activation, Family::Activation, from(activation)));
        }
        let mut found = self.scan_all(&settled.touch_scans)?;
        found.extend(self.scan_all(&scans)?);
        let mut keys: Vec<_> = found.iter().map(|entry| entry.fact).collect();
        keys.extend(&settled.activations);
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// The batch's effects, those of activations that changed, and those of uncredited
    /// reinstalls that follow an install which changed.
    pub fn affected_effects(
        &mut self,
        settled: &Settled,
        changed: &[Changed],
    ) -> Result<Vec<FactKey>, L::Error> {
        let mut scans = Vec::new();
        for (key, activation) in &settled.outgoing_activations {
            scans.extend(self.effect_scans(key, activation));
        }
        let mut followers = Vec::new();
        for Changed { key, activation } in changed {
            scans.extend(self.effect_scans(key, activation));
            followers.extend(device_scans(key, activation, Family::Activation, from(activation)));
        }
        let followers: Vec<_> = self.scan_all(&followers)?.iter().map(|entry| entry.fact).collect();
        self.load(followers.iter().copied())?;
        for key in &followers {
            if let Some(Home::Activation(home)) = self.home(key)
                && home.decision.as_ref().is_some_and(|decision| {
                    decision.credit.status == Status::Unattributed
                        && changed.iter().any(|changed| is_original(changed, decision))
                })
            {
                scans.extend(self.effect_scans(key, &home.fact));
            }
        }
        let mut keys: Vec<_> = self.scan_all(&scans)?.iter().map(|entry| entry.fact).collect();
        keys.extend(&settled.effects);
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    fn standing<'b>(
        &'b self,
        keys: &'b [FactKey],
    ) -> impl Iterator<Item = (FactKey, &'b Activation)> {
        keys.iter().filter_map(|key| match self.home(key)? {
            Home::Activation(home) => Some((*key, &home.fact)),
            _ => None,
        })
    }

    fn effect_scans(&self, key: &FactKey, activation: &Activation) -> Vec<Scan> {
        let Some(app) = self.app(key) else { return Vec::new() };
        let times = inherit::reach(app, activation.time);
        device_scans(key, activation, Family::Effect, times).collect()
    }
}

fn is_original(changed: &Changed, decision: &crate::attribute::Decision) -> bool {
    decision.original.as_deref() == Some(&*changed.activation.id)
}

/// Adds where the activations stand that a touch can be credited with.
pub fn add_touch_scans(
    scans: &mut Vec<Scan>,
    key: &FactKey,
    (touch, ids): (&Touch, &DeviceIds),
    policy: &Policy,
    app: &AppPolicy,
) {
    let times = candidate::reach(policy, app, touch, false);
    scans.extend(
        ids.iter()
            .map(matching::by_id)
            .chain([matching::by_click_id(&touch.id)])
            .map(|found_by| scan(key, Family::Activation, found_by, times)),
    );
    if app.probabilistic {
        let times = candidate::reach(policy, app, touch, true);
        let keys = matching::probabilistic_keys(&touch.device);
        scans.extend(keys.map(|found_by| scan(key, Family::Activation, found_by, times)));
    }
}

fn device_scans(
    key: &FactKey,
    activation: &Activation,
    family: Family,
    times: (EventTime, EventTime),
) -> impl Iterator<Item = Scan> {
    let ids = DeviceIds::new(&activation.ids);
    let keys: Vec<_> = ids.iter().map(matching::by_id).collect();
    let key = *key;
    keys.into_iter().map(move |found_by| scan(&key, family, found_by, times))
}

/// From the activation's time on.
fn from(activation: &Activation) -> (EventTime, EventTime) {
    (activation.time, EventTime::MAX)
}
