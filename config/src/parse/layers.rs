//! Overrides the settings of the file by the environment and the flags.

use super::error::Location;
use super::tree::{Node, Table, Value};

/// The prefix of environment variables that set a setting.
pub const PREFIX: &str = "ADTRAIL__";

/// Overrides values of the table by the environment variables, and then by the flags.
pub(crate) fn overlay(
    table: &mut Table,
    environment: &[(String, String)],
    flags: &[(String, String)],
) {
    for (name, value) in environment {
        if let Some(key) = name.strip_prefix(PREFIX) {
            let location = Location::Environment(name.as_str().into());
            insert(table, &variable_path(key), untyped(location, value));
        }
    }
    for (key, value) in flags {
        let path = key.split('.').map(String::from).collect();
        insert(table, &join_client_key(path), untyped(Location::Flag, value));
    }
}

fn untyped(location: Location, value: &str) -> Node {
    Node { location, value: Value::Untyped(value.into()) }
}

/// Splits a name: `STORE__PATH` → store, path; `KAFKA__LIBRDKAFKA__SASL_PASSWORD` → kafka, librdkafka, sasl.password.
/// The names of librdkafka properties contain dots, which variable names cannot.
fn variable_path(key: &str) -> Vec<String> {
    let mut path: Vec<String> = key.to_lowercase().split("__").map(String::from).collect();
    if is_client_key(&path) {
        path.iter_mut().skip(2).for_each(|part| *part = part.replace('_', "."));
    }
    join_client_key(path)
}

fn is_client_key(path: &[String]) -> bool {
    path.len() > 2 && path[0] == "kafka" && path[1] == "librdkafka"
}

/// Joins everything after `kafka.librdkafka` into one key.
fn join_client_key(mut path: Vec<String>) -> Vec<String> {
    if is_client_key(&path) {
        let name = path.split_off(2).join(".");
        path.push(name);
    }
    path
}

/// Inserts the node at the path. Replaces a value that is in the way by a table; if the path is wrong, reading its keys
/// reports an error.
fn insert(table: &mut Table, path: &[String], node: Node) {
    match path {
        [] => {}
        [key] => {
            table.insert(key.clone(), node);
        }
        [key, rest @ ..] => {
            let empty =
                || Node { location: node.location.clone(), value: Value::Table(Table::new()) };
            let child = table.entry(key.clone()).or_insert_with(empty);
            if !matches!(child.value, Value::Table(_)) {
                *child = empty();
            }
            if let Value::Table(child) = &mut child.value {
                insert(child, rest, node);
            }
        }
    }
}
