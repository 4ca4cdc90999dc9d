//! Texts with fields of an event: `{field}`, `{field|filter|filter}`, `{field|filter or field}`.
//!
//! A field without a value has none after its filters either, unless one of them is `default`. The first alternative
//! with a value counts, and a text with a field that has none is left out by its user. `{{` and `}}` are braces.
//!
//! Start with [`Template`]; `fields` has the names of fields, `filter` what can be done to them.

pub(crate) mod fields;
mod filter;

use std::borrow::Cow;

use fields::{Field, Values};
use filter::Filter;
pub(crate) use filter::url_encode;

/// Maximum length of a template.
const BYTES_MAX: usize = 4_096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
    /// The text is JSON itself, and not to be quoted.
    is_json: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(Box<str>),
    /// The alternatives.
    Slot(Vec<Filtered>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Filtered {
    field: Field,
    filters: Vec<Filter>,
}

impl Template {
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > BYTES_MAX {
            return Err(format!("expected a template of at most {BYTES_MAX} bytes"));
        }
        let (mut parts, mut literal) = (Vec::new(), String::new());
        let (mut rest, mut json_slots) = (text, 0);
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            literal.push_str(before);
            if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
                literal.push_str(&from[..1]);
                rest = after;
                continue;
            }
            let slot = from.strip_prefix('{').and_then(|inside| inside.split_once('}'));
            let Some((inside, after)) = slot else {
                return Err(format!("expected braces in pairs, and {{{{ for a brace: {text:?}"));
            };
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal).into()));
            }
            let (alternatives, is_json) = parse_slot(inside)?;
            json_slots += usize::from(is_json);
            parts.push(Part::Slot(alternatives));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal.into()));
        }
        if json_slots > 0 && parts.len() != 1 {
            return Err(format!("json: expected a text of one field: {text:?}"));
        }
        Ok(Self { parts, is_json: json_slots > 0 })
    }

    pub fn is_json(&self) -> bool {
        self.is_json
    }

    /// Returns the text before the first field.
    pub fn literal_start(&self) -> &str {
        match self.parts.first() {
            Some(Part::Literal(text)) => text,
            _ => "",
        }
    }

    /// Returns the text; `None` if a field has no value.
    pub fn render(&self, values: &Values<'_>) -> Option<String> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Slot(alternatives) => {
                    text.push_str(&alternatives.iter().find_map(|slot| slot.value(values))?);
                }
            }
        }
        Some(text)
    }

    /// Returns all fields that it names.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.slots().map(|slot| &slot.field)
    }

    /// Returns the values of its private fields, as the text has them: hashed, encrypted or encoded.
    pub fn private_values(&self, values: &Values<'_>) -> impl Iterator<Item = String> {
        let private = self.slots().filter(|slot| slot.field.is_private());
        private.filter_map(move |slot| {
            let value = values.value(&slot.field)?;
            slot.filtered(Some(value), values).map(Cow::into_owned)
        })
    }

    fn slots(&self) -> impl Iterator<Item = &Filtered> {
        self.parts.iter().flat_map(|part| match part {
            Part::Literal(_) => &[] as &[Filtered],
            Part::Slot(alternatives) => alternatives.as_slice(),
        })
    }

    /// Returns the fields without which the text has no value.
    pub fn needed(&self) -> impl Iterator<Item = &Field> {
        let only = self.parts.iter().filter_map(|part| match part {
            Part::Slot(alternatives) if alternatives.len() == 1 => alternatives.first(),
            Part::Slot(_) | Part::Literal(_) => None,
        });
        let is_default = |filter: &Filter| matches!(filter, Filter::Default(_));
        let without_default = only.filter(move |slot| !slot.filters.iter().any(is_default));
        without_default.map(|slot| &slot.field)
    }

    /// Returns true if a filter needs the key of the endpoint's credentials.
    pub fn needs_key(&self) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Literal(_) => false,
            Part::Slot(alternatives) => {
                alternatives.iter().any(|slot| slot.filters.contains(&Filter::Aes128Ecb))
            }
        })
    }
}

impl Filtered {
    fn value<'v>(&self, values: &Values<'v>) -> Option<Cow<'v, str>> {
        let value = values.value(&self.field);
        if let (Some(hidden), true) = (&value, values.hides(&self.field)) {
            return Some(hidden.clone());
        }
        self.filtered(value, values)
    }

    fn filtered<'v>(
        &self,
        value: Option<Cow<'v, str>>,
        values: &Values<'_>,
    ) -> Option<Cow<'v, str>> {
        self.filters.iter().fold(value, |value, filter| filter.apply(value, values))
    }
}

/// Parses what is between two braces. The returned flag is true if the value is JSON.
fn parse_slot(text: &str) -> Result<(Vec<Filtered>, bool), String> {
    let alternatives: Result<Vec<_>, _> = text.split(" or ").map(parse_alternative).collect();
    let alternatives = alternatives?;
    let is_json = |slot: &Filtered| slot.filters.last() == Some(&Filter::Json);
    let count = alternatives.iter().filter(|slot| is_json(slot)).count();
    if count != 0 && count != alternatives.len() {
        return Err(format!("json: expected for all alternatives or none: {text:?}"));
    }
    Ok((alternatives, count > 0))
}

fn parse_alternative(text: &str) -> Result<Filtered, String> {
    let mut names = text.split('|');
    let field = Field::parse(names.next().unwrap_or_default().trim())?;
    let filters: Result<Vec<_>, _> = names.map(|name| Filter::parse(name.trim())).collect();
    let filters = filters?;
    let before_last = filters.split_last().map_or(&[] as &[Filter], |(_, others)| others);
    if before_last.contains(&Filter::Json) {
        return Err(format!("json: expected as the last filter: {text:?}"));
    }
    Ok(Filtered { field, filters })
}

#[cfg(test)]
mod tests {
    use super::fields::tests::with_values;
    use super::*;

    #[track_caller]
    fn check(template: &str, expected: Option<&str>) {
        let template = Template::parse(template).unwrap();
        with_values(|values| assert_eq!(template.render(values).as_deref(), expected));
    }

    #[track_caller]
    fn check_wrong(template: &str, expected: &str) {
        let problem = Template::parse(template).unwrap_err();
        assert!(problem.starts_with(expected), "{problem}");
    }

    #[test]
    fn fields_are_replaced_and_braces_stay() {
        check("", Some(""));
        check("plain", Some("plain"));
        check("{app}/{event_id}!", Some("app-x/e-1!"));
        check("{{{app}}}", Some("{app-x}"));
        check("{{ATYPE}}", Some("{ATYPE}"));
    }

    #[test]
    fn filters_follow_each_other() {
        check("{callback|url}", Some("token%2F1%3D"));
        check("{ids.oaid|md5}", Some("87f8274c36eb73fabcbf143a10eca6a4"));
        check("{os|upper|lower}", Some("android"));
        check("{time|s} {time|ms}", Some("1773160000 1773160000999"));
        check("{time|iso} {time|utc}", Some("2026-03-10T16:26:40.999Z 2026-03-10 16:26:40.999"));
        check("{revenue|cents} {revenue|decimal}", Some("999 9.99"));
        check(
            "{app|sha256}",
            Some("2d298a20323f73d8b79121662908b4a87c9a58a193bbbf1309af0400e2300532"),
        );
    }

    #[test]
    fn a_missing_value_leaves_the_text_out() {
        check("{ids.idfa}", None);
        check("a{ids.idfa|md5|upper}", None);
        check("{ids.idfa|default:none|upper}", Some("NONE"));
        check("{ids.idfa or ids.oaid|upper}", Some(&crate::event::tests::OAID.to_uppercase()));
        check("{ids.idfa or ids.caid}", None);
        check("{revenue|default:0|cents}", Some("999"));
        check("{app|cents}", None);
        check("{app|s}", None);
    }

    #[test]
    fn json_is_a_whole_text() {
        let template = Template::parse("{time|ms|json}").unwrap();
        assert!(template.is_json() && !Template::parse("{time}").unwrap().is_json());
        check("{time|ms|json}", Some("1773160000999"));
        check("{props|json}", Some(r#"{"level":"3"}"#));
        check("{app|json}", None);
        check_wrong("a{time|json}", "json: expected a text of one field");
        check_wrong("{time|json|s}", "json: expected as the last filter");
        check_wrong("{time|json or app}", "json: expected for all alternatives or none");
    }

    #[test]
    fn mistakes_are_named() {
        check_wrong("{app", "expected braces in pairs");
        check_wrong("app}", "expected braces in pairs");
        check_wrong("{}", "expected a field, the nearest is");
        check_wrong("{apps}", "expected a field, the nearest is \"app\": \"apps\"");
        check_wrong("{ids.odid}", "expected a device id, the nearest is \"oaid\": \"odid\"");
        check_wrong("{credentials.token}", "expected one of the credentials");
        check_wrong("{app|rot13}", "expected a filter, the nearest is");
        check_wrong("{app|default}", "expected a filter, the nearest is");
        check_wrong(&"a".repeat(4_097), "expected a template of at most");
    }

    #[test]
    fn private_values_are_those_that_a_text_has() {
        let check = |text: &str, expected: &[&str]| {
            let template = Template::parse(text).unwrap();
            with_values(|values| {
                let found: Vec<_> = template.private_values(values).collect();
                assert_eq!(found, expected, "{text}");
            });
        };
        check("{app} {time|ms} x", &[]);
        check("{callback|url}, {click_id|upper}", &["token%2F1%3D", "C-1"]);
        check("{ids.idfa or ids.oaid|md5}", &["87f8274c36eb73fabcbf143a10eca6a4"]);
        check("{ids.idfa|default:nothing}", &[]);
    }

    #[test]
    fn hidden_texts_have_no_ids_and_no_tokens() {
        let text = "{callback|url} {ids.oaid|md5} {ids.idfa} {ip} {click_id} {credentials.secret}";
        for (field, expected) in text.split(' ').zip([true, true, false, true, true, true]) {
            let template = Template::parse(field).unwrap();
            fields::tests::with_hidden_values(|values| {
                let expected = expected.then_some("hidden");
                assert_eq!(template.render(values).as_deref(), expected, "{field}");
            });
        }
        let template = Template::parse("{app}").unwrap();
        fields::tests::with_hidden_values(|values| {
            assert_eq!(template.render(values).as_deref(), Some("app-x"));
        });
    }
}
