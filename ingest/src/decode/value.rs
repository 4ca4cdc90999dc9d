//! A field's value as parsed, borrowed if possible.
//!
//! The type that a field must have depends on the event's family, and fields that the family does not have are ignored
//! whatever their value. So parsing accepts every value and records its type, which is checked when the fact is built.

use std::borrow::Cow;
use std::fmt;
use std::mem::ManuallyDrop;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// 2 to the power of 64: the least number beyond 64 bits.
const BEYOND_U64: f64 = 18_446_744_073_709_551_616.0;

/// The elements of an array of texts.
pub type Texts<'a> = Box<[Text<'a>]>;

/// A member of an object.
pub type Member<'a> = (Text<'a>, Value<'a>);

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value<'a> {
    /// Absent or null.
    #[default]
    Absent,
    Text(&'a str),
    /// A text that cannot be borrowed, because escapes were resolved.
    Resolved(Box<str>),
    Unsigned(u64),
    Negative,
    /// With a fraction, or beyond 64 bits.
    Float,
    Boolean,
    /// A type that only Avro has, by its description.
    Other(&'static str),
    /// An array of texts.
    Texts(Texts<'a>),
    /// An array with an element that is not a text.
    List,
    Object(Members<'a>),
}

/// Storage for a value. Most values need no drop, and a drop call for each field would take a tenth of the time that
/// reading an event takes.
#[derive(Debug, Default)]
pub struct Slot<'a>(ManuallyDrop<Value<'a>>);

impl<'a> Slot<'a> {
    pub fn get(&self) -> &Value<'a> {
        &self.0
    }

    pub fn take(&mut self) -> Value<'a> {
        std::mem::take(&mut *self.0)
    }

    /// Sets the value of an empty slot. The previous value is not dropped.
    #[inline]
    pub fn set(&mut self, value: Value<'a>) {
        self.0 = ManuallyDrop::new(value);
    }
}

impl Drop for Slot<'_> {
    #[inline]
    fn drop(&mut self) {
        if matches!(*self.0, Value::Resolved(_) | Value::Texts(_) | Value::Object(_)) {
            drop(self.take());
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Slot<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self(ManuallyDrop::new(value)))
    }
}

/// The name of a member, or an element of an array; borrowed unless escapes had to be resolved.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// The members of an object, in the order of the message. Each is a text, an array of texts, absent, or
/// [`Value::Other`] with the description of its type.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Members<'a>(pub Vec<Member<'a>>);

impl<'a> Members<'a> {
    pub fn add(&mut self, key: Text<'a>, value: Value<'a>) {
        let value = match value {
            Value::Text(_) | Value::Resolved(_) | Value::Texts(_) | Value::Absent => value,
            other => Value::Other(other.description()),
        };
        self.0.push((key, value));
    }

    /// Returns each text with its key; of an array each element, or an empty text if it has none.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        let members = self.0.iter();
        members.flat_map(|(key, value)| value.texts().map(move |text| (&*key.0, text)))
    }
}

/// Collects the elements of an array.
#[derive(Debug)]
pub struct Elements<'a>(Option<Vec<Text<'a>>>);

impl Default for Elements<'_> {
    fn default() -> Self {
        Self(Some(Vec::new()))
    }
}

impl<'a> Elements<'a> {
    /// Adds an element; null counts as absent.
    pub fn add(&mut self, value: Value<'a>) {
        match (&mut self.0, value) {
            (Some(texts), Value::Text(text)) => texts.push(text.into()),
            (Some(texts), Value::Resolved(text)) => texts.push(Text(text.into_string().into())),
            (_, Value::Absent) => {}
            (all, _) => *all = None,
        }
    }

    pub fn finish(self) -> Value<'a> {
        self.0.map_or(Value::List, |texts| Value::Texts(texts.into()))
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(text.into())
    }
}

impl<'a> Value<'a> {
    /// Converts a float. A whole number is the same value as the integer.
    pub fn of_float(number: f64) -> Self {
        if number.fract() != 0.0 || number.abs() >= BEYOND_U64 {
            Self::Float
        } else if number < 0.0 {
            Self::Negative
        } else {
            Self::Unsigned(number as u64)
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Resolved(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the text, or the elements of an array of texts: one empty text if it has none.
    pub fn texts(&self) -> impl Iterator<Item = &str> + Clone {
        let (single, elements): (Option<&str>, &[Text<'_>]) = match self {
            Self::Texts(elements) if elements.is_empty() => (Some(""), &[]),
            Self::Texts(elements) => (None, &**elements),
            other => (other.text(), &[]),
        };
        single.into_iter().chain(elements.iter().map(|text| &*text.0))
    }

    /// Checks whether the value is absent. For every type, an empty text counts as absent.
    pub fn is_absent(&self) -> bool {
        match self {
            Self::Absent => true,
            Self::Text(text) => text.is_empty(),
            other => other.text() == Some(""),
        }
    }

    /// Describes the type for an error message.
    pub fn description(&self) -> &'static str {
        match self {
            Self::Absent => "null",
            Self::Text(_) | Self::Resolved(_) => "a string",
            Self::Unsigned(_) => "a number",
            Self::Negative => "a negative number",
            Self::Float => "a number with a fraction, or beyond 64 bits",
            Self::Boolean => "a boolean",
            Self::Other(description) => description,
            Self::Texts(_) => "an array",
            Self::List => "an array whose elements are not all strings",
            Self::Object(_) => "an object",
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Value<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value<'de>, E> {
        Ok(Value::Absent)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Value<'de>, E> {
        Ok(Value::Text(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value<'de>, E> {
        Ok(Value::Resolved(text.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value<'de>, E> {
        Ok(Value::Unsigned(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value<'de>, E> {
        Ok(u64::try_from(number).map_or(Value::Negative, Value::Unsigned))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value<'de>, E> {
        Ok(Value::of_float(number))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Value<'de>, E> {
        Ok(Value::Boolean)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value<'de>, A::Error> {
        let mut elements = Elements::default();
        while let Some(value) = list.next_element::<Value<'de>>()? {
            elements.add(value);
        }
        Ok(elements.finish())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value<'de>, A::Error> {
        let mut members = Members::default();
        while let Some((key, value)) = object.next_entry::<Text<'de>, Value<'de>>()? {
            members.add(key, value);
        }
        Ok(Value::Object(members))
    }
}
