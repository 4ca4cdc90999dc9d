//! The lists that catalogue files may have, and their addition to those of the settings.

use super::similar;
use crate::parse::error::{ConfigError, Location};
use crate::parse::tree::{Node, Table, Value};

/// The lists that a catalogue file may have.
const LISTS: [&str; 6] = ["apps", "channels", "campaigns", "links", "tokens", "write_tokens"];
/// The table with [`ENDPOINT`], the only nested list.
const CALLBACKS: &str = "callbacks";
const ENDPOINT: &str = "endpoint";
const ENDPOINTS: &str = "callbacks.endpoint";

/// Checks that a catalogue file has nothing but lists of entries.
pub(super) fn check(table: Table) -> Result<Table, Vec<ConfigError>> {
    let mut errors = Vec::new();
    for (key, node) in &table {
        match &node.value {
            Value::Table(endpoints) if key == CALLBACKS => {
                for (key, node) in endpoints {
                    let is_allowed = key == ENDPOINT;
                    errors
                        .extend(check_list(&format!("{CALLBACKS}.{key}"), is_allowed, node).err());
                }
            }
            _ => errors.extend(check_list(key, LISTS.contains(&&**key), node).err()),
        }
    }
    if errors.is_empty() { Ok(table) } else { Err(errors) }
}

fn check_list(key: &str, is_allowed: bool, node: &Node) -> Result<(), ConfigError> {
    let lists = || LISTS.into_iter().chain([ENDPOINTS]);
    let problem = if !is_allowed {
        let allowed: Vec<String> = lists().map(|list| format!("[[{list}]]")).collect();
        let meant = similar(key, lists()).map(|list| format!(", the nearest is [[{list}]]"));
        let (allowed, meant) = (allowed.join(", "), meant.unwrap_or_default());
        format!("not allowed in a catalogue file, which can have {allowed}{meant}")
    } else if !matches!(node.value, Value::List(_)) {
        // Only the type is shown, because a string instead of a list can contain a secret.
        format!("expected tables [[{key}]], found {}", node.value.kind())
    } else {
        return Ok(());
    };
    let (location, key) = (node.location.clone(), key.escape_debug().to_string().into());
    Err(ConfigError::Contradiction { location, key, problem: problem.into() })
}

/// Adds the lists of a checked catalogue file to those of the settings.
pub(super) fn add(settings: &mut Table, file: Table) {
    for (key, Node { location, value }) in file {
        match value {
            Value::List(items) => extend(settings, key, &location, items),
            Value::Table(endpoints) => {
                let table =
                    || Node { location: location.clone(), value: Value::Table(Table::new()) };
                let callbacks = settings.entry(key).or_insert_with(table);
                // Another value is an error, which is reported when it is read.
                let Value::Table(callbacks) = &mut callbacks.value else { continue };
                for (key, Node { location, value }) in endpoints {
                    if let Value::List(items) = value {
                        extend(callbacks, key, &location, items);
                    }
                }
            }
            _ => {}
        }
    }
}

fn extend(table: &mut Table, key: String, location: &Location, items: Vec<Node>) {
    let list = || Node { location: location.clone(), value: Value::List(Vec::new()) };
    // Another value is an error, which is reported when it is read.
    if let Value::List(known) = &mut table.entry(key).or_insert_with(list).value {
        known.extend(items);
    }
}
