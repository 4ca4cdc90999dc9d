//! An embedded store as the source or the target of a copy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use attribution::facts::event::{Family, Pid};
use attribution::facts::match_keys;
use attribution::ledger::Position;
use attribution::rules::policy::Policy;
use rocksdb::WriteBatch;

use super::open::column_families::Limits;
use super::open::meta::{self, Meta};
use super::tables::Tables;
use super::touches::write::{TouchBatch, TouchWriter};
use super::write::received_md5::ReceivedMd5ByApp;
use super::write::{expiry_floor, rebuild_aggregates, unfinished};
use super::{Embedded, checkpoint, outbox};
use crate::StoreError;
use crate::apps::record::App;
use crate::expiry::Expiry;
use crate::layout::codec::fact_record;
use crate::layout::codec::touch::{TouchRef, split_contents};
use crate::layout::key::{self, FactTableKey, Key, RowKey};
use crate::layout::outbox::{self as outbox_keys, OutboxTableKey};
use crate::maintenance::copy_item::{CopyItem, Form, Metadata, StoreSide, Visit};

/// Contents whose references are looked up together.
const CONTENTS_PER_LOOKUP: usize = 1_000;

/// A number and the contents of a touch.
type Contents = (Box<[u8]>, Box<[u8]>);

/// A store that is open exclusively for a copy.
pub struct EmbeddedSide<'s> {
    tables: Tables,
    settings: &'s config::Store,
    touches: TouchWriter,
    /// Which ids the facts that were put into a target were received with as MD5.
    received_md5: ReceivedMd5ByApp,
    /// The folder in which a target is built before it is renamed to its path.
    temporary_path: Option<PathBuf>,
}

impl<'s> EmbeddedSide<'s> {
    pub fn source(settings: &'s config::Store) -> Result<Self, StoreError> {
        let path = &settings.path;
        // Opened for writing, which locks the store.
        let tables = Tables::open_for_repair(path, settings.memory_bytes)?;
        Meta::load(&tables, path, settings.partitions)?;
        if !unfinished::load(&tables)?.is_empty() {
            return Err(StoreError::Unfinished { path: path.clone() });
        }
        let touches = TouchWriter::open(&tables.db, &tables.touches)?;
        let received_md5 = ReceivedMd5ByApp::default();
        Ok(Self { tables, settings, touches, received_md5, temporary_path: None })
    }

    pub fn target(settings: &'s config::Store) -> Result<Self, StoreError> {
        let path = &settings.path;
        if path.read_dir().is_ok_and(|mut files| files.next().is_some()) {
            return Err(StoreError::NotEmpty { path: path.clone() });
        }
        let temporary_path = temporary_path(path);
        checkpoint::remove(&temporary_path)?;
        let tables = Tables::open(&temporary_path, settings.memory_bytes, &Limits::none())?;
        meta::create(&tables, settings.partitions)?;
        let touches = TouchWriter::open(&tables.db, &tables.touches)?;
        let received_md5 = ReceivedMd5ByApp::default();
        let temporary_path = Some(temporary_path);
        Ok(Self { tables, settings, touches, received_md5, temporary_path })
    }

    /// Visits the records of touches, and the index entries that lead to them.
    fn each_touch(&self, visit: Visit<'_>) -> Result<(), StoreError> {
        let until = meta::consumed_until(&self.tables)?;
        let expiry = Expiry::default();
        expiry.set_floors(&expiry_floor::floors(&self.tables, until)?);
        for table in self.tables.touches.all().iter() {
            for entry in self.tables.entries(&self.tables.table(&table.index)) {
                let (key, value) = entry?;
                let key: Key =
                    (*key).try_into().map_err(|_| StoreError::corrupt("a fact's key"))?;
                if !matches!(key::decode_fact(&key), Some(FactTableKey::FactRecord { .. })) {
                    visit(CopyItem::Fact(Family::Touch, key, value.into_vec()))?;
                }
            }
            let mut contents = self.tables.entries(&self.tables.table(&table.contents)).peekable();
            while contents.peek().is_some() {
                let part: Vec<Contents> =
                    contents.by_ref().take(CONTENTS_PER_LOOKUP).collect::<Result<_, _>>()?;
                self.each_of_contents(&table.index, &part, &expiry, &mut *visit)?;
            }
        }
        Ok(())
    }

    /// Visits the records among contents of a table. Contents without a reference are left out: a compaction removes
    /// the reference to an expired touch before or after its contents. The touch may have arrived again since, and is
    /// then stored elsewhere too.
    fn each_of_contents(
        &self,
        index: &str,
        contents: &[Contents],
        expiry: &Expiry,
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        let mut records = Vec::with_capacity(contents.len());
        for (number, value) in contents {
            let (pid, value) = split_contents(value)?;
            let record = fact_record::decode(Family::Touch, pid, value)?;
            let fact = match_keys::fact_key(record.id_space(), pid, record.id());
            records.push((number, key::record(&fact), value, expiry.has_expired(pid, &record)));
        }
        let keys: Vec<Key> = records.iter().map(|(_, key, ..)| *key).collect();
        let table = self.tables.table(index);
        let references = self.tables.db.batched_multi_get_cf(&table, &keys, false);
        for ((number, key, value, has_expired), reference) in records.into_iter().zip(references) {
            let reference = reference?.map(|value| TouchRef::decode(&value)).transpose()?;
            if reference.is_some_and(|touch| touch.number.to_be_bytes() == **number) {
                visit(CopyItem::Fact(Family::Touch, key, value.to_vec()))?;
            } else if !has_expired {
                return Err(StoreError::corrupt("a touch has no reference"));
            }
        }
        Ok(())
    }
}

impl StoreSide for EmbeddedSide<'_> {
    fn metadata(&self) -> Result<Metadata, StoreError> {
        let until = meta::consumed_until(&self.tables)?;
        Ok(Metadata {
            apps: meta::apps(&self.tables, self.settings.partitions)?.all(),
            names: meta::names(&self.tables)?,
            expiry_floors: expiry_floor::floors(&self.tables, until)?,
        })
    }

    fn positions(&self) -> Result<Option<Vec<Position>>, StoreError> {
        meta::positions(&self.tables).map(Some)
    }

    fn each(
        &self,
        apps: &BTreeMap<Pid, App>,
        _form: Form,
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        self.each_touch(&mut *visit)?;
        for family in [Family::Activation, Family::Effect] {
            for entry in self.tables.entries(&self.tables.facts(family)) {
                let (key, value) = entry?;
                let key = (*key).try_into().map_err(|_| StoreError::corrupt("a fact's key"))?;
                visit(CopyItem::Fact(family, key, value.into_vec()))?;
            }
        }
        for entry in self.tables.entries(&self.tables.events()) {
            let (key, value) = entry?;
            let key = RowKey::decode(&key).ok_or_else(|| StoreError::corrupt("a row's key"))?;
            if apps.get(&key.pid).is_none_or(|app| key.event_time >= app.oldest) {
                visit(CopyItem::Row(key, value.into_vec()))?;
            }
        }
        for entry in self.tables.entries(&self.tables.outbox()) {
            let (key, value) = entry?;
            let key = outbox_keys::decode(&key);
            match key.ok_or_else(|| StoreError::corrupt("an outbox key"))? {
                OutboxTableKey::Record(event) => visit(CopyItem::Outbox(event, value.into_vec()))?,
                OutboxTableKey::Due(..) | OutboxTableKey::Count(_) => {}
            }
        }
        Ok(())
    }

    fn put_metadata(&mut self, metadata: &Metadata) -> Result<(), StoreError> {
        let Metadata { apps, names, expiry_floors } = metadata;
        let (tables, mut batch) = (&self.tables, WriteBatch::default());
        apps.iter().for_each(|(pid, app)| meta::put_app(&mut batch, tables, *pid, app));
        names.iter().for_each(|(pid, key)| meta::put_name(&mut batch, tables, *pid, key));
        for (pid, record) in expiry_floors {
            expiry_floor::put(&mut batch, tables, *pid, record);
        }
        Ok(tables.db.write(batch)?)
    }

    fn put(&mut self, items: Vec<CopyItem>) -> Result<(), StoreError> {
        let (mut batch, mut touch_batch) = (WriteBatch::default(), WriteBatch::default());
        let mut touches = TouchBatch::new(&mut self.touches, &self.tables, &mut touch_batch);
        for item in items {
            match item {
                CopyItem::Fact(family, key, value) => {
                    let is_record = if let Some(FactTableKey::FactRecord { pid, .. }) =
                        key::decode_fact(&key)
                    {
                        let record = fact_record::decode(family, pid, &value)?;
                        self.received_md5.add(pid, &record, record.device_ids().received_md5());
                        true
                    } else {
                        false
                    };
                    match (family, is_record) {
                        (Family::Touch, true) => touches.put_record(&key, &value, None)?,
                        (Family::Touch, false) => touches.put_entry(&key, &value)?,
                        _ => batch.put_cf(&self.tables.facts(family), key, value),
                    }
                }
                CopyItem::Column(..) => {
                    return Err(StoreError::corrupt(
                        "an HBase column in a copy for an embedded store",
                    ));
                }
                CopyItem::Row(key, value) => {
                    batch.put_cf(&self.tables.events(), key.encode(), value);
                }
                CopyItem::Outbox(event, value) => {
                    outbox::put_copied(&mut batch, &self.tables, &event, &value)?;
                }
            }
        }
        touches.finish();
        self.tables.db.write(touch_batch)?;
        Ok(self.tables.db.write(batch)?)
    }

    /// Rebuilds the aggregates of a target and renames it to its path.
    fn finish(self: Box<Self>, positions: &[Position], policy: &Policy) -> Result<(), StoreError> {
        let Some(temporary_path) = self.temporary_path else { return Ok(()) };
        let mut batch = WriteBatch::default();
        for position in positions {
            let next_offset = position.next_offset.to_be_bytes();
            batch.put_cf(&self.tables.offsets(), key::position(position), next_offset);
            meta::put_fingerprints(&mut batch, &self.tables, position);
        }
        self.received_md5.put_changes(&mut batch, &self.tables);
        self.tables.db.write(batch)?;
        rebuild_aggregates::all(&self.tables, self.settings)?;
        drop(self.tables);
        let path = self.settings.path.clone();
        let embedded = Embedded::open(
            &config::Store { path: temporary_path.clone(), ..self.settings.clone() },
            policy,
        )?;
        // All commits must survive a power failure.
        embedded.tables.db.flush_wal(true)?;
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
