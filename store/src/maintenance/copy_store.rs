//! A store moved into an empty one of either kind, as it is: every fact with what was decided about it, every
//! entry that leads to one, every row. What is derived from these the new one makes itself.
//!
//! Both sides give out what they have in pieces; the sums over the pieces of either are compared in the end.

use std::collections::BTreeMap;

use attribution::facts::event::{EventTime, Family, Pid};
use attribution::ledger::Position;
use attribution::rules::policy::Policy;
use xxhash_rust::xxh3::xxh3_64;

use super::copy_piece::{CopyItem, Form};
use crate::StoreError;
use crate::apps::names::Names;
use crate::apps::spread::App;
use crate::clock::now;
use crate::embedded::copy::Moved as EmbeddedSide;
use crate::expiry::floor::{ExpiryRecord, ExpiryRecords};
use crate::expiry::retention;
use crate::hbase::copy::Moved as SharedSide;

/// So many pieces are written together.
const PIECES: usize = 2_000;

/// How much there is of a table, and a sum over all of it that does not depend on their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    pub count: u64,
    pub bytes: u64,
    sum: u64,
}

/// By the name of the table.
pub type Amounts = BTreeMap<&'static str, Amount>;

/// A side of a move.
enum Side<'s> {
    Embedded(EmbeddedSide<'s>),
    Shared(SharedSide<'s>),
}

/// A store that is moved, and is nobody else's meanwhile.
pub struct Source<'s> {
    side: Side<'s>,
    apps: BTreeMap<Pid, App>,
    names: Names,
    /// What has expired there may be there and may be gone.
    expired: ExpiryRecords,
}

impl<'s> Source<'s> {
    /// # Errors
    /// Where there is no such store, or another process has it.
    pub fn open(settings: &'s config::Store) -> Result<Self, StoreError> {
        let side = match &settings.hbase {
            Some(hbase) => Side::Shared(SharedSide::source(settings, hbase)?),
            None => Side::Embedded(EmbeddedSide::source(settings)?),
        };
        let (apps, names) = match &side {
            Side::Embedded(side) => (side.apps()?, side.names()?),
            Side::Shared(side) => (side.apps()?, side.names()?),
        };
        let expired = match &side {
            Side::Embedded(side) => side.expired()?,
            Side::Shared(side) => side.expired()?,
        };
        Ok(Self { side, apps, names, expired })
    }

    /// Those that the store keeps itself; those of a shared one are the consumer group's.
    ///
    /// # Errors
    /// The store's.
    pub fn positions(&self) -> Result<Option<Vec<Position>>, StoreError> {
        match &self.side {
            Side::Embedded(side) => side.positions().map(Some),
            Side::Shared(_) => Ok(None),
        }
    }
}

/// An empty store that takes what is moved. It is no store that opens until [`Target::finish`].
pub struct Target<'s> {
    side: Side<'s>,
    settings: &'s config::Store,
}

impl<'s> Target<'s> {
    /// # Errors
    /// Where it is not empty.
    pub fn open(settings: &'s config::Store) -> Result<Self, StoreError> {
        let side = match &settings.hbase {
            Some(hbase) => Side::Shared(SharedSide::target(settings, hbase)?),
            None => Side::Embedded(EmbeddedSide::target(settings)?),
        };
        Ok(Self { side, settings })
    }

    /// Takes all that the source has, and looks whether it is there.
    ///
    /// # Errors
    /// Those of either; [`StoreError::NotTheSame`] where it is not.
    pub fn fill(
        &mut self,
        source: &Source<'_>,
        mut progress: impl FnMut(u64),
    ) -> Result<Amounts, StoreError> {
        for (pid, app) in &source.apps {
            self.put_app(*pid, app)?;
        }
        for (pid, key) in &source.names {
            self.put_name(*pid, key)?;
        }
        for (pid, noted) in &source.expired {
            self.put_noted(*pid, noted)?;
        }
        let (mut given, mut pieces, mut done) = (Amounts::new(), Vec::with_capacity(PIECES), 0);
        let oldest = self.oldest(&source.apps);
        let form = match (&source.side, &self.side) {
            (Side::Shared(_), Side::Shared(_)) => Form::Columns,
            _ => Form::Plain,
        };
        each((&source.side, form), &source.apps, |piece| {
            // What the target would not keep stays where it is.
            if is_gone(&piece, &oldest) {
                return Ok(());
            }
            add(&mut given, &piece);
            pieces.push(piece);
            if pieces.len() < PIECES {
                return Ok(());
            }
            done += PIECES as u64;
            progress(done);
            self.put(std::mem::replace(&mut pieces, Vec::with_capacity(PIECES)))
        })?;
        self.put(pieces)?;
        let mut found = Amounts::new();
        each((&self.side, form), &source.apps, |piece| {
            if !is_gone(&piece, &oldest) {
                add(&mut found, &piece);
            }
            Ok(())
        })?;
        if found == given {
            return Ok(given);
        }
        let differs = |table: &&&str| found.get(**table) != given.get(**table);
        let tables: Vec<&str> = given.keys().chain(found.keys()).filter(differs).copied().collect();
        Err(StoreError::NotTheSame { tables: tables.join(", ") })
    }

    /// From now on it is a store, which goes on from the positions if it keeps them itself.
    ///
    /// # Errors
    /// Those of the store.
    pub fn finish(self, positions: &[Position], policy: &Policy) -> Result<(), StoreError> {
        match self.side {
            Side::Embedded(side) => side.finish(positions, policy),
            Side::Shared(side) => side.finish(),
        }
    }

    /// Before this rows of an app are not kept here.
    fn oldest(&self, apps: &BTreeMap<Pid, App>) -> BTreeMap<Pid, EventTime> {
        let now = now();
        let oldest = |pid: &Pid| retention::gone_before(self.settings.retention_of(*pid), now);
        apps.keys().map(|pid| (*pid, oldest(pid))).collect()
    }

    fn put_app(&mut self, pid: Pid, app: &App) -> Result<(), StoreError> {
        match &mut self.side {
            Side::Embedded(side) => side.put_app(pid, app),
            Side::Shared(side) => side.put_app(pid, app),
        }
    }

    fn put_name(&mut self, pid: Pid, key: &str) -> Result<(), StoreError> {
        match &mut self.side {
            Side::Embedded(side) => side.put_name(pid, key),
            Side::Shared(side) => side.put_name(pid, key),
        }
    }

    fn put_noted(&mut self, pid: Pid, noted: &ExpiryRecord) -> Result<(), StoreError> {
        match &mut self.side {
            Side::Embedded(side) => side.put_noted(pid, noted),
            Side::Shared(side) => side.put_noted(pid, noted),
        }
    }

    fn put(&mut self, pieces: Vec<CopyItem>) -> Result<(), StoreError> {
        match &mut self.side {
            Side::Embedded(side) => side.put(pieces),
            Side::Shared(side) => side.put(pieces),
        }
    }
}

fn each(
    (side, form): (&Side<'_>, Form),
    apps: &BTreeMap<Pid, App>,
    visit: impl FnMut(CopyItem) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    match side {
        Side::Embedded(side) => side.each(apps, visit),
        Side::Shared(side) => side.each(apps, form, visit),
    }
}

fn is_gone(piece: &CopyItem, oldest: &BTreeMap<Pid, EventTime>) -> bool {
    match piece {
        CopyItem::Fact(..) | CopyItem::Column(..) => false,
        CopyItem::Row(key, _) => {
            oldest.get(&key.pid).is_some_and(|oldest| key.event_time < *oldest)
        }
    }
}

fn add(amounts: &mut Amounts, piece: &CopyItem) {
    let (table, key, value) = match piece {
        CopyItem::Fact(family, key, value) => (table(*family), key.to_vec(), value),
        CopyItem::Column(family, key, column, value) => {
            (table(*family), [&key[..], column].concat(), value)
        }
        CopyItem::Row(key, value) => ("events", key.encode().to_vec(), value),
    };
    let amount = amounts.entry(table).or_default();
    amount.count += 1;
    amount.bytes += (key.len() + value.len()) as u64;
    amount.sum = amount.sum.wrapping_add(xxh3_64(&[&key[..], value].concat()));
}

fn table(family: Family) -> &'static str {
    match family {
        Family::Touch => "touches",
        Family::Activation => "activations",
        Family::Effect => "effects",
    }
}
