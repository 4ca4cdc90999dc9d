//! Fuzz target for settings; also runs on the saved inputs: see `docs/fuzzing.md`.

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

/// Parses a file, followed by variables without their prefix, all separated by zero bytes.
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
    if let Err(errors) = read(table, FILE).0 {
        check(&errors, lines);
    }
}

fn variable(part: &[u8]) -> Option<(String, String)> {
    let (name, value) = std::str::from_utf8(part).ok()?.split_once('=')?;
    let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then(|| (format!("{PREFIX}{name}"), value.to_owned()))
}

/// Files of secrets would be opened, and the path could be any file.
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

/// Checks that at least one error is reported, that each is one line, and that those of the file have a line number
/// within it.
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
