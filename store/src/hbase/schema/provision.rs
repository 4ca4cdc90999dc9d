//! The tables of a store in HBase: made, and compared with what the settings would make.

use std::fmt;

use attribution::rules::policy::Policy;
use hbase_client::{Error, RetryAdvice, TableSpec};

use super::meta::{self, require};
use super::tables::{self, Kept, Layout};
use crate::StoreError;
use crate::Timing;
use crate::hbase::cluster::{Cluster, FAMILY, State};

/// What has become of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableStatus {
    /// It was not there.
    Created { table: String, regions: usize },
    /// It is as it should be, or not.
    Existing { table: String, differences: Vec<Difference> },
}

impl TableStatus {
    fn is_of_new(&self, name: &str) -> bool {
        matches!(self, Self::Created { table, .. } if table == name)
    }
}

/// Something of a table that is not as the settings would make it. What is written and read is the same, but
/// where [`Difference::loses`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// Of the family.
    Attribute {
        name: String,
        found: Option<String>,
        expected: Option<String>,
    },
    OfTable {
        name: String,
        found: Option<String>,
        expected: String,
    },
    /// No region begins at this row.
    Split {
        row: Vec<u8>,
    },
    /// Nothing is read or written until it is enabled.
    Disabled,
}

/// Of the family: how many seconds cells are kept.
const TTL: &str = "TTL";
/// What HBase has, and takes, for a time without end.
const FOR_EVER: &str = "2147483647";

impl Difference {
    /// Whether HBase drops by it what exports need.
    pub fn loses(&self) -> bool {
        let Self::Attribute { name, found, expected } = self else { return false };
        let seconds = |value: &String| value.parse::<u64>().ok();
        match (found, expected) {
            _ if name != TTL => false,
            (None, _) => false,
            (Some(_), None) => true,
            // What is no number HBase does not take.
            (Some(found), Some(expected)) => seconds(found) < seconds(expected),
        }
    }

    /// What takes it away, in HBase's shell.
    pub fn remedy(&self, table: &str) -> String {
        match self {
            Self::Attribute { name, expected, .. } => {
                let value = expected.as_deref().unwrap_or(FOR_EVER);
                format!("alter '{table}', {{NAME => 'd', {name} => '{value}'}}")
            }
            Self::OfTable { name, expected, .. } => {
                format!("alter '{table}', {{{name} => '{expected}'}}")
            }
            Self::Split { row } => format!("split '{table}', \"{}\"", shell(row)),
            Self::Disabled => format!("enable '{table}'"),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<String>| value.clone().unwrap_or("not set".to_owned());
        match self {
            Self::Attribute { name, found, expected } => {
                write!(out, "{name} is {}, and should be {}", shown(found), shown(expected))?;
                match self.loses() {
                    true => write!(out, ", or hbase drops what exports need"),
                    false => Ok(()),
                }
            }
            Self::OfTable { name, found, expected } => {
                write!(out, "{name} is {}, and should be {expected}", shown(found))
            }
            Self::Split { row } => write!(out, "no region begins at \"{}\"", shell(row)),
            Self::Disabled => write!(out, "it is disabled"),
        }
    }
}

/// As HBase's shell writes bytes.
fn shell(row: &[u8]) -> String {
    row.iter().map(|byte| format!("\\x{byte:02X}")).collect()
}

/// Makes what is missing of the store of the settings, and compares what is there.
///
/// # Errors
/// As of [`crate::hbase::Shared::open`]; and where tables without a store have rows. Nothing is made where a table can
/// not be used.
pub fn init(
    settings: &config::Store,
    hbase: &config::HBase,
    policy: &Policy,
) -> Result<Vec<TableStatus>, StoreError> {
    let cluster = Cluster::connect(hbase, Timing::default())?;
    let (plan, store) = compare(&cluster, settings, policy)?;
    let is_missing = |name: &str| plan.iter().any(|made| made.is_of_new(name));
    for layout in layouts(&cluster, settings, policy) {
        if is_missing(&layout.spec.name) {
            let splits: Vec<_> = layout.splits.into_iter().map(Into::into).collect();
            cluster.wait(cluster.client().admin().create(&layout.spec, &splits))?;
        }
    }
    if store == Told::New {
        // Last: without it nothing opens the store.
        meta::create(&cluster, settings.partitions)?;
        require(&cluster, settings.partitions)?;
    }
    Ok(plan)
}

/// What [`init`] would do.
///
/// # Errors
/// As of [`init`].
pub fn check(
    settings: &config::Store,
    hbase: &config::HBase,
    policy: &Policy,
) -> Result<Vec<TableStatus>, StoreError> {
    Ok(compare(&Cluster::connect(hbase, Timing::default())?, settings, policy)?.0)
}

/// That no table is without what the settings need before they do not need it any more.
///
/// # Errors
/// [`StoreError::ShortLived`] where one is; that of HBase where no master tells.
pub fn require_kept(
    cluster: &Cluster,
    settings: &config::Store,
    policy: &Policy,
) -> Result<(), StoreError> {
    let (mut lossy, mut untold) = (Vec::new(), None);
    for Layout { spec, .. } in layouts(cluster, settings, policy) {
        let admin = cluster.client().admin();
        let found = match cluster.wait_briefly("a look at the tables", admin.describe(&spec.name)) {
            Ok(found) => found,
            // What is told of others counts all the same, where a master tells anything.
            Err(error) => {
                let is_refused = error.advice() == RetryAdvice::Change;
                untold = Some(error);
                if is_refused { continue } else { break }
            }
        };
        require_family(&found)?;
        let differences = attributes(&found, &spec).into_iter().filter(Difference::loses);
        lossy.extend(differences.map(|one| {
            format!("{}: {one}; in the hbase shell: {}", spec.name, one.remedy(&spec.name))
        }));
    }
    match (lossy.is_empty(), untold) {
        (false, _) => Err(StoreError::ShortLived { differences: lossy.join("; ") }),
        (true, Some(error)) => Err(error.into()),
        (true, None) => Ok(()),
    }
}

fn layouts(cluster: &Cluster, settings: &config::Store, policy: &Policy) -> Vec<Layout> {
    tables::layouts(cluster.prefix(), &Kept::new(settings, policy), settings.partitions)
}

/// What a cluster tells of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Stands,
    /// It is yet to be made.
    New,
    /// The table is disabled in which it stands.
    Nothing,
}

/// By [`layouts`].
fn compare(
    cluster: &Cluster,
    settings: &config::Store,
    policy: &Policy,
) -> Result<(Vec<TableStatus>, Told), StoreError> {
    let (mut plan, mut standing) = (Vec::new(), Vec::new());
    let mut is_told = true;
    for Layout { spec, splits } in layouts(cluster, settings, policy) {
        let Some(found) = describe(cluster, &spec.name)? else {
            plan.push(TableStatus::Created { table: spec.name, regions: splits.len() + 1 });
            continue;
        };
        require_family(&found)?;
        let mut differences = attributes(&found, &spec);
        if cluster.look_at(&spec.name)? == State::Disabled {
            differences.push(Difference::Disabled);
            is_told &= spec.name != tables::meta(cluster.prefix());
        }
        let regions = cluster.wait(cluster.client().admin().regions(&spec.name))?;
        let begins = |row: &Vec<u8>| regions.iter().any(|region| region.start[..] == row[..]);
        let missing = splits.into_iter().filter(|row| !begins(row));
        differences.extend(missing.map(|row| Difference::Split { row }));
        standing.push(spec.name.clone());
        plan.push(TableStatus::Existing { table: spec.name, differences });
    }
    if !is_told {
        // Of a store that nothing is known of nothing is made.
        plan.retain(|made| matches!(made, TableStatus::Existing { .. }));
        return Ok((plan, Told::Nothing));
    }
    if meta::load(cluster)?.is_some() {
        require(cluster, settings.partitions)?;
        return Ok((plan, Told::Stands));
    }
    require_empty(cluster, &standing)?;
    Ok((plan, Told::New))
}

/// Rows that nothing tells the partitions of are another store's.
fn require_empty(cluster: &Cluster, standing: &[String]) -> Result<(), StoreError> {
    let meta = tables::meta(cluster.prefix());
    for name in standing.iter().filter(|name| **name != meta) {
        if cluster.has_rows(name)? {
            let reason = format!(
                "it has rows, and {meta} does not tell of what store: bring that table back from a snapshot, \
                 truncate all tables of this prefix, or set another store.hbase.prefix"
            );
            return Err(StoreError::Unusable { table: name.clone(), reason });
        }
    }
    Ok(())
}

/// Nothing where there is no such table.
fn describe(cluster: &Cluster, name: &str) -> Result<Option<TableSpec>, StoreError> {
    match cluster.wait(cluster.client().admin().describe(name)) {
        Ok(spec) => Ok(Some(spec)),
        Err(Error::NoTable { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn require_family(spec: &TableSpec) -> Result<(), StoreError> {
    if spec.families.iter().any(|one| one.name.as_bytes() == FAMILY) {
        return Ok(());
    }
    let has: Vec<&str> = spec.families.iter().map(|family| &*family.name).collect();
    Err(foreign(spec.name.clone(), &has))
}

/// Of a table with other families, those where they are known.
pub fn foreign(table: String, families: &[&str]) -> StoreError {
    let but = match families.is_empty() {
        true => String::new(),
        false => format!(", but {}", families.join(", ")),
    };
    let reason = format!(
        "it has no column family {}{but}: it was not made by adtrail hbase init; move it away, or set another \
         store.hbase.prefix",
        String::from_utf8_lossy(FAMILY)
    );
    StoreError::Unusable { table, reason }
}

/// Those that the settings say something of.
fn attributes(found: &TableSpec, expected: &TableSpec) -> Vec<Difference> {
    const OF_FAMILY: [&str; 5] =
        ["VERSIONS", TTL, "BLOOMFILTER", "COMPRESSION", "DATA_BLOCK_ENCODING"];
    let family =
        |spec: &TableSpec| spec.families.iter().find(|one| one.name.as_bytes() == FAMILY).cloned();
    let (Some(found_family), Some(expected_family)) = (family(found), family(expected)) else {
        return Vec::new();
    };
    let mut differences = Vec::new();
    for name in OF_FAMILY {
        let value = |family: &hbase_client::Family| {
            family.value(name).filter(|value| *value != FOR_EVER).map(str::to_owned)
        };
        let (found, expected) = (value(&found_family), value(&expected_family));
        if found != expected {
            differences.push(Difference::Attribute { name: name.to_owned(), found, expected });
        }
    }
    for (name, expected) in &expected.attributes {
        let found = found.attributes.iter().find(|(known, _)| known == name);
        let found = found.map(|(_, value)| value.clone());
        if !found.as_ref().is_some_and(|found| found.eq_ignore_ascii_case(expected)) {
            let (name, expected) = (name.clone(), expected.clone());
            differences.push(Difference::OfTable { name, found, expected });
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, found: Option<&str>, expected: Option<&str>, loses: bool) {
        let (found, expected) = (found.map(str::to_owned), expected.map(str::to_owned));
        let difference = Difference::Attribute { name: name.to_owned(), found, expected };
        assert_eq!(difference.loses(), loses, "{difference}");
    }

    #[test]
    fn what_is_dropped_too_early_is_lost() {
        check("TTL", Some("3600"), Some("7200"), true);
        check("TTL", Some("10800"), Some("7200"), false);
        check("TTL", Some("9000"), Some("10000"), true);
        check("TTL", None, Some("7200"), false);
        check("TTL", Some("7200"), None, true);
        check("VERSIONS", Some("1"), Some("2"), false);
    }
}
