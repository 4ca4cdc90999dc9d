//! Which activations a touch can change: by its keys, and at its places.

use crate::facts::device_ids::{DeviceIds, IdKindSet};
use crate::facts::event::{EventTime, Pid, Touch};
use crate::facts::keys::MatchKey;
use crate::facts::match_keys::{self, BUCKET_MS};
use crate::rules::candidate::{self, Tier};
use crate::rules::policy::{AppPolicy, Policy};

/// Where the activations stand that the batch's touches can be credited with.
#[derive(Debug, Default)]
pub struct MatchWindows {
    pub(super) by_key: Vec<MatchWindow>,
    pub(super) by_place: Vec<ProbabilisticWindow>,
}

/// The activations that a touch can meet by one of its keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct MatchWindow {
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
pub(super) struct ProbabilisticWindow {
    /// With the place itself as its key.
    pub(super) window: MatchWindow,
    pub(super) kinds: IdKindSet,
}

impl MatchWindows {
    pub fn clear(&mut self) {
        self.by_key.clear();
        self.by_place.clear();
    }
}

impl MatchWindow {
    pub(super) fn group(&self) -> (MatchKey, Pid, Tier) {
        (self.key, self.pid, self.tier)
    }
}

impl ProbabilisticWindow {
    /// Where the marks of the place are.
    pub fn bucket_markers(&self) -> MatchWindow {
        let key = match_keys::bucket_markers(self.window.key, false);
        MatchWindow { key, touch_time: self.window.touch_time.minus(BUCKET_MS), ..self.window }
    }
}

/// Adds where the activations stand that a touch, at its place among what arrived, can be credited
/// with, or another one if it goes.
pub fn add_windows(
    windows: &mut MatchWindows,
    (touch, ids): (&Touch, &DeviceIds),
    policy: &Policy,
    app: &AppPolicy,
    (place, is_removed): (u32, bool),
) {
    let window = |key, (candidate_until, newest), is_probabilistic| {
        let tier = Tier::of(touch.kind, is_probabilistic);
        let (pid, touch_time) = (touch.pid, touch.time);
        MatchWindow { pid, place, key, tier, touch_time, newest, candidate_until }
    };
    let by_id = candidate::window_end(policy, app, touch, false);
    let by_place = candidate::window_end(policy, app, touch, true);
    // What is too old for a match by id can still match by its place.
    let by_id = if app.probabilistic { by_id.max(by_place) } else { by_id };
    let counted = candidate::click_cap_end(policy, app, touch).unwrap_or(by_id);
    let newest = (if is_removed { counted.max(by_id) } else { by_id }, counted.max(by_id));
    let keys = ids.iter().map(match_keys::by_id);
    windows.by_key.extend(keys.map(|key| window(key, newest, false)));
    windows.by_key.push(window(match_keys::by_click_id(&touch.id), newest, false));
    if app.probabilistic {
        let places = match_keys::probabilistic_keys(&touch.device);
        windows.by_place.extend(places.map(|key| ProbabilisticWindow {
            window: window(key, (by_place, by_place), true),
            kinds: ids.kinds(),
        }));
    }
}
