//! One table being read: typed values out, mistakes into the report.
//!
//! A method that returns `None` has found no usable value; if there was one it is reported, so
//! the caller goes on with its default and every other mistake is found too.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::error::{ConfigError, Location, Problem, is_private};
use super::report::{Diagnostics, Unknown, without_indexes};
use super::secret::{self, Secret, TOKEN_PREFIX};
use super::tree::{Node, Table, Value};

pub(crate) struct Section<'a> {
    /// Dotted; empty for the whole.
    key: String,
    place: Location,
    entries: Table,
    /// Of the keys that were read and given.
    places: BTreeMap<&'static str, Location>,
    report: &'a mut Diagnostics,
}

impl<'a> Section<'a> {
    pub fn root(entries: Table, place: Location, report: &'a mut Diagnostics) -> Self {
        Self { key: String::new(), place, entries, places: BTreeMap::new(), report }
    }

    /// Reads the section to its end: what is left over then is unknown.
    pub fn read<T>(mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        let value = read(&mut self);
        self.keep_unknown();
        value
    }

    /// A table within; an absent one reads as empty.
    pub fn table<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let (entries, place) = match self.take(key) {
            Some(Node { place, value: Value::Table(entries) }) => (entries, place),
            Some(node) => {
                // A text in place of a table may hold anything: only its kind is shown.
                self.reject(key, "expected a table of keys and values, found", node.value.kind());
                (Table::new(), node.place)
            }
            None => (Table::new(), self.place.clone()),
        };
        self.child(self.dotted(key), place, entries).read(read)
    }

    /// The entries of a list of tables, and whether all of them could be read.
    pub fn tables<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Section<'_>) -> Option<T>,
    ) -> (Vec<T>, bool) {
        self.report.lists.insert(key);
        let items = match self.take(key) {
            None => Vec::new(),
            Some(Node { value: Value::List(items), .. }) => items,
            Some(node) => {
                let problem = format!("expected tables [[{key}]], which only the file can hold");
                self.reject(key, problem, node.value.shown());
                return (Vec::new(), false);
            }
        };
        let count = items.len();
        let mut values = Vec::with_capacity(count);
        for (index, item) in items.into_iter().enumerate() {
            let item_key = format!("{}[{index}]", self.dotted(key));
            match item.value {
                Value::Table(entries) => {
                    values.extend(self.child(item_key, item.place, entries).read(&mut read));
                }
                other => self.error(item_key, item.place, "expected a table".into(), other.shown()),
            }
        }
        let complete = values.len() == count;
        (values, complete)
    }

    /// A text, parsed.
    pub fn text<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, Problem>,
    ) -> Option<T> {
        let node = self.take(key)?;
        self.parse_text(self.dotted(key), &node, parse)
    }

    /// A path, relative to the working directory.
    pub fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        self.text(key, |text| match text {
            "" => Err("expected a path".into()),
            _ => Ok(text.into()),
        })
    }

    /// A secret: a text, or a table that names the file which has it.
    pub fn secret(&mut self, key: &'static str) -> Option<Secret> {
        let node = self.take(key)?;
        let typed = node.parse_untyped().filter(|typed| matches!(typed.value, Value::Table(_)));
        match typed.unwrap_or(node) {
            Node { place, value: Value::Table(entries) } => {
                let table = self.child(self.dotted(key), place, entries);
                table.read(|table| {
                    let secret = table.text("file", Secret::of_file);
                    table.require("file", "the path of a file that has the secret");
                    secret
                })
            }
            // A number is a mistake like any other: what was meant to be in quotes is unsure.
            node @ Node { value: Value::Text(_) | Value::Untyped(_), .. } => {
                self.parse_text(self.dotted(key), &node, Secret::parse)
            }
            Node { value, .. } => {
                self.reject(key, secret::EXPECTED, value.shown());
                None
            }
        }
    }

    /// A list of texts, each parsed; the mistaken ones are left out.
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
            self.reject(key, r#"expected a list of texts, such as ["a", "b"]"#, node.value.shown());
            return None;
        };
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let item_key = format!("{}[{index}]", self.dotted(key));
            values.extend(self.parse_text(item_key, item, &mut parse));
        }
        Some(values)
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
            self.reject(key, problem, node.value.shown());
        }
        value
    }

    pub fn boolean(&mut self, key: &'static str) -> Option<bool> {
        let node = self.take(key)?;
        match node.parse_untyped().as_ref().unwrap_or(&node).value {
            Value::Boolean(truth) => Some(truth),
            _ => {
                self.reject(key, "expected true or false", node.value.shown());
                None
            }
        }
    }

    /// All that is in the table, whatever its keys.
    pub fn take_all(&mut self) -> Table {
        std::mem::take(&mut self.entries)
    }

    /// Whether the key, which was read, was there.
    pub fn is_given(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// Which of two keys counts as the later one: by its layer, then by its line.
    pub fn last_given(&self, keys: [&'static str; 2]) -> Option<&'static str> {
        let given = keys.into_iter().filter_map(|key| Some((self.places.get(key)?, key)));
        given.max().map(|(_, key)| key)
    }

    /// Reports that the key is absent, if it is.
    pub fn require(&mut self, key: &'static str, expected: &'static str) {
        if !self.is_given(key) {
            let (place, key) = (self.place.clone(), self.dotted(key).into());
            self.report.errors.push(ConfigError::Missing { place, key, expected });
        }
    }

    /// Reports each of two keys that was given without the other.
    pub fn require_both(&mut self, [one, other]: [&'static str; 2]) {
        for [given, missing] in [[one, other], [other, one]] {
            if self.is_given(given) && !self.is_given(missing) {
                self.contradict(given, format!("expected {} beside it", self.dotted(missing)));
            }
        }
    }

    /// Reports a value which another entry has too, named with that entry's place.
    pub fn require_unique<K: Ord + Clone + Debug>(
        &mut self,
        key: &'static str,
        value: &K,
        taken: &mut BTreeMap<K, Location>,
    ) {
        match taken.get(value) {
            Some(other) => {
                let problem = format!("expected a value of its own, {other} has the same");
                self.reject(key, problem, format!("{value:?}"));
            }
            None => {
                let place = self.places.get(key).unwrap_or(&self.place).clone();
                taken.insert(value.clone(), place);
            }
        }
    }

    /// Reports what is wrong with the value of a key that was read.
    pub fn reject(&mut self, key: &str, problem: impl Into<Problem>, shown: impl Into<String>) {
        let place = self.places.get(key).unwrap_or(&self.place).clone();
        self.error(self.dotted(key), place, problem.into(), shown.into());
    }

    /// Reports a key that was read and cannot stand beside the others; its value is not to blame.
    pub fn contradict(&mut self, key: &str, problem: String) {
        let place = self.places.get(key).unwrap_or(&self.place).clone();
        let key = self.dotted(key).into();
        self.report.errors.push(ConfigError::Contradiction { place, key, problem: problem.into() });
    }

    /// Tells what becomes of the value of a key that was read, where that may surprise.
    pub fn warn(&mut self, key: &str, taken: &'static str, shown: &str) {
        let place = self.places.get(key).unwrap_or(&self.place).clone();
        let (key, value) = (self.dotted(key).into(), shown.into());
        self.report.warnings.push(ConfigError::Value { place, key, problem: taken.into(), value });
    }

    /// Reports what is wrong with a value at any place.
    pub fn error(&mut self, key: String, place: Location, problem: Problem, shown: String) {
        // Whoever takes a token for something else has not meant to show it.
        let is_secret = is_private(&key) || shown.contains(TOKEN_PREFIX);
        let value = if is_secret { "(not shown)".into() } else { shown.into() };
        self.report.errors.push(ConfigError::Value { place, key: key.into(), problem, value });
    }

    /// The full name of a key of this table.
    pub fn dotted(&self, key: &str) -> String {
        let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let name = if key.chars().all(bare) { key.into() } else { format!("{key:?}") };
        if self.key.is_empty() { name } else { format!("{}.{name}", self.key) }
    }

    fn child(&mut self, key: String, place: Location, entries: Table) -> Section<'_> {
        Section { key, place, entries, places: BTreeMap::new(), report: self.report }
    }

    fn take(&mut self, key: &'static str) -> Option<Node> {
        let table = without_indexes(&self.key);
        self.report.known.entry(table).or_default().insert(key);
        let node = self.entries.remove(key)?;
        self.places.insert(key, node.place.clone());
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
            // What is wrong with the value as a text says more than that it is none.
            other => Err(parse(&other.shown()).err()),
        };
        let problem = match problem {
            Ok(value) => return Some(value),
            Err(problem) => problem.unwrap_or("expected a text in quotes".into()),
        };
        self.error(key, node.place.clone(), problem, node.value.shown());
        None
    }

    fn keep_unknown(&mut self) {
        let table = without_indexes(&self.key);
        for (name, Node { place, .. }) in self.take_all() {
            let key = self.dotted(&name).into();
            self.report.unknown.push(Unknown { place, key, table: table.clone(), name });
        }
    }
}
