//! Which activations a touch can change: by its keys, and at its places.

use crate::facts::device_ids::{DeviceIds, Forms};
use crate::facts::event::{EventTime, Pid, Touch};
use crate::facts::keys::MatchKey;
use crate::facts::match_keys::{self, MARK_MS};
use crate::rules::candidate::{self, Tier};
use crate::rules::policy::{AppPolicy, Policy};

/// Where the activations stand that the batch's touches can be credited with.
#[derive(Debug, Default)]
pub struct Reaches {
    pub(super) by_key: Vec<Reach>,
    pub(super) by_place: Vec<PlaceReach>,
}

/// The activations that a touch can meet by one of its keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    pub pid: Pid,
    /// Of the touch among what arrived.
    pub(super) place: u32,
    pub key: MatchKey,
    /// That the touch has if it meets an activation by this key.
    pub(super) tier: Tier,
    pub(super) touch_time: EventTime,
    pub(super) newest: EventTime,
    /// Of the last activation that it, or an older one of its group, can be credited with or, as
    /// it goes, free another touch for. To later ones it only counts as a click.
    pub candidate_until: EventTime,
}

/// The activations that a touch can meet at a place: those with ids of none of its kinds.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlaceReach {
    /// With the place itself as its key.
    pub(super) reach: Reach,
    pub(super) forms: Forms,
}

impl Reaches {
    pub fn clear(&mut self) {
        self.by_key.clear();
        self.by_place.clear();
    }
}

impl Reach {
    pub(super) fn group(&self) -> (MatchKey, Pid, Tier) {
        (self.key, self.pid, self.tier)
    }
}

impl PlaceReach {
    /// Where the marks of the place are.
    pub fn marks(&self) -> Reach {
        let key = match_keys::marks(self.reach.key, false);
        Reach { key, touch_time: self.reach.touch_time.minus(MARK_MS), ..self.reach }
    }
}

/// Adds where the activations stand that a touch, at its place among what arrived, can be credited
/// with, or another one if it goes.
pub fn add_reaches(
    reaches: &mut Reaches,
    (touch, ids): (&Touch, &DeviceIds),
    policy: &Policy,
    app: &AppPolicy,
    (place, goes): (u32, bool),
) {
    let reach = |key, (candidate_until, newest), is_probabilistic| {
        let tier = Tier::of(touch.kind, is_probabilistic);
        let (pid, touch_time) = (touch.pid, touch.time);
        Reach { pid, place, key, tier, touch_time, newest, candidate_until }
    };
    let by_id = candidate::window_end(policy, app, touch, false);
    let by_place = candidate::window_end(policy, app, touch, true);
    // What is too old for a match by id can still match by its place.
    let by_id = if app.probabilistic { by_id.max(by_place) } else { by_id };
    let counted = candidate::click_cap_end(policy, app, touch).unwrap_or(by_id);
    let newest = (if goes { counted.max(by_id) } else { by_id }, counted.max(by_id));
    let keys = ids.iter().map(match_keys::by_id);
    reaches.by_key.extend(keys.map(|key| reach(key, newest, false)));
    reaches.by_key.push(reach(match_keys::by_click_id(&touch.id), newest, false));
    if app.probabilistic {
        let places = match_keys::probabilistic_keys(&touch.device);
        reaches.by_place.extend(places.map(|key| PlaceReach {
            reach: reach(key, (by_place, by_place), true),
            forms: ids.forms(),
        }));
    }
}
