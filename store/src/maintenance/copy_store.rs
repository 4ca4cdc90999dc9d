//! Copies a store into an empty one of either kind: all facts with their decisions, index entries and rows. The target
//! rebuilds derived data itself.
//!
//! Both sides are read as a sequence of items, whose checksums are compared at the end.

use std::collections::BTreeMap;

use attribution::facts::event::{EventTime, Family, Pid};
use attribution::ledger::Position;
use attribution::rules::policy::Policy;
use xxhash_rust::xxh3::xxh3_64;

use super::copy_item::{CopyItem, Form};
use crate::StoreError;
use crate::apps::names::Names;
use crate::apps::record::App;
use crate::clock::now;
use crate::embedded::copy::EmbeddedSide;
use crate::expiry::floor::{ExpiryRecord, ExpiryRecords};
use crate::expiry::retention;
use crate::hbase::copy::SharedSide;

/// Items that are written together.
const ITEMS_PER_WRITE: usize = 2_000;

/// The size of a table, and a checksum of its items that does not depend on their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    pub count: u64,
    pub bytes: u64,
    checksum: u64,
}

/// Amounts by table name.
pub type Amounts = BTreeMap<&'static str, Amount>;

/// The source or the target of a copy.
enum Side<'s> {
    Embedded(EmbeddedSide<'s>),
    Shared(SharedSide<'s>),
}

/// The store to copy. No other process may write to it meanwhile.
pub struct Source<'s> {
    side: Side<'s>,
    apps: BTreeMap<Pid, App>,
    names: Names,
    /// Expired state may or may not have been removed, so its cutoffs become the floors of the target.
    expiry_floors: ExpiryRecords,
}

impl<'s> Source<'s> {
    /// Opens the configured store.
    ///
    /// # Errors
    /// If the store is missing, or another process has it open.
    pub fn open(settings: &'s config::Store) -> Result<Self, StoreError> {
        let side = match &settings.hbase {
            Some(hbase) => Side::Shared(SharedSide::source(settings, hbase)?),
            None => Side::Embedded(EmbeddedSide::source(settings)?),
        };
        let (apps, names) = match &side {
            Side::Embedded(side) => (side.apps()?, side.names()?),
            Side::Shared(side) => (side.apps()?, side.names()?),
        };
        let expiry_floors = match &side {
            Side::Embedded(side) => side.expiry_floors()?,
            Side::Shared(side) => side.expiry_floors()?,
        };
        Ok(Self { side, apps, names, expiry_floors })
    }

    /// The stored positions; `None` for a shared store, whose positions are the offsets of the consumer group.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn positions(&self) -> Result<Option<Vec<Position>>, StoreError> {
        match &self.side {
            Side::Embedded(side) => side.positions().map(Some),
            Side::Shared(_) => Ok(None),
        }
    }
}

/// The store to fill, empty at first. It does not open as a store before [`Target::finish`].
pub struct Target<'s> {
    side: Side<'s>,
    settings: &'s config::Store,
}

impl<'s> Target<'s> {
    /// Creates the target.
    ///
    /// # Errors
    /// If it is not empty.
    pub fn open(settings: &'s config::Store) -> Result<Self, StoreError> {
        let side = match &settings.hbase {
            Some(hbase) => Side::Shared(SharedSide::target(settings, hbase)?),
            None => Side::Embedded(EmbeddedSide::target(settings)?),
        };
        Ok(Self { side, settings })
    }

    /// Copies everything from the source, reads it back and compares it.
    ///
    /// # Errors
    /// Errors of both stores; [`StoreError::CopyDiffers`] if the copy differs from the source.
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
        for (pid, record) in &source.expiry_floors {
            self.put_expiry_record(*pid, record)?;
        }
        let (mut copied, mut items, mut done) =
            (Amounts::new(), Vec::with_capacity(ITEMS_PER_WRITE), 0);
        let oldest = self.oldest(&source.apps);
        let form = match (&source.side, &self.side) {
            (Side::Shared(_), Side::Shared(_)) => Form::Columns,
            _ => Form::Plain,
        };
        each((&source.side, form), &source.apps, |item| {
            // Rows that the target would not retain are not copied.
            if is_expired(&item, &oldest) {
                return Ok(());
            }
            add(&mut copied, &item);
            items.push(item);
            if items.len() < ITEMS_PER_WRITE {
                return Ok(());
            }
            done += ITEMS_PER_WRITE as u64;
            progress(done);
            self.put(std::mem::replace(&mut items, Vec::with_capacity(ITEMS_PER_WRITE)))
        })?;
        self.put(items)?;
        let mut found = Amounts::new();
        each((&self.side, form), &source.apps, |item| {
            if !is_expired(&item, &oldest) {
                add(&mut found, &item);
            }
            Ok(())
        })?;
        if found == copied {
            return Ok(copied);
        }
        let differs = |table: &&&str| found.get(**table) != copied.get(**table);
        let tables: Vec<&str> =
            copied.keys().chain(found.keys()).filter(differs).copied().collect();
        Err(StoreError::CopyDiffers { tables: tables.join(", ") })
    }

    /// Completes the copy, so that the target opens as a store. An embedded store resumes at `positions`.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn finish(self, positions: &[Position], policy: &Policy) -> Result<(), StoreError> {
        match self.side {
            Side::Embedded(side) => side.finish(positions, policy),
            Side::Shared(side) => side.finish(),
        }
    }

    /// The retention cutoff of each app in the target.
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

    fn put_expiry_record(&mut self, pid: Pid, record: &ExpiryRecord) -> Result<(), StoreError> {
        match &mut self.side {
            Side::Embedded(side) => side.put_expiry_record(pid, record),
            Side::Shared(side) => side.put_expiry_record(pid, record),
        }
    }

    fn put(&mut self, items: Vec<CopyItem>) -> Result<(), StoreError> {
        match &mut self.side {
            Side::Embedded(side) => side.put(items),
            Side::Shared(side) => side.put(items),
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

fn is_expired(item: &CopyItem, oldest: &BTreeMap<Pid, EventTime>) -> bool {
    match item {
        CopyItem::Fact(..) | CopyItem::Column(..) => false,
        CopyItem::Row(key, _) => {
            oldest.get(&key.pid).is_some_and(|oldest| key.event_time < *oldest)
        }
    }
}

fn add(amounts: &mut Amounts, item: &CopyItem) {
    let (table, key, value) = match item {
        CopyItem::Fact(family, key, value) => (table(*family), key.to_vec(), value),
        CopyItem::Column(family, key, column, value) => {
            (table(*family), [&key[..], column].concat(), value)
        }
        CopyItem::Row(key, value) => ("events", key.encode().to_vec(), value),
    };
    let amount = amounts.entry(table).or_default();
    amount.count += 1;
    amount.bytes += (key.len() + value.len()) as u64;
    amount.checksum = amount.checksum.wrapping_add(xxh3_64(&[&key[..], value].concat()));
}

fn table(family: Family) -> &'static str {
    match family {
        Family::Touch => "touches",
        Family::Activation => "activations",
        Family::Effect => "effects",
    }
}
