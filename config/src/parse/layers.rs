//! The environment and the flags, laid over the file.

use super::error::Location;
use super::tree::{Node, Table, Value};

/// What the names of variables that are settings begin with.
pub const PREFIX: &str = "ADTRAIL__";

/// Writes the variables and then the flags into the table.
pub(crate) fn overlay(
    table: &mut Table,
    environment: &[(String, String)],
    flags: &[(String, String)],
) {
    for (name, value) in environment {
        if let Some(key) = name.strip_prefix(PREFIX) {
            let place = Location::Environment(name.as_str().into());
            insert(table, &variable_path(key), untyped(place, value));
        }
    }
    for (key, value) in flags {
        let path = key.split('.').map(String::from).collect();
        insert(table, &join_client_key(path), untyped(Location::Flag, value));
    }
}

fn untyped(place: Location, value: &str) -> Node {
    Node { place, value: Value::Untyped(value.into()) }
}

/// `STORE__PATH` → store, path; `KAFKA__LIBRDKAFKA__SASL_PASSWORD` → kafka, librdkafka,
/// sasl.password: librdkafka's names have dots, which a variable's name cannot have.
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

/// What follows `kafka.librdkafka` is one key.
fn join_client_key(mut path: Vec<String>) -> Vec<String> {
    if is_client_key(&path) {
        let name = path.split_off(2).join(".");
        path.push(name);
    }
    path
}

/// A value in the way of the path is replaced; that it is none is found when the key is read.
fn insert(table: &mut Table, path: &[String], node: Node) {
    match path {
        [] => {}
        [key] => {
            table.insert(key.clone(), node);
        }
        [key, rest @ ..] => {
            let empty = || Node { place: node.place.clone(), value: Value::Table(Table::new()) };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_variable(key: &str, expected: &[&str]) {
        assert_eq!(variable_path(key), expected);
    }

    #[test]
    fn variables_are_paths() {
        check_variable("KAFKA__BROKERS", &["kafka", "brokers"]);
        check_variable("STORE__HBASE__PREFIX", &["store", "hbase", "prefix"]);
        check_variable("ATTRIBUTION__CLICK_WINDOW", &["attribution", "click_window"]);
        check_variable(
            "KAFKA__LIBRDKAFKA__SASL_PASSWORD",
            &["kafka", "librdkafka", "sasl.password"],
        );
        check_variable("KAFKA__LIBRDKAFKA", &["kafka", "librdkafka"]);
        check_variable("KAFKA__", &["kafka", ""]);
        check_variable("", &[""]);
    }
}
