//! Keeps of the touches that were read for a decision those that it can still depend on, so that
//! room and work do not grow with touches that are rejected or lose.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use foldhash::fast::FixedState;

use super::BatchContext;
use super::touch_search::PendingDecision;
use crate::facts::event::{EventTime, Family, Touch, TouchKind};
use crate::facts::keys::FactKey;
use crate::ledger::Facts;
use crate::ledger::record::FactRecord;
use crate::rules::candidate::{CLICK_COUNT_MS, Candidate, ClickCounts};
use crate::rules::row::CONTRIBUTORS_MAX;
use crate::rules::winner::strength;

impl<L: Facts> BatchContext<'_, L> {
    /// Forgets the touches that can not matter to the case any more, here and in the case.
    pub fn prune(&mut self, pending: &mut PendingDecision) {
        let needed = self.needed(pending);
        pending.touches.retain(|key, _| needed.contains(key));
        self.retain_records(|key| key.family != Family::Touch || needed.contains(key));
    }

    fn needed(&self, pending: &PendingDecision) -> HashSet<FactKey, FixedState> {
        let mut needed = HashSet::default();
        let Some(subject) = self.subject(pending) else { return needed };
        let evidence = self.evidence(pending);
        let clicks = ClickCounts::new(&subject, evidence.touches.iter().copied());
        // Accepted for good, whatever else is read.
        let mut accepted: Vec<(FactKey, Candidate<'_>)> = Vec::new();
        // Clicks that may turn out to be one too many, by channel.
        let mut unsettled: BTreeMap<Option<&str>, Vec<EventTime>> = BTreeMap::new();
        for (key, touch, ids) in self.touches(pending) {
            let Some(candidate) = subject.candidate(touch, ids, pending.class.install_type) else {
                continue;
            };
            if subject.reject_reason(&candidate, &clicks).is_some() {
                continue;
            }
            if evidence.has_counted(&subject, touch) {
                accepted.push((key, candidate));
            } else {
                unsettled.entry(subject.channel(touch.spreadid)).or_default().push(touch.time);
                needed.insert(key);
            }
        }
        // With the one that an explanation tells the winner has beaten.
        accepted.sort_unstable_by_key(|(_, one)| Reverse(strength(one)));
        needed.extend(accepted.iter().take(2).map(|(key, _)| *key));
        accepted.sort_unstable_by_key(|(_, one)| Reverse((one.touch.time, &one.touch.id)));
        needed.extend(accepted.iter().take(CONTRIBUTORS_MAX + 1).map(|(key, _)| *key));
        unsettled.values_mut().for_each(|times| times.sort_unstable());
        let unread = pending.newest_unread();
        for (key, touch, ids) in self.touches(pending) {
            let counts = subject.counts_clicks()
                && touch.kind == TouchKind::Click
                && subject.matches(touch, ids).by_id.is_some();
            let can_count = || {
                let times = unsettled.get(&subject.channel(touch.spreadid));
                let next = times
                    .and_then(|times| times.get(times.partition_point(|time| *time < touch.time)));
                next.and_then(|next| next.since(touch.time)).is_some_and(|ms| ms < CLICK_COUNT_MS)
            };
            // What is not read yet may be newer.
            if counts && (unread.is_some_and(|unread| unread >= touch.time) || can_count()) {
                needed.insert(key);
            }
        }
        needed
    }

    fn touches<'b>(
        &'b self,
        pending: &'b PendingDecision,
    ) -> impl Iterator<Item = (FactKey, &'b Touch, &'b crate::facts::device_ids::DeviceIds)> {
        pending.touches.iter().filter_map(|(key, ids)| match self.record(key)? {
            FactRecord::Touch(touch) => Some((*key, &**touch, ids)),
            _ => None,
        })
    }
}
