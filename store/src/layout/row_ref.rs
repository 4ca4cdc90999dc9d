//! References from fact records to their current rows.

use attribution::ledger::record::RowRef;
use attribution::rules::row::Row;

use super::summary_counts;

/// The reference to a row of `bytes` bytes, key and value.
pub fn row_ref(row: &Row, fanout_bits: u8, bytes: usize) -> RowRef {
    let (bytes, install_type) = (bytes as u32, row.install_type);
    RowRef { fanout_bits, bytes, install_type, fact_hash: fact_hash(row) }
}

pub fn fact_hash(row: &Row) -> u64 {
    summary_counts::fact_hash(&row.event_name, &row.currency, &row.revenue)
}
