//! The native columns in groups, for the form.

use serde::Serialize;

use super::options::OWN;
use super::state::Choice;
use crate::format::columns::native::Column;

/// A group and its columns.
#[derive(Debug, Serialize)]
pub(super) struct ColumnGroup {
    name: &'static str,
    columns: Vec<ColumnChoice>,
}

#[derive(Debug, Serialize)]
struct ColumnChoice {
    name: &'static str,
    is_chosen: bool,
}

/// The name of each group, and its first column.
const GROUPS: [(&str, &str); 5] = [
    ("Event", "event_type"),
    ("Attribution", "status"),
    ("Contributors", "contributor1_spreadid"),
    ("Device ids", "oaid"),
    ("Device and event details", "ip"),
];

/// Columns that are ticked by default.
const USUAL: [&str; 9] = [
    "event_name",
    "event_time",
    "event_id",
    "status",
    "install_type",
    "campaign",
    "channel",
    "revenue",
    "currency",
];

pub(super) fn column_groups(choice: &Choice) -> Vec<ColumnGroup> {
    let mut groups: Vec<ColumnGroup> = Vec::new();
    for name in Column::names() {
        if let Some((group, _)) = GROUPS.iter().find(|(_, first)| *first == name) {
            groups.push(ColumnGroup { name: group, columns: vec![] });
        }
        let is_chosen = match choice.preset != OWN {
            true => USUAL.contains(&name),
            false => choice.fields.iter().any(|field| field == name),
        };
        let column = ColumnChoice { name, is_chosen };
        if let Some(group) = groups.last_mut() {
            group.columns.push(column);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_in_a_group() {
        let groups = column_groups(&Choice::new(&[]));
        assert_eq!(groups.len(), GROUPS.len());
        let names: Vec<_> = groups.iter().flat_map(|group| &group.columns).collect();
        assert!(names.iter().map(|column| column.name).eq(Column::names()));
        let ticked = names.iter().filter(|column| column.is_chosen).count();
        assert_eq!(ticked, USUAL.len());
    }
}
