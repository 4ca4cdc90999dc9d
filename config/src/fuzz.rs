//! Fuzz target for settings. Tests run it on the stored inputs; see `docs/fuzzing.md`.

use crate::PREFIX;
use crate::parse::error::ConfigErrors;
use crate::parse::layers;
use crate::parse::tree::{self, Table, Value};
use crate::read;

#[cfg(test)]
#[path = "../../fuzz/stored_inputs.rs"]
mod stored_inputs;

/// The name of a target, and the function that it runs on any bytes.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[("config", config)];

const FILE: &str = "f.toml";

/// Parses the input as a file and environment variables without their prefix, separated by zero bytes.
fn config(input: &[u8]) {
    let mut parts = input.split(|byte| *byte == 0);
    let file = parts.next().unwrap_or_default();
    let environment: Vec<_> = parts.filter_map(variable).collect();
    let lines = file.iter().filter(|byte| **byte == b'\n').count() + 1;
    let mut table = match tree::parse_file(FILE, file) {
        Ok(table) => table,
        Err(errors) => return check(&errors, lines),
    };
    layers::overlay(&mut table, &environment, &[]);
    if has_file_path(&table) {
        return;
    }
    if let Err(errors) = read(table, FILE, None).0 {
        check(&errors, lines);
    }
}

fn variable(part: &[u8]) -> Option<(String, String)> {
    let (name, value) = std::str::from_utf8(part).ok()?.split_once('=')?;
    let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then(|| (format!("{PREFIX}{name}"), value.to_owned()))
}

/// Checks whether reading the settings could open a secret file: the input could name any file of the system.
fn has_file_path(table: &Table) -> bool {
    table.iter().any(|(key, node)| key == "file" || is_file(&node.value))
}

fn is_file(value: &Value) -> bool {
    match value {
        Value::Untyped(text) => text.contains("file"),
        Value::List(items) => items.iter().any(|item| is_file(&item.value)),
        Value::Table(table) => has_file_path(table),
        _ => false,
    }
}

/// Checks that at least one error is reported, that each error is one line, and that each error in the file has a line
/// number of the file.
fn check(errors: &ConfigErrors, lines: usize) {
    assert!(errors.iter().count() > 0);
    for error in errors.iter() {
        let text = error.to_string();
        assert!(!text.contains(char::is_control), "{text:?}");
        let file_error = text.strip_prefix("f.toml:").and_then(|rest| rest.split_once(':'));
        if let Some((line, _)) = file_error {
            let line: usize = line.parse().unwrap_or_default();
            assert!((1..=lines).contains(&line), "{lines} lines: {text}");
        }
    }
}
