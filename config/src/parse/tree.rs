//! The raw settings: a tree of values with their locations.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, ConfigErrors, Location};

pub(crate) type Table = BTreeMap<String, Node>;

/// A value and its location.
#[derive(Debug)]
pub(crate) struct Node {
    pub location: Location,
    pub value: Value,
}

#[derive(Debug)]
pub(crate) enum Value {
    /// From the environment or a flag: the key determines its type.
    Untyped(String),
    Text(String),
    Integer(i128),
    Boolean(bool),
    /// A float, a date or an integer out of range, which only librdkafka settings accept.
    Literal(String),
    List(Vec<Node>),
    Table(Table),
}

/// Parses a file into a tree; returns all syntax errors.
pub(crate) fn parse_file(path: &str, bytes: &[u8]) -> Result<Table, ConfigErrors> {
    let file = SourceFile::new(path, bytes);
    let text = std::str::from_utf8(bytes)
        .map_err(|error| file.syntax_error(error.valid_up_to(), "not UTF-8 text".into()))?;
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(file.table(table.into_inner()));
    }
    // The parser's `Display` includes the line, which may contain a secret, so only its message is used.
    let errors = errors.iter().map(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        file.syntax_error(offset, error.message().into())
    });
    Err(ConfigErrors::new(errors.collect()))
}

impl Value {
    /// Formats the value for a message, short and on one line; of a list or table, returns only the type.
    pub fn summary(&self) -> String {
        match self {
            Self::Untyped(text) | Self::Text(text) => quoted(text),
            Self::Integer(number) => number.to_string(),
            Self::Boolean(truth) => truth.to_string(),
            // The parser accepts any text that starts like a number.
            Self::Literal(text) => text.escape_debug().take(CHARS_MAX).collect(),
            Self::List(_) | Self::Table(_) => self.kind().into(),
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Self::Untyped(_) | Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Boolean(_) => "a boolean",
            Self::Literal(_) => "a number or a date",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// Maximum number of characters of a value in a message.
const CHARS_MAX: usize = 120;

/// Quotes and escapes a text, and shortens it.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

impl Node {
    /// Parses an untyped text as a TOML value, with the same location.
    pub fn parse_untyped(&self) -> Option<Self> {
        let Value::Untyped(text) = &self.value else { return None };
        let value = DeValue::parse(text).ok()?;
        Some(node(value, &|_| self.location.clone()))
    }
}

/// A settings file, to locate bytes of it.
pub(crate) struct SourceFile {
    path: Arc<str>,
    line_starts: Vec<usize>,
}

impl SourceFile {
    pub fn new(path: &str, bytes: &[u8]) -> Self {
        Self { path: path.into(), line_starts: line_starts(bytes) }
    }

    /// The line of the byte at an offset.
    pub fn location(&self, offset: usize) -> Location {
        let line = self.line_starts.partition_point(|start| *start <= offset);
        Location::File { path: self.path.clone(), line }
    }

    fn table(&self, table: DeTable<'_>) -> Table {
        entries(table, &|span| self.location(span.start))
    }

    fn syntax_error(&self, offset: usize, problem: Box<str>) -> ConfigError {
        let line_start = self.line_starts.iter().rfind(|start| **start <= offset);
        let column = offset - line_start.unwrap_or(&0) + 1;
        ConfigError::Syntax { location: self.location(offset), column, problem }
    }
}

fn line_starts(bytes: &[u8]) -> Vec<usize> {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    std::iter::once(0).chain(ends.map(|(index, _)| index + 1)).collect()
}

fn entries(table: DeTable<'_>, location: &dyn Fn(Range<usize>) -> Location) -> Table {
    table.into_iter().map(|(key, value)| (key.into_inner().into(), node(value, location))).collect()
}

fn node(value: Spanned<DeValue<'_>>, location: &dyn Fn(Range<usize>) -> Location) -> Node {
    let at = location(value.span());
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into()),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Integer(number),
            Err(_) => Value::Literal(number.to_string()),
        },
        DeValue::Boolean(truth) => Value::Boolean(truth),
        DeValue::Float(number) => Value::Literal(number.to_string()),
        DeValue::Datetime(time) => Value::Literal(time.to_string()),
        DeValue::Array(items) => {
            Value::List(items.into_iter().map(|item| node(item, location)).collect())
        }
        DeValue::Table(table) => Value::Table(entries(table, location)),
    };
    Node { location: at, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_error(text: &[u8], expected: &str) {
        assert_eq!(parse_file("f.toml", text).unwrap_err().to_string(), expected);
    }

    #[track_caller]
    fn check_line(text: &str, path: &[&str], expected: usize) {
        let mut node = Node {
            location: Location::Flag,
            value: Value::Table(parse_file("f.toml", text.as_bytes()).unwrap()),
        };
        for key in path {
            node = match node.value {
                Value::Table(mut table) => table.remove(*key).unwrap(),
                Value::List(mut items) => items.remove(key.parse().unwrap()),
                other => panic!("{other:?}"),
            };
        }
        assert_eq!(node.location, Location::File { path: "f.toml".into(), line: expected });
    }

    #[test]
    fn syntax_errors_have_line_and_column_and_no_content() {
        check_error(b"a = 1\na = 2\n", "f.toml:2: not TOML, column 1: duplicate key");
        check_error(
            b"password = \"hunter2\nb = 1",
            "f.toml:1: not TOML, column 20: invalid basic string, expected `\"`",
        );
        check_error(b"a = 1\nb = \"\xff\"", "f.toml:2: not TOML, column 6: not UTF-8 text");
    }

    #[test]
    fn all_syntax_errors_are_reported() {
        let errors = parse_file("f.toml", b"a = \nb = 1\nb = 2\n").unwrap_err().to_string();
        assert!(errors.contains("f.toml:1:") && errors.contains("f.toml:3:"), "{errors}");
    }

    #[test]
    fn every_value_keeps_its_line() {
        check_line("a = 1", &["a"], 1);
        check_line("\n[t]\nx = 1\ny = [\n 1,\n 2]\n", &["t", "x"], 3);
        check_line("\n[t]\nx = 1\ny = [\n 1,\n 2]\n", &["t", "y", "1"], 6);
        check_line("\n[t]\nx = 1\n", &["t"], 2);
        check_line("\r\n[t.u]\r\nx = 1\r\n", &["t"], 2);
        check_line("[[l]]\nx = 1\n\n[[l]]\nx = 2\n", &["l", "1"], 4);
        check_line("[[l]]\nx = 1\n\n[[l]]\nx = 2\n[l.sub]\ny = 1\n", &["l", "1", "sub", "y"], 7);
    }

    #[test]
    fn a_byte_order_mark_is_accepted() {
        check_line("\u{feff}a = 1\nb = 2", &["b"], 2);
    }

    #[test]
    fn long_and_multiline_values_are_shortened_to_one_line() {
        assert_eq!(quoted("a\nb"), r#""a\nb""#);
        assert_eq!(quoted(&"é".repeat(200)), format!("\"{}\"…", "é".repeat(120)));
    }
}
