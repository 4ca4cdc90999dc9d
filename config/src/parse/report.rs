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
    /// The keys of each table that was read; tables by dotted key, without list indexes.
    pub known: BTreeMap<String, BTreeSet<&'static str>>,
    /// The keys of lists of tables.
    pub lists: BTreeSet<&'static str>,
    pub unknown: Vec<Unknown>,
}

/// A key that no section has read.
#[derive(Debug)]
pub(crate) struct Unknown {
    pub location: Location,
    pub key: Box<str>,
    /// The same form as in [`Diagnostics::known`].
    pub table: String,
    pub name: String,
}

impl Diagnostics {
    /// Reports the unknown keys as errors, once all tables are read and their keys known.
    pub fn report_unknown(&mut self) {
        for unknown in std::mem::take(&mut self.unknown) {
            let nearest = self.nearest(&unknown).into();
            let Unknown { location, key, .. } = unknown;
            self.errors.push(ConfigError::UnknownKey { location, key, nearest });
        }
    }

    /// Returns the key that was probably meant: the same name in another table (not in a list of tables), or else the
    /// most similar key of the same table.
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

/// `apps[3].fraud` → `apps.fraud`.
pub(crate) fn without_indexes(key: &str) -> String {
    let mut parts = key.split('[');
    let first = parts.next().unwrap_or_default();
    let rest = parts.filter_map(|part| part.split_once(']').map(|(_, rest)| rest));
    std::iter::once(first).chain(rest).collect()
}
