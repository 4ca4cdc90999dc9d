//! The layout of the tables of a store in HBase, derived from the settings.

use attribution::facts::event::{EventTime, Family as FactFamily};
use attribution::facts::keys::FactKey;
use attribution::ledger::record::FactRecord;
use attribution::outbox::KEPT_MS;
use attribution::rules::expiry::Needed;
use attribution::rules::policy::{DAY_MS, HOUR_MS, LOOKBACK_MAX_MS, Policy};
use hbase_client::{Family, TableSpec};

use crate::expiry::Expiry;
use crate::hbase::ledger::cells::Table;

/// All tables except `meta`.
const TABLES: [Table; 6] = [
    Table::Events,
    Table::Facts(FactFamily::Touch),
    Table::Facts(FactFamily::Activation),
    Table::Facts(FactFamily::Effect),
    Table::Outbox,
    Table::OutboxDue,
];

/// How far a worker may lag, by the time of the facts that it reads, and still find all state that it needs.
pub const LAG_MS: u64 = 30 * DAY_MS;
/// How much longer rows are kept than readers return them.
const HIDDEN_MS: u64 = DAY_MS;

/// How long outbox records are kept after their last change, also if an entry is pending.
const OUTBOX_MS: u64 = 2 * KEPT_MS;

/// Initial number of regions of a table of facts.
const FACT_REGIONS: u16 = 16;
/// Initial number of regions of a table of the outbox.
const OUTBOX_REGIONS: u16 = 4;

pub fn name(prefix: &str, table: Table) -> String {
    let table = match table {
        Table::Events => "events",
        Table::Facts(FactFamily::Touch) => "touches",
        Table::Facts(FactFamily::Activation) => "activations",
        Table::Facts(FactFamily::Effect) => "effects",
        Table::Outbox => "outbox",
        Table::OutboxDue => "outbox_due",
    };
    format!("{prefix}_{table}")
}

/// The name of the table of metadata.
pub fn meta(prefix: &str) -> String {
    format!("{prefix}_meta")
}

/// The names of all tables of a store except `meta`.
pub fn names(prefix: &str) -> [String; TABLES.len()] {
    TABLES.map(|table| name(prefix, table))
}

/// The specification of a table.
#[derive(Debug, Clone)]
pub struct Layout {
    pub spec: TableSpec,
    /// Start keys of all regions except the first.
    pub splits: Vec<Vec<u8>>,
}

/// All tables of a store.
pub fn layouts(prefix: &str, ttls: &TableTtls, partitions: u16) -> Vec<Layout> {
    let with_cells = TABLES.map(|table| Layout {
        spec: spec(name(prefix, table), family(table, ttls)),
        splits: splits(table, partitions),
    });
    let meta = Layout { spec: spec(meta(prefix), family_of("ROW")), splits: Vec::new() };
    with_cells.into_iter().chain([meta]).collect()
}

/// How long the cells of each table are kept, from their timestamps on; `None`: forever. The timestamp of a row is the
/// time of its event, that of a fact is the time at which it was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableTtls {
    rows_ms: Option<u64>,
    /// Indexed by [`FactFamily`]. The limit of touches is that of touches with a lookback of their own.
    facts_ms: [Option<u64>; 3],
}

impl TableTtls {
    /// The longest times of all apps.
    pub fn new(settings: &config::Store, policy: &Policy) -> Self {
        let mut kept = Self { rows_ms: Some(0), facts_ms: [Some(0); 3] };
        let longest = |a: Option<u64>, b: Option<u64>| Some(a?.max(b?));
        for app in policy.apps() {
            let rows_ms = settings.retention_of(app.pid);
            let late_ms = app.correction_horizon_ms.or(rows_ms);
            let needed = late_ms.map(|late_ms| Needed::new(policy, app, late_ms));
            kept.rows_ms = longest(kept.rows_ms, rows_ms);
            for family in FactFamily::ALL {
                let mut family_ms =
                    needed.map(|needed| kept_ms(&needed, family, Some(LOOKBACK_MAX_MS)));
                if family != FactFamily::Touch {
                    // As long as an event has a row, a redelivery of its id must be recognised.
                    family_ms = longest(family_ms, rows_ms);
                }
                let facts_ms = &mut kept.facts_ms[family as usize];
                *facts_ms = longest(*facts_ms, family_ms);
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
            Table::Outbox | Table::OutboxDue => Some(OUTBOX_MS),
        };
        // HBase's maximum means forever.
        ms.map(|ms| ms.div_ceil(HOUR_MS) * (HOUR_MS / 1000)).filter(|s| *s < i32::MAX as u64)
    }
}

/// The TTL of a record in milliseconds; `None`: that of the table, which is for touches with a lookback of their own.
/// These are few; the others get a shorter TTL per cell.
pub(crate) fn record_ttl_ms(expiry: &Expiry, key: &FactKey, record: &FactRecord) -> Option<u64> {
    let FactRecord::Touch(touch) = record else { return None };
    let needed = expiry.kept(key.pid)?.needed;
    Some(kept_ms(&needed, FactFamily::Touch, touch.lookback_ms).saturating_add(LAG_MS))
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

fn family(table: Table, ttls: &TableTtls) -> Family {
    let family = match table {
        // Rows are scanned, facts and outbox records are fetched by row.
        Table::Events | Table::OutboxDue => family_of("NONE"),
        Table::Facts(_) | Table::Outbox => family_of("ROW"),
    };
    match ttls.seconds(table) {
        Some(seconds) => family.attribute("TTL", seconds.to_string()),
        None => family,
    }
}

/// Split keys: at every partition for rows, evenly over the hashes for facts and the outbox.
fn splits(table: Table, partitions: u16) -> Vec<Vec<u8>> {
    let count = match table {
        Table::Events => partitions,
        Table::Facts(_) => FACT_REGIONS,
        Table::Outbox | Table::OutboxDue => OUTBOX_REGIONS,
    };
    let first = |part: u16| match table {
        Table::Events => part,
        Table::Facts(_) | Table::Outbox | Table::OutboxDue => {
            (u32::from(part) * 65_536 / u32::from(count)) as u16
        }
    };
    (1..count).map(|part| first(part).to_be_bytes().to_vec()).collect()
}
