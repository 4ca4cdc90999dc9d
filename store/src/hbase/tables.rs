//! The tables of a store: how they are made, and whether they are as they should be.

use attribution::event::Family as FactFamily;
use hbase_client::{Family, TableSpec};

use super::cells::Table;

/// The tables with cells.
pub const TABLES: [Table; 4] = [
    Table::Events,
    Table::Facts(FactFamily::Touch),
    Table::Facts(FactFamily::Activation),
    Table::Facts(FactFamily::Effect),
];

/// Regions that a table of facts begins with.
const FACT_REGIONS: u16 = 16;

pub fn name(prefix: &str, table: Table) -> String {
    let table = match table {
        Table::Events => "events",
        Table::Facts(FactFamily::Touch) => "touches",
        Table::Facts(FactFamily::Activation) => "activations",
        Table::Facts(FactFamily::Effect) => "effects",
    };
    format!("{prefix}_{table}")
}

/// How long what is in a table is kept, in seconds from a cell's time on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    pub rows_s: Option<u64>,
    pub touches_s: Option<u64>,
    pub events_s: Option<u64>,
}

pub fn spec(prefix: &str, table: Table, kept: &Kept) -> TableSpec {
    let family = Family::new("d")
        .attribute("VERSIONS", "1")
        .attribute("DATA_BLOCK_ENCODING", "FAST_DIFF")
        .attribute("COMPRESSION", "GZ");
    let family = match table {
        // Rows are scanned, facts are got.
        Table::Events => family.attribute("BLOOMFILTER", "NONE"),
        Table::Facts(_) => family.attribute("BLOOMFILTER", "ROW"),
    };
    let kept_s = match table {
        Table::Events => kept.rows_s,
        Table::Facts(FactFamily::Touch) => kept.touches_s,
        Table::Facts(_) => kept.events_s,
    };
    let family = match kept_s {
        Some(seconds) => family.attribute("TTL", seconds.to_string()),
        None => family,
    };
    TableSpec::new(name(prefix, table)).attribute("NORMALIZATION_ENABLED", "false").family(family)
}

/// Where regions begin besides the first: at every partition, or evenly over hashes.
pub fn splits(table: Table, partitions: u16) -> Vec<Vec<u8>> {
    let count = match table {
        Table::Events => partitions,
        Table::Facts(_) => FACT_REGIONS,
    };
    let first = |part: u16| match table {
        Table::Events => part.to_be_bytes(),
        Table::Facts(_) => ((u32::from(part) << 16) / u32::from(count)).to_be_bytes()[2..]
            .try_into()
            .unwrap_or_default(),
    };
    (1..count).map(|part| first(part).to_vec()).collect()
}
