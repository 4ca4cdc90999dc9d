//! The timeline of a device: its touches, activations and effects, newest first.
//!
//! It is read page by page from the index entries that attribution uses. They are kept for a shorter time than rows, so
//! a timeline does not reach as far back.

use std::cmp::Reverse;
use std::collections::VecDeque;

use crate::facts::device_ids::DeviceIds;
use crate::facts::event::{EventTime, Family, Pid};
use crate::facts::keys::FactKey;
use crate::facts::match_keys::{self, TouchClass};
use crate::ledger::Facts;
use crate::ledger::index::{IndexEntry, Scan};
use crate::ledger::record::FactRecord;
use crate::rules::expiry::{ExpiryFloor, Needed};
use crate::rules::policy::{AppPolicy, Policy};
use crate::worker::limits::ReadLimits;

/// A fact of a timeline, and its index entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineEntry {
    pub entry: IndexEntry,
    pub record: FactRecord,
}

/// A page of a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// Newest first.
    pub found: Vec<TimelineEntry>,
    pub has_more: bool,
}

/// For each of [`Family::ALL`], the time since which all facts are kept; 1970 if none have expired.
pub type CompleteSince = [EventTime; Family::ALL.len()];

/// Returns how far back timelines of an app reach. `rows_from` is the time of its oldest rows: without a correction
/// horizon, facts are kept as long as rows. `floor` is the expiry by earlier settings.
pub fn complete_since(
    policy: &Policy,
    app: &AppPolicy,
    consumed_until: Option<EventTime>,
    floor: &ExpiryFloor,
    rows_from: EventTime,
) -> CompleteSince {
    let needed = app.correction_horizon_ms.map(|late_ms| Needed::new(policy, app, late_ms));
    let until = consumed_until.unwrap_or_default();
    Family::ALL.map(|family| {
        let by_settings = needed.map_or(rows_from, |needed| needed.oldest(family, None, until));
        by_settings.max(floor.oldest(family, None))
    })
}

/// Returns at most `limit` facts with one of these ids. `after` is the last entry of the previous page, if any. The
/// page ends earlier, after at least one fact, if its facts are larger than [`ReadLimits::bytes`].
pub fn timeline<F: Facts>(
    facts: &mut F,
    policy: &Policy,
    app: &AppPolicy,
    ids: &DeviceIds,
    after: Option<IndexEntry>,
    limit: usize,
    limits: ReadLimits,
) -> Result<Timeline, F::Error> {
    let needed = app.correction_horizon_ms.map(|late_ms| Needed::new(policy, app, late_ms));
    let (until, floor) = (facts.consumed_until(), facts.expiry_floor(app.pid));
    let has_expired = |record: &FactRecord| {
        let (family, lookback_ms) = (record.family(), record.lookback_ms());
        let oldest =
            needed.zip(until).map(|(needed, until)| needed.oldest(family, lookback_ms, until));
        record.time() < oldest.unwrap_or_default().max(floor.oldest(family, lookback_ms))
    };
    let mut entries = MergedEntries::new(app.pid, ids, after, limit + 1);
    let (mut found, mut bytes): (Vec<TimelineEntry>, usize) = (Vec::new(), 0);
    let mut page: VecDeque<IndexEntry> = VecDeque::new();
    while found.len() <= limit && (bytes < limits.bytes || found.is_empty()) {
        if page.is_empty() {
            page.extend(entries.next(facts, limit + 1 - found.len())?);
        }
        if page.is_empty() {
            break;
        }
        let keys: Vec<FactKey> = page.iter().map(|entry| entry.fact).collect();
        let records = facts.records_up_to(&keys, limits.bytes.saturating_sub(bytes))?;
        for (entry, record) in page.drain(..records.len()).zip(records) {
            // The entry may be of a replaced fact, or of another id with the same hash.
            let is_current = |record: &FactRecord| {
                record.time() == entry.time && !has_expired(record) && has_any(record, ids)
            };
            if let Some(record) = record.filter(is_current) {
                bytes += record.bytes();
                found.push(TimelineEntry { entry, record });
            }
        }
    }
    let is_cut = bytes >= limits.bytes && !(page.is_empty() && entries.is_read());
    let has_more = found.len() > limit || is_cut;
    found.truncate(limit);
    Ok(Timeline { found, has_more })
}

fn has_any(record: &FactRecord, ids: &DeviceIds) -> bool {
    record.device_ids().iter().any(|id| ids.contains(id))
}

/// Returns the sort key of an entry: newest first, then a fixed order.
fn order(entry: &IndexEntry) -> impl Ord + use<> {
    let FactKey { family, id, tag, .. } = entry.fact;
    (Reverse(entry.time), family, tag, id)
}

/// Merges the entries of all keys in the order of a timeline, each fact once.
struct MergedEntries {
    lanes: Vec<Lane>,
    /// The last entry that was returned.
    last: Option<IndexEntry>,
}

/// The entries of one key.
struct Lane {
    scan: Scan,
    read: VecDeque<IndexEntry>,
    is_read: bool,
}

impl MergedEntries {
    fn new(pid: Pid, ids: &DeviceIds, after: Option<IndexEntry>, page: usize) -> Self {
        let newest = after.map_or(EventTime::MAX, |after| after.time);
        let keys = ids.iter().flat_map(|id| {
            let touches = TouchClass::all().map(|class| match_keys::touch_by_id(class, id));
            let by_id = match_keys::by_id(id);
            let others = [(Family::Activation, by_id), (Family::Effect, by_id)];
            touches.map(|key| (Family::Touch, key)).chain(others)
        });
        let lanes = keys.map(|(family, key)| {
            let oldest = EventTime::default();
            let scan = Scan { family, key, pid, oldest, newest, after: None, limit: page };
            Lane { scan, read: VecDeque::new(), is_read: false }
        });
        Self { lanes: lanes.collect(), last: after }
    }

    /// Returns at most `count` entries, fewer only at the end.
    fn next<F: Facts>(&mut self, facts: &mut F, count: usize) -> Result<Vec<IndexEntry>, F::Error> {
        let mut entries = Vec::new();
        while entries.len() < count {
            self.read(facts)?;
            let heads = self.lanes.iter_mut().filter(|lane| !lane.read.is_empty());
            let Some(lane) = heads.min_by_key(|lane| lane.read.front().map(order)) else { break };
            let Some(entry) = lane.read.pop_front() else { break };
            // The entry was already returned for another key, or on the previous page.
            if self.last.is_some_and(|last| order(&entry) <= order(&last)) {
                continue;
            }
            self.last = Some(entry);
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Checks whether all entries were returned.
    fn is_read(&self) -> bool {
        self.lanes.iter().all(|lane| lane.is_read && lane.read.is_empty())
    }

    /// Reads the next page of every lane whose entries are used up.
    fn read<F: Facts>(&mut self, facts: &mut F) -> Result<(), F::Error> {
        let needs_page = |lane: &&mut Lane| lane.read.is_empty() && !lane.is_read;
        let mut lanes: Vec<&mut Lane> = self.lanes.iter_mut().filter(needs_page).collect();
        if lanes.is_empty() {
            return Ok(());
        }
        let scans: Vec<Scan> = lanes.iter().map(|lane| lane.scan).collect();
        for (lane, page) in lanes.iter_mut().zip(facts.scan(&scans)?) {
            lane.is_read = page.len() < lane.scan.limit;
            lane.scan.after = page.last().copied();
            lane.read.extend(page);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::policy::DAY_MS;

    #[test]
    fn timelines_reach_as_far_back_as_facts_are_kept() {
        let mut app = AppPolicy::new(Pid(1), "a");
        let policy = Policy::new(vec![app.clone()], vec![]);
        let now = EventTime::default().plus(1_000 * DAY_MS);
        let from = now.minus(300 * DAY_MS);
        let days_with = |app: &AppPolicy, until, floor: &ExpiryFloor| {
            let since = complete_since(&policy, app, until, floor, from);
            since.map(|time| time.millis().div_ceil(DAY_MS))
        };
        let days = |app: &AppPolicy, until| days_with(app, until, &ExpiryFloor::default());
        // Windows of 7 days for clicks, 400 and 90 days for effects and reinstalls, plus the horizon.
        assert_eq!(days(&app, Some(now)), [986, 503, 993]);
        assert_eq!(days(&app, None), [0, 0, 0]);
        app.correction_horizon_ms = None;
        assert_eq!(days(&app, Some(now)), [700, 700, 700]);
        let floor = Needed::from_ms([7, 490, 0, 7].map(|days| days * DAY_MS)).expired(now, None);
        assert_eq!(days_with(&app, Some(now), &floor), [986, 700, 993], "the floor stays");
    }
}
