//! Looks up one member of a row's props.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

/// Returns the value of a prop, or an empty text. `props` is the stored JSON.
pub fn prop<'a>(props: &'a str, name: &str) -> Cow<'a, str> {
    if props.is_empty() {
        return Cow::Borrowed("");
    }
    let mut json = serde_json::Deserializer::from_str(props);
    // adtrail wrote the JSON. Anything but an object of strings has no such prop.
    Member(name).deserialize(&mut json).ok().flatten().unwrap_or_default()
}

/// Deserializes the member of this name.
struct Member<'n>(&'n str);

/// A string, borrowed unless it has escapes.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = Option<Cow<'de, str>>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<Cow<'de, str>>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(Text(name)) = members.next_key()? {
            if name == self.0 {
                let Text(value) = members.next_value()?;
                found = Some(value);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_name() {
        let props = r#"{"":"none","a":"1","level":"a \"b\"","ü":"é"}"#;
        for (name, expected) in
            [("", "none"), ("a", "1"), ("level", "a \"b\""), ("ü", "é"), ("b", ""), ("A", "")]
        {
            assert_eq!(prop(props, name), expected, "{name}");
        }
        assert_eq!(prop("", "a"), "");
        assert_eq!(prop("[]", "a"), "");
    }
}
