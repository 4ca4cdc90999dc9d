//! One member of a row's props.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

/// The value of a prop, empty where there is none; `props` is the JSON that rows hold.
pub fn prop<'a>(props: &'a str, name: &str) -> Cow<'a, str> {
    if props.is_empty() {
        return Cow::Borrowed("");
    }
    let mut json = serde_json::Deserializer::from_str(props);
    // It was written by this program: what is no object of texts has no such prop.
    Wanted(name).deserialize(&mut json).ok().flatten().unwrap_or_default()
}

/// The member of this name.
struct Wanted<'n>(&'n str);

/// A text, borrowed unless it has escapes.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for Wanted<'_> {
    type Value = Option<Cow<'de, str>>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Wanted<'_> {
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
