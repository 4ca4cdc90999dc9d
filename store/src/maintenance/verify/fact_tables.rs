//! The tables of facts, and look-ups of records in them.

use std::collections::BTreeMap;

use attribution::facts::event::Family;

use super::findings::Findings;
use super::snapshot::Snapshot;
use super::table_scan::{Found, look_up};
use crate::StoreError;
use crate::embedded::tables::Tables;
use crate::layout::codec::touch::{TouchRef, split_contents};
use crate::layout::key::Key;

/// A table of facts of one family. Touches have several.
pub struct FactTable {
    pub family: Family,
    /// The name of the table with index entries and records; of touches, with references to contents.
    pub index: String,
    /// The number of a table of touches, and the name of the table with its contents.
    pub contents: Option<(u32, String)>,
}

impl FactTable {
    pub fn of_family(snapshot: &Snapshot<'_>, family: Family) -> Vec<Self> {
        if family != Family::Touch {
            let index = Tables::name_of(family).to_owned();
            return vec![Self { family, index, contents: None }];
        }
        let tables = snapshot.tables.touches.all();
        let table = tables.iter().map(|table| Self {
            family,
            index: table.index.to_string(),
            contents: Some((table.number, table.contents.to_string())),
        });
        table.collect()
    }

    /// Looks up the values of fact records. Those that do not exist are left out.
    pub fn records(
        &self,
        snapshot: &Snapshot<'_>,
        keys: impl IntoIterator<Item = Key>,
        findings: &mut Findings<'_>,
    ) -> Result<BTreeMap<Key, Found>, StoreError> {
        let found = look_up(snapshot, &self.index, keys, findings)?;
        let Some((_, contents)) = &self.contents else { return Ok(found) };
        let number = |found: &Found| match found {
            Found::Value(value) => TouchRef::decode(value).ok().map(|it| it.number.to_be_bytes()),
            Found::Unreadable => None,
        };
        let numbers = found.values().filter_map(number);
        let values = look_up(snapshot, contents, numbers, findings)?;
        let mut records = BTreeMap::new();
        for (key, found) in found {
            let record = match (&found, number(&found).and_then(|number| values.get(&number))) {
                (Found::Unreadable, _) | (_, Some(Found::Unreadable)) => Found::Unreadable,
                (_, Some(Found::Value(value))) => match split_contents(value) {
                    Ok((_, record)) => Found::Value(Box::from(record)),
                    Err(_) => continue,
                },
                (_, None) => continue,
            };
            records.insert(key, record);
        }
        Ok(records)
    }
}
