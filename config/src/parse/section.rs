//! Reads one table: returns typed values and reports errors.
//!
//! Methods return `None` if the key is absent, or if its value is invalid, which they have reported. The caller then
//! continues with a default, so that all errors are found at once.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::error::{ConfigError, Location, Problem, is_private};
use super::report::{Diagnostics, Unknown, without_indexes};
use super::secret::{self, Secret, TOKEN_PREFIX};
use super::tree::{Node, Table, Value};

pub(crate) struct Section<'a> {
    /// The dotted key; empty for the root.
    key: String,
    location: Location,
    entries: Table,
    /// The locations of the keys that are set and have been read.
    locations: BTreeMap<&'static str, Location>,
    diagnostics: &'a mut Diagnostics,
}

impl<'a> Section<'a> {
    pub fn root(entries: Table, location: Location, diagnostics: &'a mut Diagnostics) -> Self {
        Self { key: String::new(), location, entries, locations: BTreeMap::new(), diagnostics }
    }

    /// Reads the section; then reports the keys that `read` has not taken as unknown.
    pub fn read<T>(mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        let value = read(&mut self);
        self.collect_unknown();
        value
    }

    /// Reads a subtable; an absent one is empty.
    pub fn table<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let (entries, location) = match self.take(key) {
            Some(Node { location, value: Value::Table(entries) }) => (entries, location),
            Some(node) => {
                // Only the type is shown, because a string instead of a table can contain a secret.
                self.reject(key, "expected a table of keys and values, found", node.value.kind());
                (Table::new(), node.location)
            }
            None => (Table::new(), self.location.clone()),
        };
        self.child(self.dotted(key), location, entries).read(read)
    }

    /// Reads the entries of a list of tables. The returned flag is true if all entries are valid.
    pub fn tables<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Section<'_>) -> Option<T>,
    ) -> (Vec<T>, bool) {
        self.diagnostics.lists.insert(key);
        let items = match self.take(key) {
            None => Vec::new(),
            Some(Node { value: Value::List(items), .. }) => items,
            Some(node) => {
                let problem =
                    format!("expected tables [[{key}]], which are allowed only in the file");
                self.reject(key, problem, node.value.summary());
                return (Vec::new(), false);
            }
        };
        let count = items.len();
        let mut values = Vec::with_capacity(count);
        let list_key = self.dotted(key);
        // Entries are numbered by file.
        let (mut file, mut index) = (None, 0_usize);
        for item in items {
            if item.location.file() != file.as_ref() {
                (file, index) = (item.location.file().cloned(), 0);
            }
            let item_key = format!("{list_key}[{index}]");
            index += 1;
            match item.value {
                Value::Table(entries) => {
                    values.extend(self.child(item_key, item.location, entries).read(&mut read));
                }
                other => {
                    self.error(item_key, item.location, "expected a table".into(), other.summary())
                }
            }
        }
        let complete = values.len() == count;
        (values, complete)
    }

    /// Reads and parses a string.
    pub fn text<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, Problem>,
    ) -> Option<T> {
        let node = self.take(key)?;
        self.parse_text(self.dotted(key), &node, parse)
    }

    /// Reads a path, relative to the working directory.
    pub fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        self.text(key, |text| match text {
            "" => Err("expected a path".into()),
            _ => Ok(text.into()),
        })
    }

    /// Reads a secret: a string, or a table with the path of a file.
    pub fn secret(&mut self, key: &'static str) -> Option<Secret> {
        self.secret_or_file(key, Secret::parse, Secret::from_file)
    }

    /// Reads a secret that only some processes use: a file that cannot be read is not an error of the others.
    pub fn secret_of_some(&mut self, key: &'static str) -> Option<Result<Secret, Problem>> {
        let parse = |text: &str| Secret::parse(text).map(Ok);
        self.secret_or_file(key, parse, |path| Ok(Secret::from_file(path)))
    }

    fn secret_or_file<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, Problem>,
        from_file: impl FnOnce(&str) -> Result<T, Problem>,
    ) -> Option<T> {
        let node = self.take(key)?;
        let typed = node.parse_untyped().filter(|typed| matches!(typed.value, Value::Table(_)));
        match typed.unwrap_or(node) {
            Node { location, value: Value::Table(entries) } => {
                let table = self.child(self.dotted(key), location, entries);
                table.read(|table| {
                    let secret = table.text("file", from_file);
                    table.require("file", "the path of a file with the secret");
                    secret
                })
            }
            // A number is an error, because its digits may differ from the intended string, such as in `007`.
            node @ Node { value: Value::Text(_) | Value::Untyped(_), .. } => {
                self.parse_text(self.dotted(key), &node, parse)
            }
            Node { value, .. } => {
                self.reject(key, secret::EXPECTED, value.summary());
                None
            }
        }
    }

    /// Reads a list of strings and parses each; skips invalid ones.
    pub fn texts<T>(
        &mut self,
        key: &'static str,
        mut parse: impl FnMut(&str) -> Result<T, Problem>,
    ) -> Option<Vec<T>> {
        let node = self.take(key)?;
        let node = node
            .parse_untyped()
            .filter(|typed| matches!(typed.value, Value::List(_)))
            .unwrap_or(node);
        let Value::List(items) = node.value else {
            self.reject(
                key,
                r#"expected a list of strings, such as ["a", "b"]"#,
                node.value.summary(),
            );
            return None;
        };
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let item_key = format!("{}[{index}]", self.dotted(key));
            values.extend(self.parse_text(item_key, item, &mut parse));
        }
        Some(values)
    }

    /// Like [`Section::texts`], for a list that limits something: reports an empty one, which would allow nothing.
    pub fn limits<T>(
        &mut self,
        key: &'static str,
        parse: impl FnMut(&str) -> Result<T, Problem>,
    ) -> Option<Vec<T>> {
        let node = self.entries.get(key);
        let is_empty =
            node.is_some_and(|node| matches!(&node.value, Value::List(items) if items.is_empty()));
        let values = self.texts(key, parse);
        if is_empty {
            self.reject(key, "expected at least one entry, or no such key for the default", "[]");
        }
        values
    }

    pub fn integer<T: TryFrom<u64>>(
        &mut self,
        key: &'static str,
        allowed: RangeInclusive<u64>,
    ) -> Option<T> {
        let node = self.take(key)?;
        let number = match node.parse_untyped().as_ref().unwrap_or(&node).value {
            Value::Integer(number) => u64::try_from(number).ok(),
            _ => None,
        };
        let value =
            number.filter(|number| allowed.contains(number)).and_then(|n| T::try_from(n).ok());
        if value.is_none() {
            let (least, greatest) = allowed.into_inner();
            let problem = format!("expected an integer from {least} to {greatest}");
            self.reject(key, problem, node.value.summary());
        }
        value
    }

    pub fn boolean(&mut self, key: &'static str) -> Option<bool> {
        let node = self.take(key)?;
        match node.parse_untyped().as_ref().unwrap_or(&node).value {
            Value::Boolean(truth) => Some(truth),
            _ => {
                self.reject(key, "expected true or false", node.value.summary());
                None
            }
        }
    }

    /// Returns the location of the table.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Reads one string, or a list of strings.
    pub fn text_or_texts<T>(
        &mut self,
        key: &'static str,
        parse: impl FnMut(&str) -> Result<T, Problem>,
    ) -> Option<Vec<T>> {
        let is_list = |node: &Node| {
            matches!(node.parse_untyped().as_ref().unwrap_or(node).value, Value::List(_))
        };
        if self.entries.get(key).is_some_and(is_list) {
            self.texts(key, parse)
        } else {
            self.text(key, parse).map(|one| vec![one])
        }
    }

    /// The entries that have not been read yet.
    pub fn entries(&mut self) -> &mut Table {
        &mut self.entries
    }

    /// Takes all entries of the table.
    pub fn take_all(&mut self) -> Table {
        std::mem::take(&mut self.entries)
    }

    /// Checks whether a key that was read is set.
    pub fn is_set(&self, key: &str) -> bool {
        self.locations.contains_key(key)
    }

    /// Returns the key that was set last: by source, then by line.
    pub fn last_set(&self, keys: [&'static str; 2]) -> Option<&'static str> {
        let present = keys.into_iter().filter_map(|key| Some((self.locations.get(key)?, key)));
        present.max().map(|(_, key)| key)
    }

    /// Reports the key if it is not set.
    pub fn require(&mut self, key: &'static str, expected: &'static str) {
        if !self.is_set(key) {
            let (location, key) = (self.location.clone(), self.dotted(key).into());
            self.diagnostics.errors.push(ConfigError::Missing { location, key, expected });
        }
    }

    /// Reports a key that is set without the other one of the pair.
    pub fn require_both(&mut self, [a, b]: [&'static str; 2]) {
        for [present, missing] in [[a, b], [b, a]] {
            if self.is_set(present) && !self.is_set(missing) {
                self.contradict(present, format!("requires {}", self.dotted(missing)));
            }
        }
    }

    /// Reports a value that another entry also has, with the location of the other entry.
    pub fn require_unique<K: Ord + Clone + Debug>(
        &mut self,
        key: &'static str,
        value: &K,
        taken: &mut BTreeMap<K, Location>,
    ) {
        match taken.get(value) {
            Some(other) => {
                let problem = format!("expected a unique value, {other} has the same");
                self.reject(key, problem, format!("{value:?}"));
            }
            None => {
                let location = self.locations.get(key).unwrap_or(&self.location).clone();
                taken.insert(value.clone(), location);
            }
        }
    }

    /// Reports an invalid value of a key that was read.
    pub fn reject(&mut self, key: &str, problem: impl Into<Problem>, value: impl Into<String>) {
        let location = self.locations.get(key).unwrap_or(&self.location).clone();
        self.error(self.dotted(key), location, problem.into(), value.into());
    }

    /// Reports a key that conflicts with other keys; its value is valid.
    pub fn contradict(&mut self, key: &str, problem: String) {
        let location = self.locations.get(key).unwrap_or(&self.location).clone();
        let key = self.dotted(key).into();
        self.diagnostics.errors.push(ConfigError::Contradiction {
            location,
            key,
            problem: problem.into(),
        });
    }

    /// Warns about a valid value with a probably unexpected consequence.
    pub fn warn(&mut self, key: &str, consequence: &'static str, value: &str) {
        let location = self.locations.get(key).unwrap_or(&self.location).clone();
        let (key, value) = (self.dotted(key).into(), value.into());
        self.diagnostics.warnings.push(ConfigError::Value {
            location,
            key,
            problem: consequence.into(),
            value,
        });
    }

    /// Reports any error.
    pub fn fail(&mut self, error: ConfigError) {
        self.diagnostics.errors.push(error);
    }

    /// The number of errors that were reported so far, in all sections.
    pub fn error_count(&self) -> usize {
        self.diagnostics.errors.len()
    }

    /// Reports an invalid value at any location.
    pub fn error(&mut self, key: String, location: Location, problem: Problem, value: String) {
        // A token that was set at a wrong key must not be logged either.
        let is_secret = is_private(&key) || value.contains(TOKEN_PREFIX);
        let value = if is_secret { "(not shown)".into() } else { value.into() };
        self.diagnostics.errors.push(ConfigError::Value {
            location,
            key: key.into(),
            problem,
            value,
        });
    }

    /// Returns the dotted name of a key of this table.
    pub fn dotted(&self, key: &str) -> String {
        let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let name = if key.chars().all(bare) { key.into() } else { format!("{key:?}") };
        if self.key.is_empty() { name } else { format!("{}.{name}", self.key) }
    }

    fn child(&mut self, key: String, location: Location, entries: Table) -> Section<'_> {
        Section {
            key,
            location,
            entries,
            locations: BTreeMap::new(),
            diagnostics: self.diagnostics,
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Node> {
        let table = without_indexes(&self.key);
        self.diagnostics.known.entry(table).or_default().insert(key);
        let node = self.entries.remove(key)?;
        self.locations.insert(key, node.location.clone());
        Some(node)
    }

    fn parse_text<T>(
        &mut self,
        key: String,
        node: &Node,
        parse: impl FnOnce(&str) -> Result<T, Problem>,
    ) -> Option<T> {
        let problem = match &node.value {
            Value::Text(text) => parse(text).map_err(Some),
            Value::Untyped(raw) => match node.parse_untyped().map(|typed| typed.value) {
                Some(Value::Text(text)) => parse(&text).map_err(Some),
                _ => parse(raw).map_err(Some),
            },
            // The parser's message says which strings are valid, so it is shown for other types too.
            other => Err(parse(&other.summary()).err()),
        };
        let problem = match problem {
            Ok(value) => return Some(value),
            Err(problem) => problem.unwrap_or("expected a quoted string".into()),
        };
        self.error(key, node.location.clone(), problem, node.value.summary());
        None
    }

    fn collect_unknown(&mut self) {
        let table = without_indexes(&self.key);
        for (name, Node { location, .. }) in self.take_all() {
            let key = self.dotted(&name).into();
            self.diagnostics.unknown.push(Unknown { location, key, table: table.clone(), name });
        }
    }
}
