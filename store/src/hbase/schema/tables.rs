//! The tables of a store: how they are made, and whether they are as they should be.

use std::collections::HashMap;

use attribution::facts::event::{EventTime, Family as FactFamily, Pid};
use attribution::facts::keys::FactKey;
use attribution::ledger::record::FactRecord;
use attribution::rules::expiry::Needed;
use attribution::rules::policy::{DAY_MS, HOUR_MS, LOOKBACK_MAX_MS, Policy};
use foldhash::fast::FixedState;
use hbase_client::{Family, TableSpec};

use crate::hbase::ledger::cells::Table;

/// The tables with cells.
const TABLES: [Table; 4] = [
    Table::Events,
    Table::Facts(FactFamily::Touch),
    Table::Facts(FactFamily::Activation),
    Table::Facts(FactFamily::Effect),
];

/// So far behind a worker may be, in the time of the facts that it reads, and finds all that it needs.
pub const LAG_MS: u64 = 30 * DAY_MS;
/// So much longer than readers show them rows are kept.
const HIDDEN_MS: u64 = DAY_MS;

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

/// The table of what the store says of itself.
pub fn meta(prefix: &str) -> String {
    format!("{prefix}_meta")
}

/// Of all tables of a store, but that of what it says of itself.
pub fn names(prefix: &str) -> [String; TABLES.len()] {
    TABLES.map(|table| name(prefix, table))
}

/// How a table is made.
#[derive(Debug, Clone)]
pub struct Layout {
    pub spec: TableSpec,
    /// Where regions begin besides the first.
    pub splits: Vec<Vec<u8>>,
}

/// All tables of a store.
pub fn layouts(prefix: &str, kept: &Kept, partitions: u16) -> Vec<Layout> {
    let with_cells = TABLES.map(|table| Layout {
        spec: spec(name(prefix, table), family(table, kept)),
        splits: splits(table, partitions),
    });
    let own = Layout { spec: spec(meta(prefix), family_of("ROW")), splits: Vec::new() };
    with_cells.into_iter().chain([own]).collect()
}

/// How long what is in a table is kept, from a cell's time on; `None`: for ever. Cells of rows have the time
/// of their events, those of facts that of their writing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    rows_ms: Option<u64>,
    /// By [`FactFamily`]; of touches those that say for themselves how long they count.
    facts_ms: [Option<u64>; 3],
}

impl Kept {
    /// As long as the app of the settings that keeps most.
    pub fn new(settings: &config::Store, policy: &Policy) -> Self {
        let mut kept = Self { rows_ms: Some(0), facts_ms: [Some(0); 3] };
        let longest = |one: Option<u64>, other: Option<u64>| Some(one?.max(other?));
        for app in policy.apps() {
            let rows_ms = settings.retention_of(app.pid);
            let late_ms = app.correction_horizon_ms.or(rows_ms);
            let needed = late_ms.map(|late_ms| Needed::new(policy, app, late_ms));
            kept.rows_ms = longest(kept.rows_ms, rows_ms);
            for family in FactFamily::ALL {
                let mut own_ms =
                    needed.map(|needed| kept_ms(&needed, family, Some(LOOKBACK_MAX_MS)));
                if family != FactFamily::Touch {
                    // An id that returns is not a second event while its row is there.
                    own_ms = longest(own_ms, rows_ms);
                }
                let place = &mut kept.facts_ms[family as usize];
                *place = longest(*place, own_ms);
            }
        }
        kept.rows_ms = kept.rows_ms.map(|ms| ms.saturating_add(HIDDEN_MS));
        kept.facts_ms = kept.facts_ms.map(|ms| Some(ms?.saturating_add(LAG_MS)));
        kept
    }

    fn seconds(&self, table: Table) -> Option<u64> {
        let ms = match table {
            Table::Events => self.rows_ms,
            Table::Facts(family) => self.facts_ms[family as usize],
        };
        // HBase has no more seconds than that: for ever.
        ms.map(|ms| ms.div_ceil(HOUR_MS) * (HOUR_MS / 1000)).filter(|s| *s < i32::MAX as u64)
    }
}

/// How long each app's touches are kept: few say for themselves how long they count, and the table's own
/// limit is for those.
#[derive(Debug, Clone, Default)]
pub struct Ttls(HashMap<Pid, Needed, FixedState>);

impl Ttls {
    pub fn new(settings: &config::Store, policy: &Policy) -> Self {
        let needed = policy.apps().filter_map(|app| {
            let late_ms = app.correction_horizon_ms.or(settings.retention_of(app.pid))?;
            Some((app.pid, Needed::new(policy, app, late_ms)))
        });
        Self(needed.collect())
    }

    /// `None`: as long as the table says.
    pub fn of(&self, key: &FactKey, record: &FactRecord) -> Option<u64> {
        let FactRecord::Touch(touch) = record else { return None };
        let kept_ms = kept_ms(self.0.get(&key.pid)?, FactFamily::Touch, touch.lookback_ms);
        Some(kept_ms.saturating_add(LAG_MS))
    }
}

fn kept_ms(needed: &Needed, family: FactFamily, lookback_ms: Option<u64>) -> u64 {
    let end = EventTime::MAX;
    end.since(needed.oldest(family, lookback_ms, end)).unwrap_or(u64::MAX)
}

fn spec(name: String, family: Family) -> TableSpec {
    TableSpec::new(name).attribute("NORMALIZATION_ENABLED", "false").family(family)
}

fn family_of(bloom_filter: &str) -> Family {
    Family::new("d")
        .attribute("BLOOMFILTER", bloom_filter)
        .attribute("VERSIONS", "1")
        .attribute("DATA_BLOCK_ENCODING", "FAST_DIFF")
        .attribute("COMPRESSION", "GZ")
}

fn family(table: Table, kept: &Kept) -> Family {
    let family = match table {
        // Rows are scanned, facts are got.
        Table::Events => family_of("NONE"),
        Table::Facts(_) => family_of("ROW"),
    };
    match kept.seconds(table) {
        Some(seconds) => family.attribute("TTL", seconds.to_string()),
        None => family,
    }
}

/// At every partition, or evenly over hashes.
fn splits(table: Table, partitions: u16) -> Vec<Vec<u8>> {
    let count = match table {
        Table::Events => partitions,
        Table::Facts(_) => FACT_REGIONS,
    };
    let first = |part: u16| match table {
        Table::Events => part,
        Table::Facts(_) => (u32::from(part) * 65_536 / u32::from(count)) as u16,
    };
    (1..count).map(|part| first(part).to_be_bytes().to_vec()).collect()
}
