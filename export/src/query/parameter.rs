//! The names of a request's parameters, and what is said of a wrong one.

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
/// In an address it is the path that says it.
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

pub(crate) fn bad(
    parameter: &'static str,
    problem: impl Into<Cow<'static, str>>,
    value: &str,
    allowed: Vec<&'static str>,
) -> ExportError {
    // A client that sends a book gets its beginning back.
    const SHOWN_MAX: usize = 200;
    let end = value.char_indices().nth(SHOWN_MAX).map_or(value.len(), |(end, _)| end);
    let value = value.get(..end).unwrap_or_default().into();
    ExportError::BadParameter { parameter, problem: problem.into(), value, allowed }
}

/// As [`bad`], for a value of another form than the one that is allowed.
pub(crate) fn expected(parameter: &'static str, allowed: &'static str, value: &str) -> ExportError {
    bad(parameter, format!("expected {allowed}"), value, vec![allowed])
}

/// A number of digits alone.
pub(crate) fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The value of a name.
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

/// Names and values as a form or the query of an address has them.
///
/// # Errors
/// The name of a value that is no UTF-8; nothing, where the name itself is none.
pub(crate) fn decoded(query: &[u8]) -> Result<Vec<(String, String)>, Option<String>> {
    let pairs = query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let place = pair.iter().position(|byte| *byte == b'=');
        let (name, value) = pair.split_at(place.unwrap_or(pair.len()));
        let name = unescaped(name).map_err(|_| None)?;
        match unescaped(value.get(1..).unwrap_or_default()) {
            Ok(value) => Ok((name, value)),
            Err(_) => Err(Some(name)),
        }
    });
    pairs.collect()
}

/// What is no escape is left as it is.
fn unescaped(text: &[u8]) -> Result<String, Utf8Error> {
    let text: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&text).decode_utf8().map(Cow::into_owned)
}

/// The values of a list, with commas between. One in quotes may have commas, and quotes twice, as a
/// cell of CSV.
///
/// # Errors
/// A quote is not closed.
fn listed<'a>(parameter: &'static str, values: &'a str) -> Result<Vec<Cow<'a, str>>, ExportError> {
    match split(values) {
        (parts, None) => Ok(parts),
        (_, Some(place)) => {
            const ALLOWED: &str = "values with commas between, one with a comma in double quotes";
            let problem =
                format!("the quote that character {} begins with is not closed", place + 1);
            Err(bad(parameter, problem, values, vec![ALLOWED]))
        }
    }
}

/// Those of a list that was given several times.
///
/// # Errors
/// As [`listed`].
pub(crate) fn all_listed<'a>(
    parameter: &'static str,
    given: &[&'a str],
) -> Result<Vec<Cow<'a, str>>, ExportError> {
    let mut all = Vec::new();
    for values in given {
        all.append(&mut listed(parameter, values)?);
    }
    Ok(all)
}

/// The same of what nobody has to answer for.
pub(crate) fn parts(values: &str) -> Vec<Cow<'_, str>> {
    split(values).0
}

/// Names with commas between; in quotes those that would not be read so again.
pub(crate) fn quoted(names: &[impl AsRef<str>]) -> String {
    let quoted = names.iter().map(|name| match name.as_ref() {
        name if name.contains([',', '"']) || name.trim() != name => {
            format!("\"{}\"", name.replace('"', "\"\""))
        }
        name => name.to_owned(),
    });
    quoted.collect::<Vec<_>>().join(",")
}

/// The values, and the place of the quote that is not closed, in characters from 0.
fn split(values: &str) -> (Vec<Cow<'_, str>>, Option<usize>) {
    if !values.contains('"') {
        return (values.split(',').map(Cow::from).collect(), None);
    }
    let mut parts = vec![String::new()];
    // A quote within a value that does not begin with one is a character as any other.
    let (mut is_cell, mut is_quoted, mut before) = (false, false, ',');
    let mut opened = 0;
    for (place, character) in values.chars().enumerate() {
        let last = parts.len() - 1;
        match character {
            '"' if is_quoted || before == ',' => {
                opened = if is_quoted { opened } else { place };
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
    fn an_open_quote_has_a_place() {
        let check = |values, place| assert_eq!(split(values).1, place, "{values}");
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
