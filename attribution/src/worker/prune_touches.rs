//! Drops the touches that can no longer affect a decision, so that memory and work do not grow with touches that are
//! rejected or lose.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::fact_cache::FactCache;
use super::pending_decision::PendingDecision;
use crate::facts::event::{EventTime, Family, TouchKind};
use crate::facts::keys::{FactKey, FactKeySet};
use crate::ledger::Facts;
use crate::rules::candidate::{CLICK_COUNT_MS, Candidate, ClickCounts};
use crate::rules::row::CONTRIBUTORS_MAX;
use crate::rules::winner::{recency, strength};

/// Drops the touches that cannot affect the decision any more, from the cache and from `pending`.
pub fn prune<L: Facts>(facts: &mut FactCache<'_, L>, pending: &mut PendingDecision<'_>) {
    let needed = needed(facts, pending);
    pending.touches.retain(|key, _| needed.contains(key));
    facts.retain(|key| key.family != Family::Touch || needed.contains(key));
}

fn needed<L: Facts>(facts: &FactCache<'_, L>, pending: &PendingDecision<'_>) -> FactKeySet {
    let mut needed = FactKeySet::default();
    let Some(subject) = pending.subject(facts) else { return needed };
    let evidence = pending.evidence(facts);
    let clicks = ClickCounts::new(&subject, evidence.touches.iter().copied());
    // Accepted, whatever touches are read later.
    let mut accepted: Vec<(FactKey, Candidate<'_>)> = Vec::new();
    // Times of the clicks that may still be rejected because of unread clicks, by channel.
    let mut unsettled: BTreeMap<Option<&str>, Vec<EventTime>> = BTreeMap::new();
    for (key, touch, ids) in pending.loaded_touches(facts) {
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
    // The winner, and the runner-up that an explanation shows.
    accepted.sort_unstable_by_key(|(_, candidate)| Reverse(strength(candidate)));
    needed.extend(accepted.iter().take(2).map(|(key, _)| *key));
    accepted.sort_unstable_by_key(|(_, candidate)| Reverse(recency(candidate.touch)));
    needed.extend(accepted.iter().take(CONTRIBUTORS_MAX + 1).map(|(key, _)| *key));
    unsettled.values_mut().for_each(|times| times.sort_unstable());
    let unread = pending.newest_unread();
    for (key, touch, ids) in pending.loaded_touches(facts) {
        let counts = subject.counts_clicks()
            && touch.kind == TouchKind::Click
            && subject.matches(touch, ids).by_id.is_some();
        let can_count = || {
            let times = unsettled.get(&subject.channel(touch.spreadid));
            let next =
                times.and_then(|times| times.get(times.partition_point(|time| *time < touch.time)));
            next.and_then(|next| next.since(touch.time)).is_some_and(|ms| ms < CLICK_COUNT_MS)
        };
        // An unread touch may be a newer click that this one counts against.
        if counts && (unread.is_some_and(|unread| unread >= touch.time) || can_count()) {
            needed.insert(key);
        }
    }
    needed
}
