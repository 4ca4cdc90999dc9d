//! Collects errors, warnings and known keys while settings are read.

use std::collections::{BTreeMap, BTreeSet};

use super::error::{ConfigError, Location};
use crate::nearest::nearest;

/// Errors, warnings and known keys.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    pub errors: Vec<ConfigError>,
    /// Valid but probably unintended settings.
    pub warnings: Vec<ConfigError>,
    /// For each table that was read, by its dotted key without list indexes, the keys that adtrail knows.
    pub known: BTreeMap<String, BTreeSet<&'static str>>,
    /// The keys of the root whose values are lists of tables.
    pub lists: BTreeSet<&'static str>,
    pub unknown: Vec<Unknown>,
}

/// A key that no section has read.
#[derive(Debug)]
pub(crate) struct Unknown {
    pub location: Location,
    pub key: Box<str>,
    /// The dotted key of the table, without list indexes.
    pub table: String,
    pub name: String,
}

impl Diagnostics {
    /// Reports the unknown keys as errors. Called once all tables are read, because any table can have the nearest key.
    pub fn report_unknown(&mut self) {
        for unknown in std::mem::take(&mut self.unknown) {
            let nearest = self.nearest(&unknown).into();
            let Unknown { location, key, .. } = unknown;
            self.errors.push(ConfigError::UnknownKey { location, key, nearest });
        }
    }

    /// Returns the key that was probably meant: one with the same name in another table (not in a list of tables), or
    /// else the most similar key of the same table.
    fn nearest(&self, Unknown { table, name, .. }: &Unknown) -> String {
        let is_single =
            |table: &str| !self.lists.contains(table.split('.').next().unwrap_or(table));
        let mut others =
            self.known.iter().filter(|(other, _)| !other.is_empty() && is_single(other));
        if let Some((other, _)) = others.find(|(_, keys)| keys.contains(name.as_str())) {
            return format!("{other}.{name}");
        }
        let known = self.known.get(table).into_iter().flatten();
        match nearest(name, known.copied()) {
            Some(key) if table.is_empty() && self.lists.contains(key) => format!("[[{key}]]"),
            key => key.unwrap_or_default().into(),
        }
    }
}

/// Removes list indexes: `apps[3].fraud` → `apps.fraud`.
pub(crate) fn without_indexes(key: &str) -> String {
    let mut parts = key.split('[');
    let first = parts.next().unwrap_or_default();
    let rest = parts.filter_map(|part| part.split_once(']').map(|(_, rest)| rest));
    std::iter::once(first).chain(rest).collect()
}
