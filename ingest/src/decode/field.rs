//! Converts field values to the types of a fact. Each error names the expected values.

use attribution::facts::device_ids;
use attribution::facts::event::{self, EventTime, Purpose, SpreadId};

use super::field_error::{FieldError, printable_name};
use super::limits::{self, MEMBERS_ALLOWED, MEMBERS_MAX, TextLimit};
use super::time::{self, TIME_ALLOWED};
use super::value::{Member, Members, Value};

const STRING: &str = "a string";
const MAP: &str = "an object whose values are strings";
const STRINGS: &str = "a string or an array of strings";
const ID_MAP: &str = "an object whose values are strings or arrays of strings";
/// Maximum number of device ids of an event. A decision searches by each of them.
const IDS_MAX: usize = 32;
const IDS: &str = "ids";
const IDS_ALLOWED: &str = "at most 32 of them";
const SPREADID: &str = "a whole number from 1 to 4294967295";
const MILLISECONDS: &str = "milliseconds as a whole number, not below 0";
/// Equals the maximum of Avro's `long`, so that JSON and Avro have the same limit.
const LOOKBACK_READ_MAX_MS: u64 = i64::MAX as u64;
const PURPOSE: &str = "\"ua\" or \"retargeting\"";

/// Returns a text; empty if absent.
pub fn text<'v>(
    value: &'v Value<'_>,
    field: &'static str,
    limit: TextLimit,
) -> Result<&'v str, FieldError> {
    let text = unlimited_text(value, field)?;
    if text.len() > limit.bytes {
        return Err(FieldError::too_large(field, "too long", limit.expected));
    }
    Ok(text)
}

/// Returns a text of any length; empty if absent.
pub fn unlimited_text<'v>(
    value: &'v Value<'_>,
    field: &'static str,
) -> Result<&'v str, FieldError> {
    match value {
        Value::Absent => Ok(""),
        other => other.text().ok_or_else(|| FieldError::wrong_type(field, other, STRING)),
    }
}

/// Checks that a text is present and not empty.
pub fn required<'v>(text: &'v str, field: &'static str) -> Result<&'v str, FieldError> {
    if text.is_empty() { Err(FieldError::missing(field, STRING)) } else { Ok(text) }
}

/// Returns the members of an object of texts, sorted by key; of members with one key, the last.
pub fn pairs<'a>(value: Value<'a>, field: &'static str) -> Result<Members<'a>, FieldError> {
    let mut members = members(value, field, [MAP, STRING], limits::MEMBER)?;
    let mut lists = members.0.iter().filter(|(_, value)| matches!(value, Value::Texts(_)));
    if let Some((key, _)) = lists.next() {
        return Err(wrong_type_of(field, &key.0, "an array", STRING));
    }
    members.0.retain(|(_, value)| !matches!(value, Value::Absent));
    event::sort_pairs(&mut members.0);
    Ok(members)
}

/// Returns the device ids, sorted by key.
pub fn ids(value: Value<'_>) -> Result<Members<'_>, FieldError> {
    let mut members = members(value, IDS, [ID_MAP, STRINGS], limits::LONG)?;
    members.0.sort_by(|a, b| a.0.cmp(&b.0));
    let repeated = members.0.windows(2).find(|pair| pair[0].0 == pair[1].0);
    if let Some([(key, _), ..]) = repeated {
        let field = format!("{IDS}.{}", printable_name(&key.0));
        return Err(FieldError::bad_value(&field, "present twice", "each kind of id once"));
    }
    let values: usize = members.pairs().map(|(key, value)| device_ids::count(key, value)).sum();
    if values > IDS_MAX {
        let problem = format!("an object with {values} device ids");
        return Err(FieldError::bad_value(IDS, &problem, IDS_ALLOWED));
    }
    Ok(members)
}

/// Returns the members of an object, whose texts have the length limit `limit`; none if it is absent.
fn members<'a>(
    value: Value<'a>,
    field: &str,
    [expected, expected_member]: [&'static str; 2],
    limit: TextLimit,
) -> Result<Members<'a>, FieldError> {
    let members = match value {
        absent if absent.is_absent() => return Ok(Members::default()),
        Value::Object(members) => members,
        other => return Err(FieldError::wrong_type(field, &other, expected)),
    };
    for (key, value) in &members.0 {
        if let Value::Other(problem) = value {
            return Err(wrong_type_of(field, &key.0, problem, expected_member));
        }
    }
    check_sizes(&members, field, limit)?;
    Ok(members)
}

/// Checks the number of members, and the lengths of their names and texts.
fn check_sizes(members: &Members<'_>, field: &str, limit: TextLimit) -> Result<(), FieldError> {
    let listed = |(_, value): &Member<'_>| match value {
        Value::Texts(texts) => texts.len().max(1),
        _ => 1,
    };
    let count: usize = members.0.iter().map(listed).sum();
    if count > MEMBERS_MAX {
        let problem = format!("an object with {count} values");
        return Err(FieldError::too_large(field, &problem, MEMBERS_ALLOWED));
    }
    let error = |name: &str, problem: &str, limit: TextLimit| {
        let field = format!("{field}.{}", printable_name(name));
        Err(FieldError::too_large(&field, problem, limit.expected))
    };
    let mut names = members.0.iter().map(|(name, _)| &*name.0);
    if let Some(name) = names.find(|name| name.len() > limits::NAME.bytes) {
        return error(name, "a name that is too long", limits::NAME);
    }
    match members.pairs().find(|(_, text)| text.len() > limit.bytes) {
        Some((name, _)) => error(name, "too long", limit),
        None => Ok(()),
    }
}

fn wrong_type_of(field: &str, key: &str, problem: &str, expected: &'static str) -> FieldError {
    let field = format!("{field}.{}", printable_name(key));
    FieldError::bad_value(&field, problem, expected).with_code(super::ErrorCode::WrongType)
}

pub fn required_time(value: &Value<'_>, field: &'static str) -> Result<EventTime, FieldError> {
    optional_time(value, field)?.ok_or_else(|| FieldError::missing(field, TIME_ALLOWED))
}

/// Returns when the download began. App stores return 0 if they do not know it.
pub fn install_begin_time(value: &Value<'_>) -> Result<Option<EventTime>, FieldError> {
    if time::is_not_after_1970(value) {
        return Ok(None);
    }
    optional_time(value, "install_begin_time")
}

fn optional_time(value: &Value<'_>, field: &'static str) -> Result<Option<EventTime>, FieldError> {
    if value.is_absent() {
        return Ok(None);
    }
    time::read(value).map(Some).map_err(|(code, problem)| {
        FieldError::bad_value(field, problem, TIME_ALLOWED).with_code(code)
    })
}

pub fn spreadid(value: &Value<'_>) -> Result<SpreadId, FieldError> {
    match value {
        absent if absent.is_absent() => Err(FieldError::missing("spreadid", SPREADID)),
        Value::Unsigned(number) => u32::try_from(*number)
            .ok()
            .filter(|number| *number > 0)
            .map(SpreadId)
            .ok_or_else(|| FieldError::bad_value("spreadid", "out of range", SPREADID)),
        Value::Negative => Err(FieldError::bad_value("spreadid", "out of range", SPREADID)),
        other => Err(FieldError::wrong_type("spreadid", other, SPREADID)),
    }
}

pub fn lookback_ms(value: &Value<'_>) -> Result<Option<u64>, FieldError> {
    match value {
        absent if absent.is_absent() => Ok(None),
        // The limit exceeds every effective lookback and the retention of the store.
        Value::Unsigned(number) => Ok(Some((*number).min(LOOKBACK_READ_MAX_MS))),
        Value::Negative => Err(FieldError::bad_value("lookback_ms", "out of range", MILLISECONDS)),
        other => Err(FieldError::wrong_type("lookback_ms", other, MILLISECONDS)),
    }
}

pub fn purpose(value: &Value<'_>) -> Result<Purpose, FieldError> {
    match value.text() {
        _ if value.is_absent() => Ok(Purpose::Ua),
        Some("ua") => Ok(Purpose::Ua),
        Some("retargeting") => Ok(Purpose::Retargeting),
        Some(_) => Err(FieldError::bad_value("purpose", "unknown", PURPOSE)),
        None => Err(FieldError::wrong_type("purpose", value, PURPOSE)),
    }
}
