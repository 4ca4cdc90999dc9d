//! What every store has from the port.

use std::convert::Infallible;

use super::*;
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
