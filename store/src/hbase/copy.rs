//! A store in HBase as the source or the target of a copy.

use std::collections::BTreeMap;

use attribution::facts::event::{EventTime, Family, Pid};
use attribution::ledger::Position;
use attribution::rules::policy::Policy;
use hbase_client::Row;

use super::cluster::{Cluster, FAMILY};
use super::ledger::cells::{Cells, Put as CellPut, Table, VALUE};
use super::ledger::{fact_record, join, row_time, split};
use super::outbox;
use super::read::rows::SharedRows;
use super::read::tables::each_row;
use super::schema::meta;
use super::schema::tables::{self, LAG_MS};
use super::store::Shared;
use crate::StoreError;
use crate::Timing;
use crate::apps::record::App;
use crate::clock::now;
use crate::layout::codec::row::RowView;
use crate::layout::key::{FactTableKey, KEY_BYTES, Key, decode_fact};
use crate::maintenance::copy_item::{CopyItem, Form, Metadata, StoreSide, Visit};

/// A store that is open for a copy. The caller must ensure that no worker writes to it meanwhile.
pub struct SharedSide<'s> {
    cluster: Cluster,
    settings: &'s config::Store,
}

impl<'s> SharedSide<'s> {
    pub fn source(settings: &'s config::Store, hbase: &config::HBase) -> Result<Self, StoreError> {
        let cluster = Shared::open(settings, hbase)?.into_cluster();
        Ok(Self { cluster, settings })
    }

    /// Opens existing tables that are empty or hold an interrupted copy.
    pub fn target(settings: &'s config::Store, hbase: &config::HBase) -> Result<Self, StoreError> {
        let cluster = Shared::open_incomplete(settings, hbase, Timing::default())?.into_cluster();
        let target = Self { cluster, settings };
        if !meta::is_copying(&target.cluster)? {
            for name in tables::names(target.cluster.prefix()) {
                if target.cluster.has_rows(&name)? {
                    let reason = "it already has rows, but the target of a copy must be empty: truncate all \
                                  tables with this prefix, or set another store.hbase.prefix";
                    return Err(StoreError::Unusable { table: name, reason: reason.into() });
                }
            }
            meta::begin_copying(&target.cluster)?;
        }
        Ok(target)
    }

    fn each_row(
        &self,
        table: Table,
        visit: impl FnMut(&Row) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        each_row(&self.cluster, &tables::name(self.cluster.prefix(), table), visit)
    }
}

impl StoreSide for SharedSide<'_> {
    fn metadata(&self) -> Result<Metadata, StoreError> {
        let until = Some(now().minus(LAG_MS));
        let records = meta::expiry_records(&self.cluster)?.into_iter();
        Ok(Metadata {
            apps: meta::apps(&self.cluster)?,
            names: meta::names(&self.cluster)?,
            expiry_floors: records.map(|(pid, record)| (pid, record.for_copy(until))).collect(),
        })
    }

    fn positions(&self) -> Result<Option<Vec<Position>>, StoreError> {
        Ok(None)
    }

    fn each(
        &self,
        apps: &BTreeMap<Pid, App>,
        form: Form,
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        for family in Family::ALL {
            self.each_row(Table::Facts(family), |row| {
                facts_of(family, row, form)?.into_iter().try_for_each(&mut *visit)
            })?;
        }
        for (pid, app) in apps {
            let partitions = app.partitions(self.settings.partitions);
            let all = EventTime::default()..EventTime::END;
            let mut rows = SharedRows::open(&self.cluster, *pid, partitions, all, None)?;
            while let Some((key, value)) = rows.current()? {
                visit(CopyItem::Row(key, value.to_vec()))?;
                rows.advance();
            }
        }
        self.each_row(Table::Outbox, |row| {
            let event: Key = row
                .key()
                .try_into()
                .map_err(|_| StoreError::corrupt("the key of an outbox record"))?;
            let value = row.value(FAMILY, VALUE).map(<[u8]>::to_vec);
            value.map_or(Ok(()), |value| visit(CopyItem::Outbox(event, value)))
        })
    }

    fn put_metadata(&mut self, metadata: &Metadata) -> Result<(), StoreError> {
        let Metadata { apps, names, expiry_floors } = metadata;
        apps.iter().try_for_each(|(pid, app)| meta::put_app(&self.cluster, *pid, app))?;
        names.iter().try_for_each(|(pid, key)| meta::put_name(&self.cluster, *pid, key))?;
        for (pid, record) in expiry_floors {
            meta::put_expiry_record(&self.cluster, *pid, record)?;
        }
        Ok(())
    }

    fn put(&mut self, items: Vec<CopyItem>) -> Result<(), StoreError> {
        let mut puts: BTreeMap<Table, Vec<CellPut>> = BTreeMap::new();
        for item in items {
            if let CopyItem::Outbox(event, value) = &item {
                let dues = outbox::put_copied_dues(event, value)?;
                puts.entry(Table::OutboxDue).or_default().extend(dues);
            }
            let (table, put) = match item {
                CopyItem::Fact(family, key, value) => {
                    (Table::Facts(family), put_fact(&key, value)?)
                }
                CopyItem::Column(family, key, column, value) => {
                    let row = key.to_vec();
                    (Table::Facts(family), CellPut { row, column, value, time: None, ttl_ms: None })
                }
                CopyItem::Row(key, value) => {
                    let time = Some(row_time(&key, RowView::decode(&value)?.revision));
                    let (row, column) = (key.encode().to_vec(), VALUE.to_vec());
                    (Table::Events, CellPut { row, column, value, time, ttl_ms: None })
                }
                CopyItem::Outbox(event, value) => {
                    let (row, column) = (event.to_vec(), VALUE.to_vec());
                    (Table::Outbox, CellPut { row, column, value, time: None, ttl_ms: None })
                }
            };
            puts.entry(table).or_default().push(put);
        }
        puts.into_iter().try_for_each(|(table, puts)| self.cluster.put(table, puts))
    }

    fn finish(
        self: Box<Self>,
        _positions: &[Position],
        _policy: &Policy,
    ) -> Result<(), StoreError> {
        meta::end_copying(&self.cluster)
    }
}

/// The fact record of a row, or the index entries of a match key. In the form of columns, a record keeps its replaced
/// rows and replaced facts. An embedded store cannot hold these, and is repaired after the copy.
fn facts_of(family: Family, row: &Row, form: Form) -> Result<Vec<CopyItem>, StoreError> {
    if row.key().len() == KEY_BYTES {
        let key =
            row.key().try_into().map_err(|_| StoreError::corrupt("the key of a fact record"))?;
        let column = |cell: &hbase_client::Cell| {
            CopyItem::Column(family, key, cell.qualifier().to_vec(), cell.value().to_vec())
        };
        if form == Form::Columns {
            return Ok(row.cells().iter().map(column).collect());
        }
        // A replaced fact may outlive the record that replaced it.
        let Some(value) = row.value(FAMILY, VALUE) else { return Ok(Vec::new()) };
        return Ok(vec![CopyItem::Fact(family, key, fact_record::embedded_value(value)?.to_vec())]);
    }
    let entry = |cell: &hbase_client::Cell| {
        let key = join(row.key(), cell.qualifier())?;
        Ok(CopyItem::Fact(family, key, cell.value().to_vec()))
    };
    row.cells().iter().map(entry).collect()
}

fn put_fact(key: &Key, value: Vec<u8>) -> Result<CellPut, StoreError> {
    let ((row, column), value) = match decode_fact(key) {
        Some(FactTableKey::FactRecord { .. }) => {
            ((key.to_vec(), VALUE.to_vec()), fact_record::from_embedded(&value))
        }
        Some(FactTableKey::Index { .. }) => (split(key), value),
        None => return Err(StoreError::corrupt("a fact's key")),
    };
    Ok(CellPut { row, column, value, time: None, ttl_ms: None })
}
