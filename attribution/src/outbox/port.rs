//! The port through which delivery reaches the outbox of a store.

use std::collections::{BTreeMap, BTreeSet};

use super::record::{
    CallbackKind, Counts, EndpointId, EntryState, OutboxEntry, OutboxKey, OutboxRecord,
};
pub use super::transitions::{Claim, Outcome};
use crate::facts::event::{EventTime, Pid};
use crate::facts::keys::FactKey;

/// Number of records that [`Outbox::list`] and [`Outbox::retry`] read at once.
const RECORDS_PER_READ: usize = 1_000;
/// Limit of the records that one call of [`Outbox::list`] reads.
const RECORDS_PER_LIST: usize = 100_000;

/// The outbox of a store. Other processes may change it at the same time if the store is shared.
pub trait Outbox {
    type Error: std::error::Error + Send + Sync + 'static;

    /// Returns at most `limit` records with entries of an endpoint that are due, those with the earliest entries first.
    /// If some cannot be read, this is an error, and they do not count as due any more.
    fn due(
        &mut self,
        endpoint: &EndpointId,
        now: EventTime,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, Self::Error>;

    /// Returns the records of events, in the order of the keys.
    fn records_of(&mut self, events: &[FactKey]) -> Result<Vec<Option<OutboxRecord>>, Self::Error>;

    /// Returns the next records after that of an event, in the order of the store; none only after the last one. There
    /// may be fewer than `limit`, and those that cannot be read are left out.
    fn next_records(
        &mut self,
        after: Option<&FactKey>,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, Self::Error>;

    /// Changes existing records, each atomically. `change` is called again for a record that another process has
    /// changed meanwhile; only its last call for a record takes effect.
    fn change(
        &mut self,
        events: &[FactKey],
        change: &mut dyn FnMut(&mut OutboxRecord),
    ) -> Result<(), Self::Error>;

    /// Returns the tally of each endpoint: of all entries that were ever made or, in a shared store, of those that are
    /// kept, for which it reads all of them.
    fn counts(&mut self) -> Result<Counts, Self::Error>;

    /// Begins attempts of those entries that are still due. An attempt that is not finished within the lease is made
    /// again.
    fn claim(
        &mut self,
        entries: &[OutboxKey],
        now: EventTime,
        lease_ms: u64,
    ) -> Result<Vec<Claim>, Self::Error> {
        let mut by_event: BTreeMap<FactKey, Vec<&OutboxKey>> = BTreeMap::new();
        for key in entries {
            by_event.entry(key.event).or_default().push(key);
        }
        let events: Vec<FactKey> = by_event.keys().copied().collect();
        let mut claims: BTreeMap<FactKey, Vec<Claim>> = BTreeMap::new();
        self.change(&events, &mut |record| {
            let keys = by_event.get(&record.event).into_iter().flatten();
            let claimed =
                keys.filter_map(|key| record.claim(&key.endpoint, key.kind, now, lease_ms));
            let claimed = claimed.collect();
            claims.insert(record.event, claimed);
        })?;
        Ok(claims.into_values().flatten().collect())
    }

    /// Ends attempts, or settles entries without an attempt.
    fn finish(&mut self, finished: &[(Claim, Outcome)], now: EventTime) -> Result<(), Self::Error> {
        let events: BTreeSet<FactKey> = finished.iter().map(|(claim, _)| claim.key.event).collect();
        let events: Vec<FactKey> = events.into_iter().collect();
        self.change(&events, &mut |record| {
            let event = record.event;
            for (claim, outcome) in finished.iter().filter(|(claim, _)| claim.key.event == event) {
                record.finish(claim, outcome, now);
            }
        })
    }

    /// Returns entries that match the filter, in the order of the store.
    fn list(
        &mut self,
        filter: &Filter,
        after: Option<FactKey>,
        limit: usize,
    ) -> Result<Listing, Self::Error> {
        let (mut listing, mut read) = (Listing { entries: Vec::new(), next: after }, 0);
        while listing.entries.len() < limit && read < RECORDS_PER_LIST {
            let records = self.next_records(listing.next.as_ref(), RECORDS_PER_READ)?;
            let is_last = records.is_empty();
            for record in records {
                read += 1;
                listing.next = Some(record.event);
                let event = record.event;
                let chosen = record.entries.into_iter().filter(|entry| filter.allows(event, entry));
                listing.entries.extend(chosen.map(|entry| (event, entry)));
                if listing.entries.len() >= limit {
                    return Ok(listing);
                }
            }
            if is_last {
                listing.next = None;
                return Ok(listing);
            }
        }
        Ok(listing)
    }

    /// Makes entries pending again that are dead or, if the filter asks for these, too old; if it asks for pending
    /// ones, makes them due now. Returns their number.
    fn retry(&mut self, filter: &Filter, now: EventTime) -> Result<u64, Self::Error> {
        let filter = Filter { state: filter.state.or(Some(EntryState::Dead)), ..filter.clone() };
        let (mut after, mut count) = (None, 0);
        loop {
            let records = self.next_records(after.as_ref(), RECORDS_PER_READ)?;
            let is_chosen = |record: &&OutboxRecord| {
                record.entries.iter().any(|entry| filter.allows(record.event, entry))
            };
            let events: Vec<FactKey> =
                records.iter().filter(is_chosen).map(|record| record.event).collect();
            let mut retried: BTreeMap<FactKey, u64> = BTreeMap::new();
            self.change(&events, &mut |record| {
                let event = record.event;
                retried.insert(event, record.retry(|entry| filter.allows(event, entry), now));
            })?;
            count += retried.values().sum::<u64>();
            match records.last() {
                Some(last) => after = Some(last.event),
                None => return Ok(count),
            }
        }
    }
}

/// Chooses entries; `None` allows everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub endpoint: Option<EndpointId>,
    pub pid: Option<Pid>,
    pub event: Option<FactKey>,
    pub kind: Option<CallbackKind>,
    pub state: Option<EntryState>,
}

impl Filter {
    pub fn allows(&self, event: FactKey, entry: &OutboxEntry) -> bool {
        self.endpoint.as_ref().is_none_or(|endpoint| *endpoint == entry.endpoint)
            && self.pid.is_none_or(|pid| pid == event.pid)
            && self.event.is_none_or(|chosen| chosen == event)
            && self.kind.is_none_or(|kind| kind == entry.kind)
            && self.state.is_none_or(|state| state == entry.state)
    }
}

/// A part of the entries of an outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Each with its event. They can be a few more than the limit, because those of one event stay together.
    pub entries: Vec<(FactKey, OutboxEntry)>,
    /// Where the next part begins; `None` after the last.
    pub next: Option<FactKey>,
}
