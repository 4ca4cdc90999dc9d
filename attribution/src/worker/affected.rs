//! Finds the stored events whose decisions a batch can change.

use std::collections::BTreeSet;
use std::ops::Range;

use super::batch_state::{BatchState, SupersededActivation};
use super::classify_batch::Classified;
use super::fact_cache::{FactCache, merged, scan};
use super::match_windows::{MatchWindow, MatchWindows, ProbabilisticWindow};
use crate::facts::device_ids::{DeviceId, DeviceIds, IdKindSet};
use crate::facts::event::{EventTime, Family, Pid};
use crate::facts::keys::{FactKey, FactKeySet};
use crate::facts::match_keys;
use crate::ledger::Facts;
use crate::ledger::index::{IndexEntry, Scan};
use crate::ledger::record::FactRecord;
use crate::rules::inherit;
use crate::rules::policy::Policy;
use crate::rules::row::{EventType, Status};
use crate::rules::winner::{self, Decision};

/// Number of match windows that are scanned together. More would only cost memory.
const WINDOWS_PER_SCAN: usize = 1_024;

/// Returns the activations that a touch of the batch can change.
pub fn activations_affected_by_touches<L: Facts>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    state: &mut BatchState,
) -> Result<Vec<FactKey>, L::Error> {
    let MatchWindows { by_key, by_probabilistic_key } = &mut state.windows;
    let mut near = Vec::new();
    add_near(facts, by_key, &mut near)?;
    let mut marked = marked_windows(facts, by_probabilistic_key)?;
    add_near(facts, &mut marked, &mut near)?;
    near.sort_unstable_by_key(|(entry, _)| entry.fact);
    let mut touched: Vec<FactKey> = Vec::new();
    let mut rest = near.as_slice();
    while !rest.is_empty() {
        let is_complete = facts.load_up_to(rest.iter().map(|(entry, _)| entry.fact))?;
        let loaded = rest.iter().take_while(|(entry, _)| facts.is_loaded(&entry.fact)).count();
        let (now, later) = rest.split_at(loaded);
        touched.extend(now.iter().filter_map(|(entry, window)| {
            can_change(facts, policy, entry, window, state.must_redecide_all).then_some(entry.fact)
        }));
        if !is_complete || !later.is_empty() || facts.is_full() {
            // The activations are decided in parts too.
            now.iter().for_each(|(entry, _)| facts.forget(&entry.fact));
        }
        rest = later;
    }
    touched.dedup();
    Ok(touched)
}

/// Adds the activations in the windows, each with the window of the newest touch before it: if this touch cannot change
/// the decision, no older one can.
fn add_near<L: Facts>(
    facts: &mut FactCache<'_, L>,
    windows: &mut [MatchWindow],
    near: &mut Vec<(IndexEntry, MatchWindow)>,
) -> Result<(), L::Error> {
    windows.sort_unstable_by_key(MatchWindow::order);
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
        facts.scan_all(&scans, |scan, entry| {
            let group = groups.get(scan).and_then(|group| windows.get(group.clone()));
            let group = group.unwrap_or_default();
            let end = group.partition_point(|window| window.touch_time < entry.time);
            let newest = end.checked_sub(1).and_then(|last| group.get(last));
            near.extend(newest.map(|window| (entry, *window)));
        })?;
    }
    Ok(())
}

/// Converts windows by probabilistic key to windows by index key, one for each set of id kinds that the markers list.
fn marked_windows<L: Facts>(
    facts: &mut FactCache<'_, L>,
    probabilistic: &mut [ProbabilisticWindow],
) -> Result<Vec<MatchWindow>, L::Error> {
    probabilistic.sort_unstable_by_key(|it| it.window.order());
    let mut windows = Vec::new();
    for chunk in probabilistic.chunks(WINDOWS_PER_SCAN) {
        let markers: Vec<MatchWindow> =
            chunk.iter().map(ProbabilisticWindow::bucket_markers).collect();
        let (scans, groups) = scans(&markers);
        let mut found: BTreeSet<(usize, IdKindSet)> = BTreeSet::new();
        facts.scan_all(&scans, |scan, entry| {
            found.insert((scan, match_keys::marked_kinds(&entry)));
        })?;
        for (scan, kinds) in found {
            let group = groups.get(scan).and_then(|group| chunk.get(group.clone()));
            let matching = group.unwrap_or_default().iter().filter(|it| !it.kinds.overlaps(kinds));
            windows.extend(matching.map(|ProbabilisticWindow { window, .. }| MatchWindow {
                key: match_keys::activation_by_probabilistic_key(kinds, window.key),
                ..*window
            }));
        }
    }
    Ok(windows)
}

fn can_change<L: Facts>(
    facts: &FactCache<'_, L>,
    policy: &Policy,
    entry: &IndexEntry,
    window: &MatchWindow,
    must_redecide_all: bool,
) -> bool {
    let activation = facts.at(entry).and_then(FactRecord::activation);
    let (Some(record), Some(app)) = (activation, policy.app(entry.fact.pid)) else { return false };
    if !facts.is_changeable(app, entry.time) {
        return false;
    }
    record.decision.as_ref().filter(|_| !must_redecide_all).is_none_or(|decision| {
        if entry.time > window.candidate_until {
            return winner::can_exceed_click_limit(decision, window.touch_time);
        }
        winner::can_change(app, decision, window.tier, window.touch_time)
    })
}

/// Returns the searches for the effects of changed activations, and of uncredited reinstalls after a changed install.
pub fn effect_searches<L: Facts>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    state: &BatchState,
    classified: &[Classified],
    changed: &FactKeySet,
) -> Result<Vec<Scan>, L::Error> {
    let reinstalls = reinstalls(facts, state, classified, changed)?;
    let mut scans = superseded_effect_searches(facts.ledger(), policy, state);
    facts.visit(changed.iter().copied().chain(reinstalls), |ledger, key, record| {
        let ids = state.event_ids.of(key, record);
        scans.extend(effect_scans(ledger, policy, key.pid, &ids, record.time()));
    })?;
    Ok(merged(scans))
}

/// Returns the searches for the effects of replaced activations, as these were before.
pub fn superseded_effect_searches<L: Facts>(
    ledger: &L,
    policy: &Policy,
    state: &BatchState,
) -> Vec<Scan> {
    let superseded = state.superseded_activations.iter();
    let scans = superseded.flat_map(|SupersededActivation { key, activation_key, ids }| {
        effect_scans(ledger, policy, key.pid, ids, activation_key.time)
    });
    scans.collect()
}

/// Returns the uncredited reinstalls whose effects carry the credit of a changed install. It is an install in the chain
/// of the reinstall; the class in its own decision may differ.
fn reinstalls<L: Facts>(
    facts: &mut FactCache<'_, L>,
    state: &BatchState,
    classified: &[Classified],
    changed: &FactKeySet,
) -> Result<Vec<FactKey>, L::Error> {
    let mut followers: Vec<FactKey> =
        classified.iter().map(|classified| classified.entry.key).collect();
    let arrived: FactKeySet = state.activations.iter().copied().collect();
    let mut scans = Vec::new();
    // All later activations after an arrived one have been classified.
    let others = changed.iter().filter(|key| !arrived.contains(key));
    facts.visit(others.copied(), |ledger, key, record| {
        let (ids, times) = (record.device_ids(), (record.time(), EventTime::MAX));
        let ids = ids.searched(ledger.received_md5(key.pid).by_activations());
        scans.extend(device_scans(key.pid, ids, Family::Activation, times));
    })?;
    facts.scan_all(&merged(scans), |_, entry| followers.push(entry.fact))?;
    let has_changed_original = |key: &FactKey, decision: &Decision| {
        decision.credit.status == Status::Unattributed
            && decision.original.as_deref().is_some_and(|id| {
                changed.contains(&match_keys::fact_key(EventType::Activation, key.pid, id))
            })
    };
    let mut found = Vec::new();
    facts.visit(followers, |_, key, record| {
        let decision = record.activation().and_then(|record| record.decision.as_ref());
        let is_found = decision.is_some_and(|decision| has_changed_original(key, decision));
        found.extend((state.must_redecide_all || is_found).then_some(*key));
    })?;
    Ok(found)
}

fn effect_scans<L: Facts>(
    ledger: &L,
    policy: &Policy,
    pid: Pid,
    ids: &DeviceIds,
    time: EventTime,
) -> Vec<Scan> {
    let Some(app) = policy.app(pid) else { return Vec::new() };
    let ids = ids.searched(ledger.received_md5(pid).by_effects());
    device_scans(pid, ids, Family::Effect, inherit::effect_times(app, time))
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

fn device_scans<'i>(
    pid: Pid,
    ids: impl Iterator<Item = &'i DeviceId>,
    family: Family,
    times: (EventTime, EventTime),
) -> Vec<Scan> {
    ids.map(|id| scan(pid, family, match_keys::by_id(id), times)).collect()
}
