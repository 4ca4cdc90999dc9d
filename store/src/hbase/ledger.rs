//! The ledger over rows that are each atomic alone.
//!
//! Index entries, then homes; the home with the decision, then the row that shows it, then the row that
//! goes: so of two workers only one, by its home, comes to show a row of a revision, and whatever ends in
//! between is done by the redelivery that follows. Where each step stands, and why:
//! `docs/decisions/ledger-port.md`.

use std::collections::HashMap;

use attribution::event::{EventTime, Fact, Family, Pid};
use attribution::expiry::Expired;
use attribution::ledger::{
    DecisionWrite, FactKey, FactWrite, Facts, Home, IndexEntry, Known, Ledger, Position, Present,
    Progress, Scan,
};
use attribution::policy::Policy;
use attribution::row::Row;
use foldhash::fast::FixedState;

use super::cells::{self, Cells, NOW, Page, Put, PutWhere, Table, VALUE};
use super::home::{self, Gone};
use super::tables::Lives;
use crate::StoreError;
use crate::app::App;
use crate::codec;
use crate::codec::row::RowView;
use crate::embedded::regions::now;
use crate::embedded::views;
use crate::expiry::Expiry;
use crate::held::HeldBack;
use crate::key::{self, FACT_PREFIX_BYTES, KEY_BYTES, Key, RowKey};

/// One worker's way to a store that others write, too.
pub struct SharedLedger<C> {
    cells: C,
    apps: HashMap<Pid, App, FixedState>,
    partitions: u16,
    lives: Lives,
    /// What is held of what has expired: what expires by the settings is nobody's who reads Kafka, but
    /// the tables'.
    expiry: Expiry,
    /// The bytes of the homes that the batch under way has read, or put.
    read: HashMap<FactKey, Vec<u8>, FixedState>,
    /// Touches of the batch under way that were taken for new and are not.
    met: HashMap<FactKey, Met, FixedState>,
}

/// What was put of a touch before its home was found taken.
struct Met {
    entries: Vec<Put>,
    ttl_ms: Option<u64>,
}

impl<C> SharedLedger<C> {
    pub fn new(cells: C, apps: impl IntoIterator<Item = (Pid, App)>, partitions: u16) -> Self {
        let apps = apps.into_iter().collect();
        let (lives, expiry) = (Lives::default(), Expiry::default());
        let (read, met) = (HashMap::default(), HashMap::default());
        Self { cells, apps, partitions, lives, expiry, read, met }
    }

    /// Whose touches go once nothing needs them.
    pub fn with_lives(self, lives: Lives) -> Self {
        Self { lives, ..self }
    }

    /// With what is held of what has expired.
    pub(crate) fn with_expiry(self, expiry: Expiry) -> Self {
        Self { expiry, ..self }
    }

    /// State that expired by settings that are no longer, and by which it is not brought back.
    pub fn held_back(&self, policy: &Policy) -> Vec<HeldBack> {
        self.expiry.held_back(policy, Some(now()))
    }

    pub fn cells(&self) -> &C {
        &self.cells
    }

    fn row_key(&self, row: &Row, fan_bits: u8) -> RowKey {
        let base = self.apps.get(&row.pid).map_or(0, |app| app.base);
        RowKey {
            partition: key::row_partition(base, row.seq, fan_bits, self.partitions),
            pid: row.pid,
            event_time: row.event_time,
            spreadid: row.spreadid,
            seq: row.seq,
        }
    }

    /// Where the row was that a decision replaces.
    fn gone(&self, row: &Row, replaced: &Present) -> Gone {
        let key = self.row_key(row, replaced.place.fan_bits);
        let row = RowKey { event_time: replaced.event_time, spreadid: replaced.spreadid, ..key };
        Gone { row, revision: replaced.revision }
    }
}

/// A home to be put.
struct NewHome {
    key: FactKey,
    value: Vec<u8>,
    ttl_ms: Option<u64>,
}

/// When a row was decided on: later decisions hide earlier ones, and all expire by the event's age.
pub(super) fn row_time(row: &RowKey, revision: u32) -> u64 {
    row.event_time.millis().saturating_add(u64::from(revision))
}

impl<C: Cells> SharedLedger<C> {
    fn read_homes(&mut self, keys: &[FactKey]) -> Result<Vec<Option<Home>>, StoreError> {
        let mut homes = vec![None; keys.len()];
        for family in Family::ALL {
            let places: Vec<usize> =
                (0..keys.len()).filter(|place| keys[*place].family == family).collect();
            if places.is_empty() {
                continue;
            }
            let rows: Vec<Key> = places.iter().map(|place| key::home(&keys[*place])).collect();
            let values = self.cells.get(Table::Facts(family), &rows)?;
            for (place, value) in places.into_iter().zip(values) {
                let key = &keys[place];
                homes[place] = match &value {
                    Some(value) => Some(home::decode(family, key.pid, value)?.0),
                    None => None,
                };
                homes[place].take_if(|home| self.expiry.has_expired(key.pid, home));
                if family != Family::Touch {
                    self.note(key, value);
                }
            }
        }
        Ok(homes)
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
                let ttl_ms = self.lives.of(&write.key, &write.home);
                if let Some(fact) = &write.outgoing {
                    let (column, value) = home::outgoing(fact);
                    let row = key::home(&write.key).to_vec();
                    kept.push(Put { row, column, value, time: None, ttl_ms });
                }
                entries.extend(own_entries(write, ttl_ms));
                for (found_by, IndexEntry { time, fact }) in &write.marks {
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
    fn put_homes(&mut self, homes: Vec<NewHome>) -> Result<Vec<bool>, StoreError> {
        let mut is_put = vec![false; homes.len()];
        for family in Family::ALL {
            let places: Vec<usize> =
                (0..homes.len()).filter(|place| homes[*place].key.family == family).collect();
            if places.is_empty() {
                continue;
            }
            let put = |place: &usize| {
                let NewHome { key, value, ttl_ms } = &homes[*place];
                let expected = self.read.get(key).cloned();
                let (row, value) = (key::home(key), value.clone());
                PutWhere { row, expected, value, ttl_ms: *ttl_ms }
            };
            let puts = places.iter().map(put).collect();
            for (place, taken) in
                places.iter().zip(self.cells.put_where(Table::Facts(family), puts)?)
            {
                is_put[*place] = taken;
            }
        }
        for (NewHome { key, value, .. }, is_put) in homes.into_iter().zip(&is_put) {
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

    fn delete_rows(&mut self, gone: Vec<Gone>) -> Result<(), StoreError> {
        if gone.is_empty() {
            return Ok(());
        }
        let cell = |Gone { row, revision }: Gone| {
            let until = row_time(&row, revision);
            cells::Gone { row: row.encode().to_vec(), column: VALUE.to_vec(), until }
        };
        self.cells.delete(Table::Events, gone.into_iter().map(cell).collect())
    }

    /// Entries that were put for a touch before its home was found taken may be those of the home, which has
    /// them kept as long as itself.
    fn lengthen(&mut self, key: &FactKey, home: &Home) -> Result<(), StoreError> {
        let ttl_ms = self.lives.of(key, home);
        let Some(met) = self.met.get(key) else { return Ok(()) };
        let is_longer = met.ttl_ms.is_some_and(|ms| ttl_ms.is_none_or(|home_ms| home_ms > ms));
        if !is_longer {
            return Ok(());
        }
        let entries = met.entries.iter().cloned().map(|entry| Put { ttl_ms, ..entry });
        self.cells.put(Table::Facts(key.family), entries.collect())
    }

    /// The home that a decision is compared with, if it was made from just that.
    fn standing(&self, write: &DecisionWrite) -> Result<Option<Vec<Gone>>, StoreError> {
        let Some(value) = self.read.get(&write.key) else { return Ok(None) };
        let (stored, gone) = home::decode(write.key.family, write.key.pid, value)?;
        Ok(is_as_read(&stored, write).then_some(gone))
    }
}

/// All entries of a match key and app are columns of one row: a page of them is one get, and gets of many
/// rows are one call to each server.
pub(super) fn split(key: &Key) -> (Vec<u8>, Vec<u8>) {
    let (row, column) = key.split_at(FACT_PREFIX_BYTES);
    (row.to_vec(), column.to_vec())
}

pub(super) fn join(row: &[u8], column: &[u8]) -> Result<Key, StoreError> {
    [row, column].concat().try_into().map_err(|_| StoreError::corrupt("an index entry"))
}

/// Those that the fact is found by.
fn own_entries(write: &FactWrite, ttl_ms: Option<u64>) -> impl Iterator<Item = Put> {
    let lookback_ms = match &write.home {
        Home::Touch(touch) => touch.lookback_ms,
        _ => None,
    };
    let time = write.home.time();
    write.index.iter().map(move |found_by| {
        let key = key::index(*found_by, &write.key, time);
        Put { ttl_ms, ..entry(key, write.key.id.0, lookback_ms) }
    })
}

fn entry(key: Key, id: u64, lookback_ms: Option<u64>) -> Put {
    let mut value = Vec::new();
    codec::put_index_value(&mut value, id, lookback_ms);
    let (row, column) = split(&key);
    Put { row, column, value, time: None, ttl_ms: None }
}

/// Whether nobody has decided about the event, or replaced its fact, since it was read.
fn is_as_read(stored: &Home, write: &DecisionWrite) -> bool {
    let is_same_fact = match (stored, &write.home) {
        (Home::Activation(stored), Home::Activation(home)) => stored.fact == home.fact,
        (Home::Effect(stored), Home::Effect(home)) => stored.fact == home.fact,
        _ => false,
    };
    let revision = |present: Option<&Present>| present.map(|one| one.revision);
    is_same_fact && revision(stored.present()) == revision(write.replaced.as_ref())
}

impl<C: Cells> Facts for SharedLedger<C> {
    type Error = StoreError;

    fn homes(&mut self, keys: &[FactKey]) -> Result<Vec<Option<Home>>, StoreError> {
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

    fn held(&self, pid: Pid) -> Expired {
        self.expiry.held(pid)
    }
}

fn page(scan: &Scan) -> Page {
    let first = match &scan.after {
        Some(entry) => {
            let last = key::index(scan.key, &entry.fact, entry.time);
            key::next(&last).unwrap_or([u8::MAX; KEY_BYTES])
        }
        None => key::index_from(scan.key, scan.pid, scan.newest),
    };
    let (row, first) = split(&first);
    let end = key::index_end_column(scan.oldest);
    Page { row, columns: first..end, limit: scan.limit }
}

fn index_entry(
    family: Family,
    row: &[u8],
    column: Vec<u8>,
    value: Vec<u8>,
) -> Result<IndexEntry, StoreError> {
    let damage = || StoreError::corrupt("an index entry");
    key::decode_index(family, &join(row, &column)?, codec::index_id(&value)?).ok_or_else(damage)
}

impl<C: Cells> Ledger for SharedLedger<C> {
    const SHARED: bool = true;

    /// They are the group's.
    fn positions(&mut self) -> Result<Vec<Position>, StoreError> {
        Ok(Vec::new())
    }

    /// Touches are taken for new, as nearly all are: one whose home is taken is given back by
    /// [`Ledger::record`], and is looked at when it is asked for again.
    fn known(&mut self, keys: &[FactKey]) -> Result<Vec<Known>, StoreError> {
        let mut all = vec![Known::Nothing; keys.len()];
        let is_read = |key: &FactKey| key.family != Family::Touch || self.met.contains_key(key);
        let read: Vec<usize> = (0..keys.len()).filter(|place| is_read(&keys[*place])).collect();
        for family in Family::ALL {
            let of_family = read.iter().copied().filter(|place| keys[*place].family == family);
            let places: Vec<usize> = of_family.collect();
            if places.is_empty() {
                continue;
            }
            let rows: Vec<Key> = places.iter().map(|place| key::home(&keys[*place])).collect();
            let columns = self.cells.get_rows(Table::Facts(family), &rows)?;
            for (place, columns) in places.into_iter().zip(columns) {
                let key = &keys[place];
                let (value, outgoing) = home::read(family, key.pid, &columns)?;
                if let Some(value) = value {
                    let home = home::decode(family, key.pid, value)?.0;
                    self.lengthen(key, &home)?;
                    all[place] = match self.expiry.known(key.pid, Some(home)) {
                        Known::Home(home) => known(home, outgoing),
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
        let mut homes = Vec::with_capacity(facts.len());
        for write in &facts {
            let stood = match self.read.get(&write.key) {
                Some(value) => Some(home::decode(write.key.family, write.key.pid, value)?),
                None => None,
            };
            // Nothing that it takes the place of outlives it.
            let homes_of_it = [Some(&write.home), stood.as_ref().map(|(home, _)| home)];
            let lives =
                homes_of_it.into_iter().flatten().map(|home| self.lives.of(&write.key, home));
            let ttl_ms = lives.reduce(|one, other| Some(one?.max(other?))).flatten();
            let gone = stood.map(|(_, gone)| gone).unwrap_or_default();
            let value = home::encode(&write.home, &gone);
            homes.push(NewHome { key: write.key, value, ttl_ms });
        }
        let is_put = self.put_homes(homes)?;
        let (mut stale, mut lost) = (Vec::new(), Vec::new());
        for (write, is_put) in facts.into_iter().zip(is_put) {
            if is_put {
                let key = |(found_by, time): &(_, _)| key::index(*found_by, &write.key, *time);
                // What is set by the same write stays.
                let is_own = |(found_by, time): &&(_, _)| {
                    *time == write.home.time() && write.index.contains(found_by)
                };
                let gone = write.stale.iter().filter(|one| !is_own(one));
                stale.extend(gone.map(|one| (write.key.family, key(one))));
            } else {
                if write.key.family == Family::Touch {
                    let ttl_ms = self.lives.of(&write.key, &write.home);
                    let entries = own_entries(&write, ttl_ms).collect();
                    self.met.insert(write.key, Met { entries, ttl_ms });
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
            return Ok(Vec::new());
        }
        let mut plan = Plan::default();
        for write in decisions {
            self.plan(write, &mut plan)?;
        }
        let Plan { mut shows, mut rows, mut after, mut lost } = plan;
        self.delete_noted(&mut shows)?;
        let parts = |show: Show| {
            let gone = show.gone();
            let Show { key, home, row, .. } = show;
            let value = home::encode(&home, &gone);
            (NewHome { key, value, ttl_ms: None }, (key, row, gone))
        };
        let (homes, shown): (Vec<_>, Vec<_>) = shows.into_iter().map(parts).unzip();
        let is_put = self.put_homes(homes)?;
        for ((key, row, gone), is_put) in shown.into_iter().zip(is_put) {
            if is_put {
                rows.push(row);
                after.extend(gone);
            } else {
                lost.push(key);
            }
        }
        if !rows.is_empty() {
            self.cells.put(Table::Events, rows)?;
        }
        self.delete_rows(after)?;
        Ok(lost)
    }
}

/// What a commit does.
#[derive(Default)]
struct Plan {
    shows: Vec<Show>,
    /// Of decisions that stand.
    rows: Vec<Put>,
    /// Rows to delete once all others are put.
    after: Vec<Gone>,
    /// Decisions that were made from something else.
    lost: Vec<FactKey>,
}

/// A home to put, then its row, and then to delete the rows that go.
struct Show {
    key: FactKey,
    home: Home,
    row: Put,
    /// Rows that the standing home tells of.
    noted: Vec<Gone>,
    /// That of the decision that is replaced.
    replaced: Option<Gone>,
}

impl Show {
    /// What the new home tells of. A row at the place of the new one is written over.
    fn gone(&self) -> Vec<Gone> {
        let goes = |gone: &&Gone| gone.row.encode()[..] != self.row.row[..];
        self.noted.iter().chain(&self.replaced).filter(goes).copied().collect()
    }
}

impl<C: Cells> SharedLedger<C> {
    fn plan(&self, mut write: DecisionWrite, plan: &mut Plan) -> Result<(), StoreError> {
        let Some(noted) = self.standing(&write)? else {
            plan.lost.push(write.key);
            return Ok(());
        };
        if let (true, Some(present)) = (write.is_again(), write.replaced) {
            let key = self.row_key(&write.row, present.place.fan_bits);
            plan.after.extend(noted.into_iter().filter(|gone| gone.row != key));
            plan.rows.push(put_row(&key, &write.row));
            return Ok(());
        }
        // Of partitions no two are read at one moment, so rows of an event stay in one, whatever the fan is by now.
        let fan_bits = match &write.replaced {
            Some(replaced) => replaced.place.fan_bits,
            None => self.apps.get(&write.row.pid).map_or(0, |app| app.fan_bits),
        };
        let key = self.row_key(&write.row, fan_bits);
        let row = put_row(&key, &write.row);
        if let Some(present) = write.home.present_mut() {
            present.place = views::row_place(&write.row, fan_bits, KEY_BYTES + row.value.len());
        }
        let replaced = write.replaced.as_ref().map(|replaced| self.gone(&write.row, replaced));
        plan.shows.push(Show { key: write.key, home: write.home, row, noted, replaced });
        Ok(())
    }

    /// Deletes what homes told of where the row that took its place is really there. Where it is not, as
    /// its writer ended before it, what they told of may be all that there is of the event: it stays until
    /// the new row stands, and the new home tells of it too.
    fn delete_noted(&mut self, shows: &mut [Show]) -> Result<(), StoreError> {
        let asked = |show: &&mut Show| !show.noted.is_empty() && show.replaced.is_some();
        let shows: Vec<&mut Show> = shows.iter_mut().filter(asked).collect();
        if shows.is_empty() {
            return Ok(());
        }
        let rows: Vec<Gone> = shows.iter().filter_map(|show| show.replaced).collect();
        let keys: Vec<Key> = rows.iter().map(|gone| gone.row.encode()).collect();
        let found = self.cells.get(Table::Events, &keys)?;
        let mut deleted = Vec::new();
        for ((show, replaced), found) in shows.into_iter().zip(rows).zip(found) {
            if is_there(&replaced, found.as_deref())? {
                let noted = std::mem::take(&mut show.noted);
                deleted.extend(noted.into_iter().filter(|gone| gone.row != replaced.row));
            }
        }
        self.delete_rows(deleted)
    }
}

/// Whether a row is the one of that revision.
fn is_there(of: &Gone, row: Option<&[u8]>) -> Result<bool, StoreError> {
    let revision = row.map(|row| RowView::decode(row).map(|row| row.revision)).transpose()?;
    Ok(revision.is_some_and(|revision| revision >= of.revision))
}

fn put_row(key: &RowKey, row: &Row) -> Put {
    let mut value = Vec::with_capacity(384);
    codec::row::encode(row, &mut value);
    let time = Some(row_time(key, row.revision));
    Put { row: key.encode().to_vec(), column: VALUE.to_vec(), value, time, ttl_ms: None }
}

/// One that still stands is about to be replaced, by whoever has put it there.
fn known(home: Home, outgoing: Vec<Fact>) -> Known {
    let outgoing: Vec<Fact> = outgoing.into_iter().filter(|fact| !stands(fact, &home)).collect();
    if outgoing.is_empty() { Known::Home(home) } else { Known::Replaced(home, outgoing) }
}

fn stands(fact: &Fact, home: &Home) -> bool {
    match (fact, home) {
        (Fact::Touch(fact), Home::Touch(home)) => fact == home,
        (Fact::Activation(fact), Home::Activation(home)) => **fact == home.fact,
        (Fact::Effect(fact), Home::Effect(home)) => **fact == home.fact,
        _ => false,
    }
}
