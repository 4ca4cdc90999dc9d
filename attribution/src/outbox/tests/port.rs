//! What every store has from the port.

use std::convert::Infallible;

use super::*;
use crate::outbox::newest::{Cursor, Limits, newest};
use crate::outbox::port::{Filter, Outbox};
use crate::outbox::record::Counts;

/// An outbox that returns fewer records than there are, as a store does whose records expire.
struct ShortPages(Vec<OutboxRecord>);

impl Outbox for ShortPages {
    type Error = Infallible;

    fn due(
        &mut self,
        _: &EndpointId,
        _: EventTime,
        _: usize,
    ) -> Result<Vec<OutboxRecord>, Infallible> {
        Ok(Vec::new())
    }

    fn records_of(&mut self, _: &[FactKey]) -> Result<Vec<Option<OutboxRecord>>, Infallible> {
        Ok(Vec::new())
    }

    fn next_records(
        &mut self,
        after: Option<&FactKey>,
        limit: usize,
    ) -> Result<Vec<OutboxRecord>, Infallible> {
        let is_next = |record: &&OutboxRecord| after.is_none_or(|after| record.event > *after);
        Ok(self.0.iter().filter(is_next).take(limit.min(2)).cloned().collect())
    }

    fn change(
        &mut self,
        events: &[FactKey],
        change: &mut dyn FnMut(&mut OutboxRecord),
    ) -> Result<(), Infallible> {
        self.0.iter_mut().filter(|record| events.contains(&record.event)).for_each(change);
        Ok(())
    }

    fn counts(&mut self) -> Result<Counts, Infallible> {
        Ok(Counts::new())
    }
}

#[test]
fn short_pages_are_not_the_last_one() {
    let record = |id| {
        let mut record = OutboxRecord::new(FactKey { id: MatchKey(id), ..event() });
        record.plan(&activation("a", 1, 1), at(0));
        let now = at(SETTLE_MS);
        let claim = record.claim(&endpoint("a"), CallbackKind::Activation, now, LEASE_MS).unwrap();
        record.finish(&claim, &Outcome::Dead { note: "".into(), maybe_sent: false }, now);
        record
    };
    let mut outbox = ShortPages((1..=5).map(record).collect());
    let listing = outbox.list(&Filter::default(), None, 100).unwrap();
    assert_eq!((listing.entries.len(), listing.next), (5, None));
    assert_eq!(outbox.retry(&Filter::default(), at(SETTLE_MS)), Ok(5));
}

/// Returns the event and the endpoint of each entry of all pages.
fn pages(outbox: &mut ShortPages, filter: &Filter, limits: Limits) -> Vec<Vec<(u64, String)>> {
    let (mut cursor, mut pages) = (Some(Cursor::default()), Vec::new());
    while let Some(from) = cursor {
        let page = newest(outbox, filter, from, limits).unwrap();
        let entries = page.entries.iter();
        let names = entries.map(|(event, entry)| (event.id.0, entry.endpoint.as_str().to_owned()));
        pages.push(names.collect());
        cursor = page.next;
        assert!(pages.len() <= 20, "{pages:?}");
    }
    pages
}

#[test]
fn the_newest_entries_are_listed_first() {
    let record = |(id, changed_ms): (u64, u64)| {
        let mut record = OutboxRecord::new(FactKey { id: MatchKey(id), ..event() });
        for name in ["a", "b"] {
            record.plan(&activation(name, 1, 1), at(changed_ms));
        }
        record
    };
    let changes = [(1, 300), (2, 100), (3, 500), (4, 500), (5, 200), (6, 400)];
    let mut outbox = ShortPages(changes.map(record).into());
    let only_a = Filter { endpoint: Some(endpoint("a")), ..Filter::default() };
    let mut check = |filter: &Filter, entries: usize, records: usize, expected: &[&[u64]]| {
        let found = pages(&mut outbox, filter, Limits { entries, records });
        let ids = |page: &Vec<(u64, String)>| page.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!(found.iter().map(ids).collect::<Vec<_>>(), expected);
    };
    check(&only_a, 10, 100, &[&[3, 4, 6, 1, 5, 2]]);
    check(&only_a, 4, 100, &[&[3, 4, 6, 1], &[5, 2]]);
    check(&only_a, 6, 100, &[&[3, 4, 6, 1, 5, 2]]);
    check(&only_a, 1, 100, &[&[3], &[4], &[6], &[1], &[5], &[2]]);
    // Callbacks about one event that changed together stay together.
    check(&Filter::default(), 3, 100, &[&[3, 3, 4, 4], &[6, 6, 1, 1], &[5, 5, 2, 2]]);
    // Parts of four records.
    check(&only_a, 3, 4, &[&[3, 4, 1], &[2], &[6, 5]]);
    let none = Filter { endpoint: Some(endpoint("c")), ..Filter::default() };
    check(&none, 3, 4, &[&[], &[]]);
}
