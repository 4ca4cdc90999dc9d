//! The ledger over rows that are each atomic alone.
//!
//! Index entries, then homes; the home with the decision, then the row that shows it, then the row that
//! goes: so of two workers only one, by its home, comes to show a row of a revision, and whatever ends in
//! between is done by the redelivery that follows. Where each step stands, and why:
//! `docs/decisions/ledger-port.md`.

pub mod cells;
mod commit;
pub mod fact_record;
mod index_entries;

use std::collections::HashMap;

use attribution::facts::event::{EventTime, Fact, Family, Pid};
use attribution::facts::keys::FactKey;
use attribution::ledger::index::{IndexEntry, Scan};
use attribution::ledger::record::{FactRecord, Lookup};
use attribution::ledger::{DecisionWrite, FactWrite, Facts, Ledger, Position, Progress};
use attribution::rules::expiry::ExpiryFloor;
use attribution::rules::policy::Policy;
use foldhash::fast::FixedState;

use super::schema::tables::Ttls;
use crate::StoreError;
use crate::apps::spread::App;
use crate::clock::now;
use crate::expiry::Expiry;
use crate::expiry::floor::RetainedFloor;
use crate::layout::key::{self, Key};
use cells::{Cells, NOW, Page, Put, PutWhere, Table};
pub(super) use commit::row_time;
use index_entries::{entry, index_entry, own_entries, page};
pub(super) use index_entries::{join, split};

/// One worker's way to a store that others write, too.
pub struct SharedLedger<C> {
    cells: C,
    apps: HashMap<Pid, App, FixedState>,
    partitions: u16,
    lives: Ttls,
    /// What is held of what has expired: what expires by the settings is nobody's who reads Kafka, but
    /// the tables'.
    expiry: Expiry,
    /// The bytes of the homes that the batch under way has read, or put.
    read: HashMap<FactKey, Vec<u8>, FixedState>,
    /// Touches of the batch under way that were taken for new and are not.
    met: HashMap<FactKey, Collision, FixedState>,
}

/// What was put of a touch before its home was found taken.
struct Collision {
    entries: Vec<Put>,
    ttl_ms: Option<u64>,
}

impl<C> SharedLedger<C> {
    pub fn new(cells: C, apps: impl IntoIterator<Item = (Pid, App)>, partitions: u16) -> Self {
        let apps = apps.into_iter().collect();
        let (lives, expiry) = (Ttls::default(), Expiry::default());
        let (read, met) = (HashMap::default(), HashMap::default());
        Self { cells, apps, partitions, lives, expiry, read, met }
    }

    /// Whose touches go once nothing needs them.
    pub fn with_lives(self, lives: Ttls) -> Self {
        Self { lives, ..self }
    }

    /// With what is held of what has expired.
    pub(crate) fn with_expiry(self, expiry: Expiry) -> Self {
        Self { expiry, ..self }
    }

    /// State that expired by settings that are no longer, and by which it is not brought back.
    pub fn held_back(&self, policy: &Policy) -> Vec<RetainedFloor> {
        self.expiry.held_back(policy, Some(now()))
    }

    pub fn cells(&self) -> &C {
        &self.cells
    }
}

/// A home to be put.
struct NewRecord {
    key: FactKey,
    value: Vec<u8>,
    ttl_ms: Option<u64>,
}

impl<C: Cells> SharedLedger<C> {
    fn read_homes(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        let mut records = vec![None; keys.len()];
        for family in Family::ALL {
            let places: Vec<usize> =
                (0..keys.len()).filter(|place| keys[*place].family == family).collect();
            if places.is_empty() {
                continue;
            }
            let rows: Vec<Key> = places.iter().map(|place| key::record(&keys[*place])).collect();
            let values = self.cells.get(Table::Facts(family), &rows)?;
            for (place, value) in places.into_iter().zip(values) {
                let key = &keys[place];
                records[place] = match &value {
                    Some(value) => Some(fact_record::decode(family, key.pid, value)?.0),
                    None => None,
                };
                records[place].take_if(|record| self.expiry.has_expired(key.pid, record));
                if family != Family::Touch {
                    self.note(key, value);
                }
            }
        }
        Ok(records)
    }

    fn note(&mut self, key: &FactKey, value: Option<Vec<u8>>) {
        match value {
            Some(value) => self.read.insert(*key, value),
            None => self.read.remove(key),
        };
    }

    /// Entries lead nowhere until the home is put, so they come before it.
    fn put_entries(&mut self, facts: &[FactWrite]) -> Result<(), StoreError> {
        for family in Family::ALL {
            let of_family = facts.iter().filter(|write| write.key.family == family);
            let (mut kept, mut entries) = (Vec::new(), Vec::new());
            for write in of_family {
                let ttl_ms = self.lives.of(&write.key, &write.record);
                if let Some(fact) = &write.outgoing {
                    let (column, value) = fact_record::outgoing(fact);
                    let row = key::record(&write.key).to_vec();
                    kept.push(Put { row, column, value, time: None, ttl_ms });
                }
                entries.extend(own_entries(write, ttl_ms));
                for (found_by, IndexEntry { time, fact }) in &write.bucket_markers {
                    entries.push(entry(key::index(*found_by, fact, *time), fact.id.0, None));
                }
            }
            // What goes is kept before anything of what takes its place is there.
            if !kept.is_empty() {
                self.cells.put(Table::Facts(family), kept)?;
            }
            if !entries.is_empty() {
                self.cells.put(Table::Facts(family), entries)?;
            }
        }
        Ok(())
    }

    /// Puts homes that are still what was read; says of each whether it did.
    fn put_homes(&mut self, records: Vec<NewRecord>) -> Result<Vec<bool>, StoreError> {
        let mut is_put = vec![false; records.len()];
        for family in Family::ALL {
            let places: Vec<usize> =
                (0..records.len()).filter(|place| records[*place].key.family == family).collect();
            if places.is_empty() {
                continue;
            }
            let put = |place: &usize| {
                let NewRecord { key, value, ttl_ms } = &records[*place];
                let expected = self.read.get(key).cloned();
                let (row, value) = (key::record(key), value.clone());
                PutWhere { row, expected, value, ttl_ms: *ttl_ms }
            };
            let puts = places.iter().map(put).collect();
            for (place, taken) in
                places.iter().zip(self.cells.put_where(Table::Facts(family), puts)?)
            {
                is_put[*place] = taken;
            }
        }
        for (NewRecord { key, value, .. }, is_put) in records.into_iter().zip(&is_put) {
            // Of one that was not put nobody knows what stands there, and touches are put once in a batch.
            self.note(&key, Some(value).filter(|_| *is_put && key.family != Family::Touch));
        }
        Ok(is_put)
    }

    /// Those that lead to a fact that no home will be again.
    fn delete_entries(&mut self, stale: &[(Family, Key)]) -> Result<(), StoreError> {
        for family in Family::ALL {
            let of_family = stale.iter().filter(|(of, _)| *of == family);
            let gone = |(_, key): &(Family, Key)| {
                let (row, column) = split(key);
                cells::Gone { row, column, until: NOW }
            };
            let cells: Vec<cells::Gone> = of_family.map(gone).collect();
            if !cells.is_empty() {
                self.cells.delete(Table::Facts(family), cells)?;
            }
        }
        Ok(())
    }

    /// Entries that were put for a touch before its home was found taken may be those of the home, which has
    /// them kept as long as itself.
    fn lengthen(&mut self, key: &FactKey, record: &FactRecord) -> Result<(), StoreError> {
        let ttl_ms = self.lives.of(key, record);
        let Some(met) = self.met.get(key) else { return Ok(()) };
        let is_longer = met.ttl_ms.is_some_and(|ms| ttl_ms.is_none_or(|home_ms| home_ms > ms));
        if !is_longer {
            return Ok(());
        }
        let entries = met.entries.iter().cloned().map(|entry| Put { ttl_ms, ..entry });
        self.cells.put(Table::Facts(key.family), entries.collect())
    }
}

impl<C: Cells> Facts for SharedLedger<C> {
    type Error = StoreError;

    fn records(&mut self, keys: &[FactKey]) -> Result<Vec<Option<FactRecord>>, StoreError> {
        self.read_homes(keys)
    }

    fn scan(&mut self, scans: &[Scan]) -> Result<Vec<Vec<IndexEntry>>, StoreError> {
        let mut pages = vec![Vec::new(); scans.len()];
        for family in Family::ALL {
            let places: Vec<usize> = (0..scans.len())
                .filter(|place| scans[*place].family == family)
                .filter(|place| scans[*place].oldest <= scans[*place].newest)
                .collect();
            if places.is_empty() {
                continue;
            }
            let asked: Vec<Page> = places.iter().map(|place| page(&scans[*place])).collect();
            let found = self.cells.get_pages(Table::Facts(family), &asked)?;
            for ((place, asked), columns) in places.into_iter().zip(asked).zip(found) {
                let entry = |(column, value)| index_entry(family, &asked.row, column, value);
                pages[place] = columns.into_iter().map(entry).collect::<Result<_, _>>()?;
            }
        }
        Ok(pages)
    }

    /// No worker knows how far the others are. What nobody needs goes by the tables' time to live.
    fn consumed_until(&self) -> Option<EventTime> {
        None
    }

    fn expiry_floor(&self, pid: Pid) -> ExpiryFloor {
        self.expiry.floor(pid)
    }
}

impl<C: Cells> Ledger for SharedLedger<C> {
    const SHARED: bool = true;

    /// They are the group's.
    fn positions(&mut self) -> Result<Vec<Position>, StoreError> {
        Ok(Vec::new())
    }

    /// Touches are taken for new, as nearly all are: one whose home is taken is given back by
    /// [`Ledger::record`], and is looked at when it is asked for again.
    fn lookup(&mut self, keys: &[FactKey]) -> Result<Vec<Lookup>, StoreError> {
        let mut all = vec![Lookup::Missing; keys.len()];
        let is_read = |key: &FactKey| key.family != Family::Touch || self.met.contains_key(key);
        let read: Vec<usize> = (0..keys.len()).filter(|place| is_read(&keys[*place])).collect();
        for family in Family::ALL {
            let of_family = read.iter().copied().filter(|place| keys[*place].family == family);
            let places: Vec<usize> = of_family.collect();
            if places.is_empty() {
                continue;
            }
            let rows: Vec<Key> = places.iter().map(|place| key::record(&keys[*place])).collect();
            let columns = self.cells.get_rows(Table::Facts(family), &rows)?;
            for (place, columns) in places.into_iter().zip(columns) {
                let key = &keys[place];
                let (value, outgoing) = fact_record::read(family, key.pid, &columns)?;
                if let Some(value) = value {
                    let record = fact_record::decode(family, key.pid, value)?.0;
                    self.lengthen(key, &record)?;
                    all[place] = match self.expiry.known(key.pid, Some(record)) {
                        Lookup::Found(record) => known(record, outgoing),
                        expired => expired,
                    };
                }
                self.note(key, value.map(<[u8]>::to_vec));
            }
        }
        Ok(all)
    }

    fn record(&mut self, facts: Vec<FactWrite>) -> Result<Vec<FactWrite>, StoreError> {
        self.put_entries(&facts)?;
        let mut records = Vec::with_capacity(facts.len());
        for write in &facts {
            let stood = match self.read.get(&write.key) {
                Some(value) => Some(fact_record::decode(write.key.family, write.key.pid, value)?),
                None => None,
            };
            // Nothing that it takes the place of outlives it.
            let homes_of_it = [Some(&write.record), stood.as_ref().map(|(record, _)| record)];
            let lives =
                homes_of_it.into_iter().flatten().map(|record| self.lives.of(&write.key, record));
            let ttl_ms = lives.reduce(|one, other| Some(one?.max(other?))).flatten();
            let gone = stood.map(|(_, gone)| gone).unwrap_or_default();
            let value = fact_record::encode(&write.record, &gone);
            records.push(NewRecord { key: write.key, value, ttl_ms });
        }
        let is_put = self.put_homes(records)?;
        let (mut stale, mut lost) = (Vec::new(), Vec::new());
        for (write, is_put) in facts.into_iter().zip(is_put) {
            if is_put {
                let key = |(found_by, time): &(_, _)| key::index(*found_by, &write.key, *time);
                // A fact that takes the place of this one is not later: entries of a later time are of none that
                // will stand. One of the same time can have this entry too, and have put it by now.
                let gone = write.stale.iter().filter(|(_, time)| *time != write.record.time());
                stale.extend(gone.map(|one| (write.key.family, key(one))));
            } else {
                if write.key.family == Family::Touch {
                    let ttl_ms = self.lives.of(&write.key, &write.record);
                    let entries = own_entries(&write, ttl_ms).collect();
                    self.met.insert(write.key, Collision { entries, ttl_ms });
                }
                lost.push(write);
            }
        }
        self.delete_entries(&stale)?;
        Ok(lost)
    }

    fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        _progress: &Progress,
    ) -> Result<Vec<FactKey>, StoreError> {
        if decisions.is_empty() {
            // Nothing is left to decide in this batch.
            self.read.clear();
            self.met.clear();
            self.cells.settled();
            return Ok(Vec::new());
        }
        self.decide(decisions)
    }
}

/// One that still stands is about to be replaced, by whoever has put it there.
fn known(record: FactRecord, outgoing: Vec<Fact>) -> Lookup {
    let outgoing: Vec<Fact> = outgoing.into_iter().filter(|fact| !stands(fact, &record)).collect();
    if outgoing.is_empty() { Lookup::Found(record) } else { Lookup::Superseded(record, outgoing) }
}

fn stands(fact: &Fact, record: &FactRecord) -> bool {
    match (fact, record) {
        (Fact::Touch(fact), FactRecord::Touch(record)) => fact == record,
        (Fact::Activation(fact), FactRecord::Activation(record)) => **fact == record.fact,
        (Fact::Effect(fact), FactRecord::Effect(record)) => **fact == record.fact,
        _ => false,
    }
}
