//! Drops the touches that can no longer affect a decision, so that memory and work do not grow with touches that are
//! rejected or lose.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::fact_cache::FactCache;
use super::pending_decision::PendingDecision;
use crate::facts::event::{EventTime, Family, TouchKind};
use crate::facts::keys::{FactKey, FactKeyMap, FactKeySet};
use crate::ledger::Facts;
use crate::rules::candidate::{CLICK_COUNT_MS, Candidate, CountedClick};
use crate::rules::row::CONTRIBUTORS_MAX;
use crate::rules::winner::{recency, strength};

/// Drops the touches that cannot be credited any more, from the cache and from `pending`. Of those that still count
/// against others, keeps the time and the channel.
pub fn prune<L: Facts>(facts: &mut FactCache<'_, L>, pending: &mut PendingDecision<'_>) {
    let Creditable { needed, unsettled } = creditable(facts, pending);
    let counted = counted(facts, pending, &needed, &unsettled);
    pending.counted = counted;
    pending.touches.retain(|key, _| needed.contains(key));
    facts.retain(|key| key.family != Family::Touch || needed.contains(key));
}

/// The touches that can be credited.
struct Creditable<'p> {
    needed: FactKeySet,
    /// Sorted times of the clicks among them that unread clicks may still reject, by channel.
    unsettled: BTreeMap<Option<&'p str>, Vec<EventTime>>,
}

fn creditable<'p, L: Facts>(
    facts: &FactCache<'_, L>,
    pending: &PendingDecision<'p>,
) -> Creditable<'p> {
    let (mut needed, mut unsettled) = (FactKeySet::default(), BTreeMap::new());
    let Some(subject) = pending.subject(facts) else { return Creditable { needed, unsettled } };
    let evidence = pending.evidence(facts);
    let clicks = evidence.click_counts(&subject);
    // Accepted, whatever touches are read later.
    let mut accepted: Vec<(FactKey, Candidate<'_>)> = Vec::new();
    for (key, touch, ids) in pending.loaded_touches(facts) {
        let Some(candidate) = subject.candidate(touch, ids, pending.class.install_type) else {
            continue;
        };
        if subject.reject_reason(&candidate, &clicks).is_some() {
            continue;
        }
        if evidence.has_counted(&subject, touch) || subject.is_allowed(touch) {
            accepted.push((key, candidate));
        } else {
            let times: &mut Vec<EventTime> =
                unsettled.entry(pending.channel(touch.spreadid)).or_default();
            times.push(touch.time);
            needed.insert(key);
        }
    }
    // The winner, and the runner-up that an explanation shows.
    accepted.sort_unstable_by_key(|(_, candidate)| Reverse(strength(candidate)));
    needed.extend(accepted.iter().take(2).map(|(key, _)| *key));
    accepted.sort_unstable_by_key(|(_, candidate)| Reverse(recency(candidate.touch)));
    needed.extend(accepted.iter().take(CONTRIBUTORS_MAX + 1).map(|(key, _)| *key));
    unsettled.values_mut().for_each(|times| times.sort_unstable());
    Creditable { needed, unsettled }
}

/// Returns the clicks besides the needed touches that can count against an unsettled or an unread click. Of the clicks
/// of a channel in one millisecond, one more than the limit is enough to reject every click that they count against.
fn counted<'p, L: Facts>(
    facts: &FactCache<'_, L>,
    pending: &PendingDecision<'p>,
    needed: &FactKeySet,
    unsettled: &BTreeMap<Option<&'p str>, Vec<EventTime>>,
) -> FactKeyMap<CountedClick<'p>> {
    let mut counted = FactKeyMap::default();
    let Some(subject) = pending.subject(facts).filter(|subject| subject.counts_clicks()) else {
        return counted;
    };
    let unread = pending.newest_unread();
    let can_count = |click: &CountedClick<'_>| {
        // An unread touch may be a newer click that this one counts against.
        unread.is_some_and(|unread| unread >= click.time) || {
            let times = unsettled.get(&click.channel).map(Vec::as_slice).unwrap_or_default();
            let next = times.get(times.partition_point(|time| *time < click.time));
            let next_ms = next.and_then(|next| next.since(click.time));
            next_ms.is_some_and(|ms| ms < CLICK_COUNT_MS)
        }
    };
    let read = pending.loaded_touches(facts).filter(|(key, touch, ids)| {
        let is_click = touch.kind == TouchKind::Click && !needed.contains(key);
        is_click && subject.matches(touch, ids).by_id.is_some()
    });
    let read = read.map(|(key, touch, _)| {
        (key, CountedClick { channel: pending.channel(touch.spreadid), time: touch.time })
    });
    let before = pending.counted.iter().map(|(key, click)| (*key, *click));
    let max = subject.app.fraud.clicks_per_device_max;
    let mut at_once: BTreeMap<CountedClick<'_>, u32> = BTreeMap::new();
    for (key, click) in before.chain(read).filter(|(_, click)| can_count(click)) {
        let count = at_once.entry(click).or_default();
        if *count <= max {
            *count += 1;
            counted.insert(key, click);
        }
    }
    counted
}
