//! Names of parameters, how their values are decoded, and errors about them.

use std::borrow::Cow;
use std::str::{FromStr, Utf8Error};

use percent_encoding::percent_decode;

use crate::ExportError;

pub(crate) const FROM: &str = "from";
pub(crate) const TO: &str = "to";
pub(crate) const TIMEZONE: &str = "timezone";
pub(crate) const TYPE: &str = "type";
pub(crate) const EVENT_NAME: &str = "event_name";
pub(crate) const STATUS: &str = "status";
pub(crate) const CHANNEL: &str = "channel";
pub(crate) const SPREADID: &str = "spreadid";
pub(crate) const INSTALL_TYPE: &str = "install_type";
pub(crate) const FIELDS: &str = "fields";
/// In URLs, the path determines the format.
pub(crate) const FORMAT: &str = "format";
pub(crate) const DIALECT: &str = "dialect";
pub(crate) const LIMIT: &str = "limit";
pub(crate) const AFTER: &str = "after";
pub(crate) const BY: &str = "by";
pub(crate) const EXPORT_ID: &str = "export_id";
pub(crate) const PRESET: &str = "preset";
pub(crate) const ADDITIONAL_FIELDS: &str = "additional_fields";
pub(crate) const MEDIA_SOURCE: &str = "media_source";
pub(crate) const MAXIMUM_ROWS: &str = "maximum_rows";
pub(crate) const CURRENCY: &str = "currency";

/// Returns an error about the value of a parameter.
pub(crate) fn bad(
    parameter: &'static str,
    problem: impl Into<Cow<'static, str>>,
    value: &str,
    allowed: Vec<&'static str>,
) -> ExportError {
    ExportError::BadParameter { parameter, problem: problem.into(), value: value.into(), allowed }
}

/// Like [`bad`], for a value that should be `allowed`.
pub(crate) fn expected(parameter: &'static str, allowed: &'static str, value: &str) -> ExportError {
    bad(parameter, format!("expected {allowed}"), value, vec![allowed])
}

/// Parses a number without a sign.
pub(crate) fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Looks up the value of a name.
pub(crate) fn one_of<T: Copy>(
    parameter: &'static str,
    name: &str,
    names: &[(&'static str, T)],
) -> Result<T, ExportError> {
    let found = names.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let allowed: Vec<_> = names.iter().map(|(known, _)| *known).collect();
        bad(parameter, format!("expected {}", allowed.join(", or ")), name, allowed)
    })
}

/// Decodes `application/x-www-form-urlencoded` names and values.
///
/// # Errors
/// The name of a parameter whose value is not UTF-8; `None` if the name itself is not UTF-8.
pub(crate) fn decoded(query: &[u8]) -> Result<Vec<(String, String)>, Option<String>> {
    let pairs = query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let index = pair.iter().position(|byte| *byte == b'=');
        let (name, value) = pair.split_at(index.unwrap_or(pair.len()));
        let name = unescaped(name).map_err(|_| None)?;
        match unescaped(value.get(1..).unwrap_or_default()) {
            Ok(value) => Ok((name, value)),
            Err(_) => Err(Some(name)),
        }
    });
    pairs.collect()
}

/// Returns the names and values as parsers take them.
pub(crate) fn pairs(parameters: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    parameters.iter().map(|(name, value)| (&**name, &**value))
}

/// Decodes plus signs and percent escapes. Invalid escapes stay as they are.
fn unescaped(text: &[u8]) -> Result<String, Utf8Error> {
    let text: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&text).decode_utf8().map(Cow::into_owned)
}

/// Splits a list at commas. A value in double quotes may contain commas and doubled quotes, like a CSV cell.
///
/// # Errors
/// A quote is not closed.
fn listed<'a>(parameter: &'static str, values: &'a str) -> Result<Vec<Cow<'a, str>>, ExportError> {
    match split(values) {
        (parts, None) => Ok(parts),
        (_, Some(index)) => {
            const ALLOWED: &str = "values separated by commas, those with a comma in double quotes";
            let problem = format!("the quote at character {} is not closed", index + 1);
            Err(bad(parameter, problem, values, vec![ALLOWED]))
        }
    }
}

/// Returns all values of a repeated list.
pub(crate) fn all_listed<'a>(
    parameter: &'static str,
    lists: &[&'a str],
) -> Result<Vec<Cow<'a, str>>, ExportError> {
    let mut all = Vec::new();
    for values in lists {
        all.append(&mut listed(parameter, values)?);
    }
    Ok(all)
}

/// Splits a list like [`listed`], but accepts an unclosed quote.
pub(crate) fn parts(values: &str) -> Vec<Cow<'_, str>> {
    split(values).0
}

/// Joins names with commas, quoting those that would otherwise be read differently.
pub(crate) fn quoted(names: &[impl AsRef<str>]) -> String {
    let quoted = names.iter().map(|name| match name.as_ref() {
        name if name.contains([',', '"']) || name.trim() != name => {
            format!("\"{}\"", name.replace('"', "\"\""))
        }
        name => name.to_owned(),
    });
    quoted.collect::<Vec<_>>().join(",")
}

/// Splits a list; returns the values and the index of an unclosed quote, in characters.
fn split(values: &str) -> (Vec<Cow<'_, str>>, Option<usize>) {
    if !values.contains('"') {
        return (values.split(',').map(Cow::from).collect(), None);
    }
    let mut parts = vec![String::new()];
    // A quote inside a value that does not begin with one is an ordinary character.
    let (mut is_cell, mut is_quoted, mut before) = (false, false, ',');
    let mut opened = 0;
    for (index, character) in values.chars().enumerate() {
        let last = parts.len() - 1;
        match character {
            '"' if is_quoted || before == ',' => {
                opened = if is_quoted { opened } else { index };
                (is_cell, is_quoted) = (true, !is_quoted);
            }
            ',' if !is_quoted => {
                parts.push(String::new());
                is_cell = false;
            }
            '"' if is_cell && before == '"' => {
                parts[last].push('"');
                is_quoted = true;
            }
            _ => parts[last].push(character),
        }
        before = character;
    }
    (parts.into_iter().map(Cow::from).collect(), is_quoted.then_some(opened))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_commas_are_quoted() {
        let check = |values, expected: &[&str]| assert_eq!(parts(values), expected, "{values}");
        check("a,b c", &["a", "b c"]);
        check("", &[""]);
        check("a,,b", &["a", "", "b"]);
        check(r#""a,b",c"#, &["a,b", "c"]);
        check(r#"c,"a""b,""#, &["c", r#"a"b,"#]);
        check(r#"a"b,c"#, &[r#"a"b"#, "c"]);
        check(r#"a""b,c"#, &[r#"a""b"#, "c"]);
        check(r#""""#, &[""]);
        check(r#""a,b"#, &["a,b"]);
    }

    #[test]
    fn an_unclosed_quote_is_located() {
        let check = |values, index| assert_eq!(split(values).1, index, "{values}");
        check(r#""a,b""#, None);
        check(r#"a,"b"#, Some(2));
        check(r#""a","#, None);
        check(r#""a","b""""#, None);
        check(r#""a","b"""#, Some(4));
        check(r#"ü,""#, Some(2));
        check(r#"a"b"#, None);
    }

    #[test]
    fn names_and_values_are_unescaped() {
        let check = |query: &str, expected: &[(&str, &str)]| {
            let found = decoded(query.as_bytes()).unwrap();
            let found: Vec<_> = found.iter().map(|(name, value)| (&**name, &**value)).collect();
            assert_eq!(found, expected, "{query}");
        };
        check("", &[]);
        check("&&a=1&&b", &[("a", "1"), ("b", "")]);
        check("=&a==", &[("", ""), ("a", "=")]);
        check("a+%2b=%c3%BC+%26%3d", &[("a +", "\u{fc} &=")]);
        check("a=%&b=%2&c=%zz&d=%%41", &[("a", "%"), ("b", "%2"), ("c", "%zz"), ("d", "%A")]);
        assert_eq!(decoded(b"a=1&b=%ff"), Err(Some("b".into())));
        assert_eq!(decoded(b"a=\xff"), Err(Some("a".into())));
        assert_eq!(decoded(b"%ff=1"), Err(None));
    }
}
