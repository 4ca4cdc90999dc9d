//! Reads whole tables.

use attribution::facts::event::Family;
use hbase_client::{Row, Scan};

use super::SharedReader;
use crate::StoreError;
use crate::hbase::cluster::{Cluster, FAMILY};
use crate::hbase::ledger::cells::{Table, VALUE};
use crate::hbase::ledger::fact_record;
use crate::hbase::schema::tables;
use crate::layout::key::{FactTableKey, decode_fact};
use crate::reader::TouchScan;

/// Calls `visit` with each row of a table.
pub fn each_row(
    cluster: &Cluster,
    table: &str,
    mut visit: impl FnMut(&Row) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let table = cluster.client().table(table)?;
    let mut rows = cluster.wait(async { table.scan(Scan::all()) });
    while let Some(batch) = cluster.wait(rows.next_batch()) {
        batch?.iter().try_for_each(&mut visit)?;
    }
    Ok(())
}

impl SharedReader {
    /// See [`crate::reader::Reader::scan_touches`].
    pub(crate) fn scan_touches(&self, scan: &mut TouchScan<'_>) -> Result<(), StoreError> {
        let table = tables::name(self.cluster.prefix(), Table::Facts(Family::Touch));
        each_row(&self.cluster, &table, |row| {
            // The other rows have index entries.
            let Some(FactTableKey::FactRecord { pid, .. }) = decode_fact(row.key()) else {
                return Ok(());
            };
            // A replaced fact may outlive the record that replaced it.
            let Some(value) = row.value(FAMILY, VALUE) else { return Ok(()) };
            scan.visit(pid, fact_record::embedded_value(value)?)
        })
    }
}
