//! The names of a request's parameters, and what is said of a wrong one.

use std::borrow::Cow;

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

/// The values of a list, with commas between. One in quotes may have commas, and quotes twice, as a
/// cell of CSV.
pub(crate) fn parts(values: &str) -> Vec<Cow<'_, str>> {
    if !values.contains('"') {
        return values.split(',').map(Cow::from).collect();
    }
    let mut parts = vec![String::new()];
    // A quote within a value that does not begin with one is a character as any other.
    let (mut is_cell, mut is_quoted, mut before) = (false, false, ',');
    for character in values.chars() {
        let last = parts.len() - 1;
        match character {
            '"' if is_quoted || before == ',' => (is_cell, is_quoted) = (true, !is_quoted),
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
    parts.into_iter().map(Cow::from).collect()
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
}
