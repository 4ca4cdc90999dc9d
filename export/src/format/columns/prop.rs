//! The props of a row that are columns of a file. The stored JSON is read once per row, however many columns there are.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use store::layout::codec::row::{RowView, TextCell};

use super::field::Field;

/// The values of the prop columns in one row. Its buffers are kept from row to row.
#[derive(Debug)]
pub(crate) struct PropValues {
    /// The index of each column among the prop columns, by the name of its prop. The names are distinct.
    indexes: HashMap<Box<str>, usize>,
    /// The start and the end of each column's value in `texts`.
    values: Vec<(usize, usize)>,
    texts: String,
}

impl PropValues {
    /// Takes the prop columns among the fields of a file, in their order.
    pub fn new(fields: &[Field]) -> Self {
        let names = fields.iter().filter_map(|field| match field {
            Field::Prop(name) => Some(name.clone()),
            Field::Column(_) | Field::AppsFlyer(_) => None,
        });
        let indexes: HashMap<_, _> = names.zip(0..).collect();
        Self { values: vec![(0, 0); indexes.len()], indexes, texts: String::new() }
    }

    /// Reads the values of a row.
    #[inline]
    pub fn read(&mut self, row: &RowView<'_>) {
        if !self.values.is_empty() {
            self.read_json(row.text(TextCell::Props));
        }
    }

    /// Returns the value of the prop column at this index, or an empty text.
    pub fn get(&self, index: usize) -> &str {
        let (start, end) = self.values.get(index).copied().unwrap_or_default();
        self.texts.get(start..end).unwrap_or_default()
    }

    /// Returns the values of all prop columns, in their order.
    pub fn in_order(&self) -> impl Iterator<Item = &str> {
        (0..self.values.len()).map(move |index| self.get(index))
    }

    fn read_json(&mut self, props: &str) {
        self.clear();
        if props.is_empty() {
            return;
        }
        let mut json = serde_json::Deserializer::from_str(props);
        // adtrail wrote the JSON. Anything but an object of strings has no props.
        if Members(self).deserialize(&mut json).is_err() {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.texts.clear();
        self.values.fill((0, 0));
    }

    fn set(&mut self, index: usize, value: &str) {
        let start = self.texts.len();
        self.texts.push_str(value);
        if let Some(place) = self.values.get_mut(index) {
            *place = (start, self.texts.len());
        }
    }
}

/// Deserializes the members that are columns.
struct Members<'p>(&'p mut PropValues);

/// A string, borrowed unless it has escapes.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(Text(name)) = members.next_key()? {
            if let Some(index) = self.0.indexes.get(&*name).copied() {
                let Text(value) = members.next_value()?;
                self.0.set(index, &value);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(names: &[&str]) -> PropValues {
        let fields = names.iter().map(|name| Field::Prop((*name).into()));
        PropValues::new(&fields.collect::<Vec<_>>())
    }

    #[track_caller]
    fn check(columns: &mut PropValues, props: &str, expected: &[&str]) {
        columns.read_json(props);
        assert_eq!(columns.in_order().collect::<Vec<_>>(), expected, "{props}");
    }

    #[test]
    fn members_are_found_by_name() {
        let mut columns = columns(&["level", "", "a", "ü", "b", "A"]);
        let props = r#"{"":"none","a":"1","level":"a \"b\"","ü":"é"}"#;
        check(&mut columns, props, &["a \"b\"", "none", "1", "é", "", ""]);
        check(&mut columns, r#"{"A":"x"}"#, &["", "", "", "", "", "x"]);
        for none in ["", "[]", r#"{"a":"1","b":2}"#, r#"{"a":"1""#] {
            check(&mut columns, none, &[""; 6]);
        }
    }

    #[test]
    fn the_last_of_several_members_with_one_name_counts() {
        check(&mut columns(&["a"]), r#"{"a":"1","b":"2","a":"3"}"#, &["3"]);
    }

    #[test]
    fn other_fields_are_not_prop_columns() {
        let fields = ["pid", "props.a", "props", "props.b"].map(|name| Field::parse(name).unwrap());
        let mut columns = PropValues::new(&fields);
        check(&mut columns, r#"{"a":"1","b":"2"}"#, &["1", "2"]);
        check(&mut PropValues::new(&fields[..1]), r#"{"a":"1"}"#, &[]);
    }
}
