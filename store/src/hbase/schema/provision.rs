//! Creates the tables of a store in HBase, and compares existing ones with the settings.

use std::fmt;

use attribution::rules::policy::Policy;
use hbase_client::{Error, RetryAdvice, TableSpec};

use super::meta::{self, require};
use super::tables::{self, Layout, TableTtls};
use crate::StoreError;
use crate::Timing;
use crate::hbase::cluster::{Cluster, FAMILY, State};

/// The result of [`init`] or [`check`] for a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableStatus {
    /// It was missing.
    Created { table: String, regions: usize },
    /// It exists; without differences it matches the settings.
    Existing { table: String, differences: Vec<Difference> },
}

impl TableStatus {
    fn is_created(&self, name: &str) -> bool {
        matches!(self, Self::Created { table, .. } if table == name)
    }
}

/// A difference between a table and the settings. It does not change what is written and read, unless
/// [`Difference::loses`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// An attribute of the column family.
    Attribute { name: String, found: Option<String>, expected: Option<String> },
    /// An attribute of the table.
    OfTable { name: String, found: Option<String>, expected: String },
    /// No region begins at this row key.
    Split { row: Vec<u8> },
    /// Nothing is read or written until it is enabled.
    Disabled,
}

/// The attribute of a column family that limits the age of cells, in seconds.
const TTL: &str = "TTL";
/// HBase's value of [`TTL`] for no limit.
const FOREVER: &str = "2147483647";

impl Difference {
    /// True if HBase deletes data that exports need, because of this difference.
    pub fn loses(&self) -> bool {
        let Self::Attribute { name, found, expected } = self else { return false };
        let seconds = |value: &String| value.parse::<u64>().ok();
        match (found, expected) {
            _ if name != TTL => false,
            (None, _) => false,
            (Some(_), None) => true,
            // HBase accepts numbers only.
            (Some(found), Some(expected)) => seconds(found) < seconds(expected),
        }
    }

    /// The command for HBase's shell that removes the difference.
    pub fn remedy(&self, table: &str) -> String {
        match self {
            Self::Attribute { name, expected, .. } => {
                let value = expected.as_deref().unwrap_or(FOREVER);
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
                write!(out, "{name} is {}, expected {}", shown(found), shown(expected))?;
                match self.loses() {
                    true => write!(out, ": HBase deletes data that exports need"),
                    false => Ok(()),
                }
            }
            Self::OfTable { name, found, expected } => {
                write!(out, "{name} is {}, expected {expected}", shown(found))
            }
            Self::Split { row } => write!(out, "no region begins at \"{}\"", shell(row)),
            Self::Disabled => write!(out, "it is disabled"),
        }
    }
}

/// Bytes in the notation of HBase's shell.
fn shell(row: &[u8]) -> String {
    row.iter().map(|byte| format!("\\x{byte:02X}")).collect()
}

/// Creates the missing tables of the configured store, and compares the others with the settings.
///
/// # Errors
/// Errors of [`crate::hbase::Shared::open`], and tables with rows but without metadata. If a table cannot be used, none
/// is created.
pub fn init(
    settings: &config::Store,
    hbase: &config::HBase,
    policy: &Policy,
) -> Result<Vec<TableStatus>, StoreError> {
    let cluster = Cluster::connect(hbase, Timing::default())?;
    let (plan, store) = compare(&cluster, settings, policy)?;
    let is_missing = |name: &str| plan.iter().any(|status| status.is_created(name));
    for layout in layouts(&cluster, settings, policy) {
        if is_missing(&layout.spec.name) {
            let splits: Vec<_> = layout.splits.into_iter().map(Into::into).collect();
            cluster.wait(cluster.client().admin().create(&layout.spec, &splits))?;
        }
    }
    if store == StoreState::New {
        // Written last: without metadata the store does not open.
        meta::create(&cluster, settings.partitions)?;
        require(&cluster, settings.partitions)?;
    }
    Ok(plan)
}

/// Returns what [`init`] would do.
///
/// # Errors
/// See [`init`].
pub fn check(
    settings: &config::Store,
    hbase: &config::HBase,
    policy: &Policy,
) -> Result<Vec<TableStatus>, StoreError> {
    Ok(compare(&Cluster::connect(hbase, Timing::default())?, settings, policy)?.0)
}

/// Checks that no table deletes data earlier than the settings allow.
///
/// # Errors
/// [`StoreError::TtlTooShort`] if one does; that of HBase if no master answers.
pub fn require_kept(
    cluster: &Cluster,
    settings: &config::Store,
    policy: &Policy,
) -> Result<(), StoreError> {
    let (mut lossy, mut failure) = (Vec::new(), None);
    for Layout { spec, .. } in layouts(cluster, settings, policy) {
        let admin = cluster.client().admin();
        let found = match cluster.wait_briefly("a check of the tables", admin.describe(&spec.name))
        {
            Ok(found) => found,
            // If a master answers, the other tables are checked all the same.
            Err(error) => {
                let is_refused = error.advice() == RetryAdvice::Change;
                failure = Some(error);
                if is_refused { continue } else { break }
            }
        };
        require_family(&found)?;
        let differences = attributes(&found, &spec).into_iter().filter(Difference::loses);
        lossy.extend(differences.map(|difference| {
            let remedy = difference.remedy(&spec.name);
            format!("{}: {difference}; in the hbase shell: {remedy}", spec.name)
        }));
    }
    match (lossy.is_empty(), failure) {
        (false, _) => Err(StoreError::TtlTooShort { differences: lossy.join("; ") }),
        (true, Some(error)) => Err(error.into()),
        (true, None) => Ok(()),
    }
}

fn layouts(cluster: &Cluster, settings: &config::Store, policy: &Policy) -> Vec<Layout> {
    tables::layouts(cluster.prefix(), &TableTtls::new(settings, policy), settings.partitions)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreState {
    Existing,
    /// The metadata is missing.
    New,
    /// The table of the metadata is disabled.
    Unknown,
}

/// Compares the tables of the cluster with [`layouts`].
fn compare(
    cluster: &Cluster,
    settings: &config::Store,
    policy: &Policy,
) -> Result<(Vec<TableStatus>, StoreState), StoreError> {
    let (mut plan, mut existing) = (Vec::new(), Vec::new());
    let mut is_known = true;
    for Layout { spec, splits } in layouts(cluster, settings, policy) {
        let Some(found) = describe(cluster, &spec.name)? else {
            plan.push(TableStatus::Created { table: spec.name, regions: splits.len() + 1 });
            continue;
        };
        require_family(&found)?;
        let mut differences = attributes(&found, &spec);
        if cluster.probe(&spec.name)? == State::Disabled {
            differences.push(Difference::Disabled);
            is_known &= spec.name != tables::meta(cluster.prefix());
        }
        let regions = cluster.wait(cluster.client().admin().regions(&spec.name))?;
        let begins = |row: &Vec<u8>| regions.iter().any(|region| region.start[..] == row[..]);
        let missing = splits.into_iter().filter(|row| !begins(row));
        differences.extend(missing.map(|row| Difference::Split { row }));
        existing.push(spec.name.clone());
        plan.push(TableStatus::Existing { table: spec.name, differences });
    }
    if !is_known {
        // No table is created for an unknown store.
        plan.retain(|status| matches!(status, TableStatus::Existing { .. }));
        return Ok((plan, StoreState::Unknown));
    }
    if meta::load(cluster)?.is_some() {
        require(cluster, settings.partitions)?;
        return Ok((plan, StoreState::Existing));
    }
    require_empty(cluster, &existing)?;
    Ok((plan, StoreState::New))
}

/// Refuses tables with rows but without metadata: the number of partitions of such rows is unknown.
fn require_empty(cluster: &Cluster, existing: &[String]) -> Result<(), StoreError> {
    let meta = tables::meta(cluster.prefix());
    for name in existing.iter().filter(|name| **name != meta) {
        if cluster.has_rows(name)? {
            let reason = format!(
                "it has rows, but {meta} has no store metadata: restore that table from a snapshot; or truncate all \
                 tables with this prefix, or set another store.hbase.prefix, and set another kafka.group"
            );
            return Err(StoreError::Unusable { table: name.clone(), reason });
        }
    }
    Ok(())
}

/// Returns `None` if the table does not exist.
fn describe(cluster: &Cluster, name: &str) -> Result<Option<TableSpec>, StoreError> {
    match cluster.wait(cluster.client().admin().describe(name)) {
        Ok(spec) => Ok(Some(spec)),
        Err(Error::NoTable { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn require_family(spec: &TableSpec) -> Result<(), StoreError> {
    if spec.families.iter().any(|family| family.name.as_bytes() == FAMILY) {
        return Ok(());
    }
    let families: Vec<&str> = spec.families.iter().map(|family| &*family.name).collect();
    Err(foreign(spec.name.clone(), &families))
}

/// The error for a table that lacks the column family; `families` are those that it has, if known.
pub fn foreign(table: String, families: &[&str]) -> StoreError {
    let only = match families.is_empty() {
        true => String::new(),
        false => format!(", only {}", families.join(", ")),
    };
    let reason = format!(
        "it has no column family {}{only}: it was not created by adtrail hbase init; remove it, or set another \
         store.hbase.prefix",
        String::from_utf8_lossy(FAMILY)
    );
    StoreError::Unusable { table, reason }
}

/// The differences of the attributes that the settings determine.
fn attributes(found: &TableSpec, expected: &TableSpec) -> Vec<Difference> {
    const OF_FAMILY: [&str; 5] =
        ["VERSIONS", TTL, "BLOOMFILTER", "COMPRESSION", "DATA_BLOCK_ENCODING"];
    let family = |spec: &TableSpec| {
        spec.families.iter().find(|family| family.name.as_bytes() == FAMILY).cloned()
    };
    let (Some(found_family), Some(expected_family)) = (family(found), family(expected)) else {
        return Vec::new();
    };
    let mut differences = Vec::new();
    for name in OF_FAMILY {
        let value = |family: &hbase_client::Family| {
            family.value(name).filter(|value| *value != FOREVER).map(str::to_owned)
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
    fn only_a_ttl_that_is_too_short_loses_data() {
        check("TTL", Some("3600"), Some("7200"), true);
        check("TTL", Some("10800"), Some("7200"), false);
        check("TTL", Some("9000"), Some("10000"), true);
        check("TTL", None, Some("7200"), false);
        check("TTL", Some("7200"), None, true);
        check("VERSIONS", Some("1"), Some("2"), false);
    }
}
