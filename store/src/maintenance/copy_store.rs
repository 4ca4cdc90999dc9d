//! Copies a store into an empty one of either kind: all facts with their decisions, index entries, rows and outbox
//! records. The target rebuilds derived data itself.
//!
//! Both sides are read as a sequence of items, whose checksums are compared at the end.

use std::collections::BTreeMap;

use attribution::facts::event::{EventTime, Pid};
use attribution::ledger::Position;
use attribution::rules::policy::Policy;
use xxhash_rust::xxh3::xxh3_64;

use super::copy_item::{CopyItem, Form, Metadata, StoreSide};
use crate::StoreError;
use crate::clock::now;
use crate::embedded::copy::EmbeddedSide;
use crate::embedded::open::column_families::{EVENTS, OUTBOX};
use crate::embedded::tables::Tables;
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

/// The store to copy. No other process may write to it meanwhile.
pub struct Source<'s> {
    side: Box<dyn StoreSide + 's>,
    settings: &'s config::Store,
    metadata: Metadata,
}

impl<'s> Source<'s> {
    /// Opens the configured store.
    ///
    /// # Errors
    /// If the store is missing, or another process has it open.
    pub fn open(settings: &'s config::Store) -> Result<Self, StoreError> {
        let side: Box<dyn StoreSide> = match &settings.hbase {
            Some(hbase) => Box::new(SharedSide::source(settings, hbase)?),
            None => Box::new(EmbeddedSide::source(settings)?),
        };
        let metadata = side.metadata()?;
        Ok(Self { side, settings, metadata })
    }

    /// The stored positions; `None` for a shared store, whose positions are the offsets of the consumer group.
    pub fn positions(&self) -> Result<Option<Vec<Position>>, StoreError> {
        self.side.positions()
    }
}

/// The store to fill, empty at first. It does not open as a store before [`Target::finish`].
pub struct Target<'s> {
    side: Box<dyn StoreSide + 's>,
    settings: &'s config::Store,
}

impl<'s> Target<'s> {
    /// Creates the target.
    ///
    /// # Errors
    /// If it is not empty.
    pub fn open(settings: &'s config::Store) -> Result<Self, StoreError> {
        let side: Box<dyn StoreSide> = match &settings.hbase {
            Some(hbase) => Box::new(SharedSide::target(settings, hbase)?),
            None => Box::new(EmbeddedSide::target(settings)?),
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
        let Metadata { apps, .. } = &source.metadata;
        self.side.put_metadata(&source.metadata)?;
        let (mut copied, mut items, mut done) =
            (Amounts::new(), Vec::with_capacity(ITEMS_PER_WRITE), 0);
        // Rows that the target would not retain are not copied.
        let (now, settings) = (now(), self.settings);
        let oldest = |pid: &Pid| (*pid, retention::cutoff(settings.retention_of(*pid), now));
        let oldest: BTreeMap<Pid, EventTime> = apps.keys().map(oldest).collect();
        let form = match (&source.settings.hbase, &settings.hbase) {
            (Some(_), Some(_)) => Form::Columns,
            _ => Form::Plain,
        };
        source.side.each(apps, form, &mut |item| {
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
            self.side.put(std::mem::replace(&mut items, Vec::with_capacity(ITEMS_PER_WRITE)))
        })?;
        self.side.put(items)?;
        let mut found = Amounts::new();
        self.side.each(apps, form, &mut |item| {
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
    pub fn finish(self, positions: &[Position], policy: &Policy) -> Result<(), StoreError> {
        self.side.finish(positions, policy)
    }
}

fn is_expired(item: &CopyItem, oldest: &BTreeMap<Pid, EventTime>) -> bool {
    match item {
        CopyItem::Fact(..) | CopyItem::Column(..) | CopyItem::Outbox(..) => false,
        CopyItem::Row(key, _) => {
            oldest.get(&key.pid).is_some_and(|oldest| key.event_time < *oldest)
        }
    }
}

fn add(amounts: &mut Amounts, item: &CopyItem) {
    let (table, key, value) = match item {
        CopyItem::Fact(family, key, value) => (Tables::name_of(*family), key.to_vec(), value),
        CopyItem::Column(family, key, column, value) => {
            (Tables::name_of(*family), [&key[..], column].concat(), value)
        }
        CopyItem::Row(key, value) => (EVENTS, key.encode().to_vec(), value),
        CopyItem::Outbox(key, value) => (OUTBOX, key.to_vec(), value),
    };
    let amount = amounts.entry(table).or_default();
    amount.count += 1;
    amount.bytes += (key.len() + value.len()) as u64;
    amount.checksum = amount.checksum.wrapping_add(xxh3_64(&[&key[..], value].concat()));
}
