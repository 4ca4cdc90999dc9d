//! The windows of activations whose decision a touch can change, by index key and by probabilistic key.

use crate::facts::device_ids::IdKindSet;
use crate::facts::event::{EventTime, Pid};
use crate::facts::keys::MatchKey;
use crate::facts::match_keys::{self, BUCKET_MS, TouchKeys};
use crate::rules::candidate::{self, Tier};
use crate::rules::policy::{AppPolicy, Policy};

/// The windows of a batch's touches.
#[derive(Debug, Default)]
pub struct MatchWindows {
    pub by_key: Vec<MatchWindow>,
    pub by_probabilistic_key: Vec<ProbabilisticWindow>,
}

/// The activations that a touch can match by one key: later than the touch, up to `newest`.
#[derive(Debug, Clone, Copy)]
pub struct MatchWindow {
    pub pid: Pid,
    /// Index of the touch in `BatchState::arrived`.
    pub arrival_index: u32,
    pub key: MatchKey,
    /// The tier of the touch for matches by this key.
    pub tier: Tier,
    pub touch_time: EventTime,
    pub newest: EventTime,
    /// The time of the last activation that can be credited to this touch or to an older one of its group or, after the
    /// touch is removed, to another touch. For later activations the touch only counts as a click.
    pub candidate_until: EventTime,
}

/// The activations that a touch can match by a probabilistic key: they have no id of a kind that the touch has.
#[derive(Debug, Clone, Copy)]
pub struct ProbabilisticWindow {
    /// The window, with the probabilistic key as its key.
    pub window: MatchWindow,
    /// The kinds of the touch's ids.
    pub kinds: IdKindSet,
}

impl MatchWindows {
    pub fn clear(&mut self) {
        self.by_key.clear();
        self.by_probabilistic_key.clear();
    }

    pub fn append(&mut self, mut later: Self) {
        self.by_key.append(&mut later.by_key);
        self.by_probabilistic_key.append(&mut later.by_probabilistic_key);
    }
}

impl MatchWindow {
    pub fn group(&self) -> (MatchKey, Pid, Tier) {
        (self.key, self.pid, self.tier)
    }

    /// Returns the sort key. Windows of one group and time are in the order of arrival, in whatever order they were
    /// added.
    pub fn order(&self) -> ((MatchKey, Pid, Tier), EventTime, u32) {
        (self.group(), self.touch_time, self.arrival_index)
    }
}

impl ProbabilisticWindow {
    /// Returns the window of the probabilistic key's markers.
    pub fn bucket_markers(&self) -> MatchWindow {
        let key = match_keys::bucket_markers(self.window.key);
        MatchWindow { key, touch_time: self.window.touch_time.minus(BUCKET_MS), ..self.window }
    }
}

/// Adds the windows of a touch that has arrived or, if `is_removed` is true, is replaced. `arrival_index` is the index
/// of the touch in `BatchState::arrived`.
pub fn add_windows(
    windows: &mut MatchWindows,
    keys: &TouchKeys<'_>,
    policy: &Policy,
    app: &AppPolicy,
    arrival_index: u32,
    is_removed: bool,
) {
    let TouchKeys { touch, ids, probabilistic } = keys;
    let window = |key, (candidate_until, newest), is_probabilistic| {
        let tier = Tier::of(touch.kind, is_probabilistic);
        let (pid, touch_time) = (touch.pid, touch.time);
        MatchWindow { pid, arrival_index, key, tier, touch_time, newest, candidate_until }
    };
    let id_end = candidate::window_end(policy, app, touch, false);
    let probabilistic_end = candidate::window_end(policy, app, touch, true);
    // A touch that is too old for a match by id can still match probabilistically.
    let id_end = if app.probabilistic { id_end.max(probabilistic_end) } else { id_end };
    let click_cap_end = candidate::click_cap_end(policy, app, touch).unwrap_or(id_end);
    let newest = click_cap_end.max(id_end);
    let times = (if is_removed { newest } else { id_end }, newest);
    let keys = ids.iter().map(match_keys::by_id);
    windows.by_key.extend(keys.map(|key| window(key, times, false)));
    windows.by_key.push(window(match_keys::by_click_id(touch.id()), times, false));
    windows.by_probabilistic_key.extend(probabilistic.iter().map(|key| ProbabilisticWindow {
        window: window(*key, (probabilistic_end, probabilistic_end), true),
        kinds: ids.kinds(),
    }));
}
