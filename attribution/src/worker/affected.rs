//! Finds what a batch can change besides its own events.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use foldhash::fast::FixedState;

use super::BatchContext;
use super::batch_context::{merged, scan};
use super::batch_state::BatchState;
use super::classify_batch::Classified;
use super::match_windows::{MatchWindow, MatchWindows, ProbabilisticWindow};
use crate::facts::device_ids::{DeviceIds, IdKindSet};
use crate::facts::event::{Activation, EventTime, Family, Pid};
use crate::facts::keys::FactKey;
use crate::facts::match_keys;
use crate::ledger::Ledger;
use crate::ledger::index::{IndexEntry, Scan};
use crate::ledger::record::FactRecord;
use crate::rules::inherit;
use crate::rules::row::Status;
use crate::rules::winner::{self, Decision};

/// Match windows that are scanned together; more would only need memory.
const WINDOWS_PER_SCAN: usize = 1_024;

impl<L: Ledger> BatchContext<'_, L> {
    /// Returns the activations that a touch of the batch can change.
    pub fn touched_activations(
        &mut self,
        state: &mut BatchState,
    ) -> Result<Vec<FactKey>, L::Error> {
        let MatchWindows { by_key, by_probabilistic_key } = &mut state.windows;
        let mut near = Vec::new();
        self.add_near(by_key, &mut near)?;
        let mut marked = self.marked_windows(by_probabilistic_key)?;
        self.add_near(&mut marked, &mut near)?;
        self.load(near.iter().map(|(entry, _)| entry.fact))?;
        let mut touched: Vec<_> = near
            .into_iter()
            .filter(|(entry, window)| self.can_change(entry, window, state.must_redecide_all))
            .map(|(entry, _)| entry.fact)
            .collect();
        touched.sort_unstable();
        touched.dedup();
        Ok(touched)
    }

    /// Adds the activations in the windows, each with the newest touch before it: if that one cannot change the
    /// activation, no older one can.
    fn add_near(
        &mut self,
        windows: &mut [MatchWindow],
        near: &mut Vec<(IndexEntry, MatchWindow)>,
    ) -> Result<(), L::Error> {
        windows.sort_unstable_by_key(|window| (window.group(), window.touch_time));
        for index in 1..windows.len() {
            let (before, after) = windows.split_at_mut(index);
            if let (Some(older), Some(window)) = (before.last(), after.first_mut())
                && older.group() == window.group()
            {
                window.candidate_until = window.candidate_until.max(older.candidate_until);
            }
        }
        for windows in windows.chunks(WINDOWS_PER_SCAN) {
            let (scans, groups) = scans(windows);
            self.scan_all(&scans, |scan, entry| {
                let group = groups.get(scan).and_then(|group| windows.get(group.clone()));
                let group = group.unwrap_or_default();
                let end = group.partition_point(|window| window.touch_time < entry.time);
                let newest = end.checked_sub(1).and_then(|last| group.get(last));
                near.extend(newest.map(|window| (entry, *window)));
            })?;
        }
        Ok(())
    }

    /// Converts windows by probabilistic key to windows by the index keys that the markers list.
    fn marked_windows(
        &mut self,
        probabilistic: &mut [ProbabilisticWindow],
    ) -> Result<Vec<MatchWindow>, L::Error> {
        probabilistic.sort_unstable_by_key(|it| (it.window.group(), it.window.touch_time));
        let mut windows = Vec::new();
        for chunk in probabilistic.chunks(WINDOWS_PER_SCAN) {
            let markers: Vec<MatchWindow> =
                chunk.iter().map(ProbabilisticWindow::bucket_markers).collect();
            let (scans, groups) = scans(&markers);
            let mut found: BTreeSet<(usize, IdKindSet)> = BTreeSet::new();
            self.scan_all(&scans, |scan, entry| {
                found.insert((scan, match_keys::marked_kinds(&entry)));
            })?;
            for (scan, kinds) in found {
                let group = groups.get(scan).and_then(|group| chunk.get(group.clone()));
                let matching =
                    group.unwrap_or_default().iter().filter(|it| !it.kinds.overlaps(kinds));
                windows.extend(matching.map(|ProbabilisticWindow { window, .. }| MatchWindow {
                    key: match_keys::activation_by_probabilistic_key(kinds, window.key),
                    ..*window
                }));
            }
        }
        Ok(windows)
    }

    fn can_change(
        &self,
        entry: &IndexEntry,
        window: &MatchWindow,
        must_redecide_all: bool,
    ) -> bool {
        let (Some(FactRecord::Activation(record)), Some(app)) =
            (self.at(entry), self.app(&entry.fact))
        else {
            return false;
        };
        if !self.is_changeable(&entry.fact, entry.time) {
            return false;
        }
        record.decision.as_ref().filter(|_| !must_redecide_all).is_none_or(|decision| {
            if entry.time > window.candidate_until {
                return winner::can_deny(decision, window.touch_time);
            }
            winner::can_change(app, decision, window.tier, window.touch_time)
        })
    }

    /// Returns the batch's effects, the effects of activations that changed, and those of uncredited reinstalls that
    /// follow an install that changed.
    pub fn affected_effects(
        &mut self,
        state: &BatchState,
        classified: &[Classified],
        changed: &HashSet<FactKey, FixedState>,
    ) -> Result<Vec<FactKey>, L::Error> {
        let mut scans = Vec::new();
        for (key, activation) in &state.superseded_activations {
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

    /// Returns the uncredited reinstalls whose effects carry the credit of an install that changed. That activation
    /// is an install in the reinstall's chain; its own class may differ.
    fn reinstalls(
        &mut self,
        state: &BatchState,
        classified: &[Classified],
        changed: &HashSet<FactKey, FixedState>,
    ) -> Result<Vec<FactKey>, L::Error> {
        let mut followers: Vec<FactKey> =
            classified.iter().map(|classified| classified.key).collect();
        let arrived: HashSet<&FactKey, FixedState> = state.activations.iter().collect();
        let mut scans = Vec::new();
        // The followers of an arrived activation have all been classified.
        for key in changed.iter().filter(|key| !arrived.contains(key)) {
            if let Some(activation) = self.activation(key) {
                let times = (activation.time, EventTime::MAX);
                scans.extend(device_scans(key.pid, activation, Family::Activation, times));
            }
        }
        self.scan_all(&merged(scans), |_, entry| followers.push(entry.fact))?;
        self.load(followers.iter().copied())?;
        followers.retain(|key| match self.record(key) {
            Some(FactRecord::Activation(_)) if state.must_redecide_all => true,
            Some(FactRecord::Activation(record)) => {
                record.decision.as_ref().is_some_and(|decision| {
                    decision.credit.status == Status::Unattributed
                        && original(key, decision)
                            .is_some_and(|original| changed.contains(&original))
                })
            }
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

/// Returns the scans of sorted windows, and for each scan the range of its windows.
fn scans(windows: &[MatchWindow]) -> (Vec<Scan>, Vec<Range<usize>>) {
    let mut scans: Vec<Scan> = Vec::with_capacity(windows.len());
    let mut groups: Vec<Range<usize>> = Vec::with_capacity(windows.len());
    for (index, window) in windows.iter().enumerate() {
        let oldest = window.touch_time.plus(1);
        if let (Some(scan), Some(range)) = (scans.last_mut(), groups.last_mut())
            && windows.get(range.start).is_some_and(|first| first.group() == window.group())
            && oldest <= scan.newest
        {
            scan.newest = scan.newest.max(window.newest);
            range.end = index + 1;
        } else {
            scans.push(scan(window.pid, Family::Activation, window.key, (oldest, window.newest)));
            groups.push(index..index + 1);
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
