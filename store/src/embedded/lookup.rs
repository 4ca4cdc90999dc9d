//! Finds facts that are pending, in flight or stored. Filters say of nearly all new ones that nothing is stored.

use attribution::facts::event::{EventTime, Family};
use attribution::facts::keys::FactKey;
use attribution::ledger::FactWrite;
use attribution::ledger::record::{FactRecord, Lookup};
use rocksdb::WriteBatch;

use super::Embedded;
use super::touches;
use super::touches::filter::KeyHash;
use super::touches::read::Place;
use super::touches::write::TouchBatch;
use crate::StoreError;
use crate::layout::{codec, key};

impl Embedded {
    /// Waits until the filters of touches that were stored when the store was opened are complete. Until then,
    /// searches ask more tables.
    pub fn wait_for_filters(&mut self) {
        self.filters.wait();
    }

    /// Adds the pending touches to the batch.
    pub(super) fn put_touches(&mut self, batch: &mut WriteBatch) -> Result<(), StoreError> {
        let is_new = |fact: &FactKey| !self.stored_touches.contains_key(fact);
        let unknown: Vec<FactKey> = self.pending.touches().filter(is_new).collect();
        let (db, tables) = (&*self.tables.db, &*self.tables.touches);
        let places = touches::read::places(db, tables, &unknown)?;
        self.stored_touches.extend(unknown.into_iter().zip(places));
        let mut touches = TouchBatch::new(&mut self.touches, &self.tables, batch);
        self.pending.put_touches(&mut touches, &self.stored_touches)?;
        touches.finish();
        self.stored_touches.clear();
        Ok(())
    }

    /// Looks up where those touches among the facts are stored that are not in flight, and remembers it until they are
    /// written. The filters know the touches in flight, so nearly all that they do not know are new.
    pub(super) fn find_touches(&mut self, facts: &[FactKey]) -> Result<(), StoreError> {
        let Self { in_flight, stored_touches, tables, .. } = &*self;
        let (db, touch_tables) = (&*tables.db, &*tables.touches);
        let is_unknown =
            |fact: &&FactKey| fact.family == Family::Touch && !stored_touches.contains_key(*fact);
        let is_in_flight =
            |fact: &FactKey| in_flight.get(fact.family, &key::record(fact)).is_some();
        let find = |facts: &[FactKey]| -> Result<Vec<(FactKey, Option<Place>)>, StoreError> {
            let unknown: Vec<FactKey> = facts.iter().filter(is_unknown).copied().collect();
            let may_be_written = touches::read::may_be_written(touch_tables, &unknown);
            let (mut written, mut new) = (Vec::new(), Vec::new());
            for (fact, may_be_written) in unknown.into_iter().zip(may_be_written) {
                if !may_be_written {
                    new.push((fact, None));
                } else if !is_in_flight(&fact) {
                    written.push(fact);
                }
            }
            let places = touches::read::places(db, touch_tables, &written)?;
            new.extend(written.into_iter().zip(places));
            Ok(new)
        };
        for found in self.parallelism.map(facts, find) {
            self.stored_touches.extend(found?);
        }
        Ok(())
    }

    /// [`attribution::ledger::Ledger::lookup`] after [`Embedded::find_touches`].
    pub(super) fn lookup_found(&self, keys: &[FactKey]) -> Result<Vec<Lookup>, StoreError> {
        // Nearly all touches are new: nothing is stored under their identity, so there is nothing to read.
        let is_new = |fact: &FactKey| {
            let is_pending = || self.pending.get(fact.family, &key::record(fact)).is_some();
            matches!(self.stored_touches.get(fact), Some(None)) && !is_pending()
        };
        let known: Vec<FactKey> = keys.iter().filter(|fact| !is_new(fact)).copied().collect();
        let mut stored = known.iter().zip(self.stored_records(&known)?).peekable();
        let lookup = |key: &FactKey| match stored.next_if(|(known, _)| *known == key) {
            Some((_, record)) => self.expiry.lookup(key.pid, record),
            None => Lookup::Missing,
        };
        Ok(keys.iter().map(lookup).collect())
    }

    /// Adds the keys under which an activation is found.
    pub(super) fn add_to_filter(&self, FactWrite { key, index, bucket_markers, .. }: &FactWrite) {
        let markers = bucket_markers.iter().map(|(found_by, _)| found_by);
        for found_by in index.iter().chain(markers) {
            let entry = key::index_from(*found_by, key.pid, EventTime::default());
            self.filters.activations.add(KeyHash::of(&entry));
        }
    }

    /// Returns records even if they have expired.
    pub(super) fn stored_records(
        &self,
        keys: &[FactKey],
    ) -> Result<Vec<Option<FactRecord>>, StoreError> {
        let unstored: Vec<Option<&[u8]>> = keys.iter().map(|fact| self.unstored(fact)).collect();
        let is_missing = |(_, value): &(&FactKey, &Option<&[u8]>)| value.is_none();
        let missing = keys.iter().zip(&unstored).filter(is_missing).map(|(fact, _)| *fact);
        let mut stored = self.tables.records(&missing.collect::<Vec<_>>())?.into_iter();
        let record = |(fact, value): (&FactKey, Option<&[u8]>)| match value {
            Some(value) => codec::fact_record::decode(fact.family, fact.pid, value).map(Some),
            None => Ok(stored.next().flatten()),
        };
        keys.iter().zip(unstored).map(record).collect()
    }

    /// The value of a record that is pending or in flight.
    fn unstored(&self, fact: &FactKey) -> Option<&[u8]> {
        let key = key::record(fact);
        let pending = self.pending.get(fact.family, &key);
        pending.or_else(|| self.in_flight.get(fact.family, &key))
    }
}
