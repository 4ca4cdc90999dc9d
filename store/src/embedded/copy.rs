//! An embedded store as the source or the target of a copy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use attribution::facts::event::{EventTime, Family, Pid};
use attribution::ledger::Position;
use attribution::rules::policy::Policy;
use rocksdb::WriteBatch;

use super::Embedded;
use super::open::column_families::Limits;
use super::open::meta::{self, Meta};
use super::tables::Tables;
use super::write::{expiry_floor, rebuild_aggregates};
use crate::StoreError;
use crate::apps::names::Names;
use crate::apps::record::App;
use crate::expiry::floor::{ExpiryRecord, ExpiryRecords};
use crate::layout::key::{self, RowKey};
use crate::maintenance::copy_item::CopyItem;

/// A store that is open exclusively for a copy.
pub struct EmbeddedSide<'s> {
    tables: Tables,
    settings: &'s config::Store,
    /// The folder in which a target is built before it is renamed to its path.
    temporary_path: Option<PathBuf>,
}

impl<'s> EmbeddedSide<'s> {
    pub fn source(settings: &'s config::Store) -> Result<Self, StoreError> {
        let path = &settings.path;
        // Opened for writing, which locks the store.
        let tables = Tables::open_for_repair(path, settings.memory_bytes)?;
        Meta::load(&tables, path, settings.partitions)?;
        Ok(Self { tables, settings, temporary_path: None })
    }

    pub fn target(settings: &'s config::Store) -> Result<Self, StoreError> {
        let path = &settings.path;
        if path.read_dir().is_ok_and(|mut files| files.next().is_some()) {
            return Err(StoreError::NotEmpty { path: path.clone() });
        }
        let temporary_path = temporary_path(path);
        match std::fs::remove_dir_all(&temporary_path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::file("removed", &temporary_path)(error));
            }
            _ => {}
        }
        let tables = Tables::open(&temporary_path, settings.memory_bytes, &Limits::none())?;
        meta::create(&tables, settings.partitions)?;
        Ok(Self { tables, settings, temporary_path: Some(temporary_path) })
    }

    pub fn apps(&self) -> Result<BTreeMap<Pid, App>, StoreError> {
        Ok(meta::apps(&self.tables, self.settings.partitions)?.all())
    }

    pub fn positions(&self) -> Result<Vec<Position>, StoreError> {
        meta::positions(&self.tables)
    }

    pub fn names(&self) -> Result<Names, StoreError> {
        meta::names(&self.tables)
    }

    pub fn put_name(&mut self, pid: Pid, key: &str) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        meta::put_name(&mut batch, &self.tables, pid, key);
        Ok(self.tables.db.write(batch)?)
    }

    pub fn put_app(&mut self, pid: Pid, app: &App) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        meta::put_app(&mut batch, &self.tables, pid, app);
        Ok(self.tables.db.write(batch)?)
    }

    /// The expiry floors of all apps.
    pub fn expiry_floors(&self) -> Result<ExpiryRecords, StoreError> {
        let until = meta::consumed_until(&self.tables)?;
        expiry_floor::floors(
            &self.tables,
            Some(until).filter(|until| *until > EventTime::default()),
        )
    }

    pub fn put_expiry_record(&mut self, pid: Pid, record: &ExpiryRecord) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        expiry_floor::put(&mut batch, &self.tables, pid, record);
        Ok(self.tables.db.write(batch)?)
    }

    /// Calls `visit` with all facts, and with the rows that retention has not passed.
    pub fn each(
        &self,
        apps: &BTreeMap<Pid, App>,
        mut visit: impl FnMut(CopyItem) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for family in Family::ALL {
            self.tables.each_entry(self.tables.facts(family), |key, value| {
                let key = key.try_into().map_err(|_| StoreError::corrupt("a fact's key"))?;
                visit(CopyItem::Fact(family, key, value.to_vec()))
            })?;
        }
        self.tables.each_entry(self.tables.events(), |key, value| {
            let key = RowKey::decode(key).ok_or_else(|| StoreError::corrupt("a row's key"))?;
            let is_retained = apps.get(&key.pid).is_none_or(|app| key.event_time >= app.oldest);
            if is_retained { visit(CopyItem::Row(key, value.to_vec())) } else { Ok(()) }
        })
    }

    pub fn put(&mut self, items: Vec<CopyItem>) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        for item in items {
            match item {
                CopyItem::Fact(family, key, value) => {
                    batch.put_cf(self.tables.facts(family), key, value);
                }
                CopyItem::Column(..) => {
                    return Err(StoreError::corrupt(
                        "an HBase column in a copy for an embedded store",
                    ));
                }
                CopyItem::Row(key, value) => {
                    batch.put_cf(self.tables.events(), key.encode(), value);
                }
            }
        }
        Ok(self.tables.db.write(batch)?)
    }

    /// Rebuilds the aggregates of a target and renames it to its path.
    pub fn finish(self, positions: &[Position], policy: &Policy) -> Result<(), StoreError> {
        let Some(temporary_path) = self.temporary_path else { return Ok(()) };
        let mut batch = WriteBatch::default();
        for position in positions {
            let next_offset = position.next_offset.to_be_bytes();
            batch.put_cf(self.tables.offsets(), key::position(position), next_offset);
            meta::put_fingerprints(&mut batch, &self.tables, position);
        }
        self.tables.db.write(batch)?;
        rebuild_aggregates::all(&self.tables, self.settings)?;
        drop(self.tables);
        let path = self.settings.path.clone();
        let embedded = Embedded::open(
            &config::Store { path: temporary_path.clone(), ..self.settings.clone() },
            policy,
        )?;
        embedded.flush()?;
        drop(embedded);
        std::fs::rename(&temporary_path, &path).map_err(StoreError::file("moved", &temporary_path))
    }
}

/// The folder in which a target is built: in the same parent folder, so that the rename is atomic.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push("-copying");
    path.with_file_name(name)
}
