//! The metadata of current rows in fact records.

use attribution::ledger::record::RowMeta;
use attribution::rules::row::Row;

use super::summary_counts;

/// The metadata of a row of `bytes` bytes, key and value.
pub fn row_meta(row: &Row, fanout_bits: u8, bytes: usize) -> RowMeta {
    let (bytes, install_type) = (bytes as u32, row.install_type);
    RowMeta { fanout_bits, bytes, install_type, fact_hash: fact_hash(row) }
}

pub fn fact_hash(row: &Row) -> u64 {
    summary_counts::fact_hash(&row.event_name, &row.currency, &row.revenue)
}
