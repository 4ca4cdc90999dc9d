//! Converts field values to the types of a fact. Each error names the expected values.

use attribution::facts::device_ids;
use attribution::facts::event::{self, EventTime, Pairs, Purpose, SpreadId};

use super::field_error::{FieldError, printable_name};
use super::limits::{self, MEMBERS_ALLOWED, MEMBERS_MAX, TextLimit};
use super::time::{self, TIME_ALLOWED};
use super::value::{Members, Texts, Value};

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
pub fn text(
    value: Value<'_>,
    field: &'static str,
    limit: TextLimit,
) -> Result<Box<str>, FieldError> {
    if value.text().is_some_and(|text| text.len() > limit.bytes) {
        return Err(FieldError::too_large(field, "too long", limit.expected));
    }
    unlimited_text(value, field)
}

/// Returns a text of any length; empty if absent.
pub fn unlimited_text(value: Value<'_>, field: &'static str) -> Result<Box<str>, FieldError> {
    match value {
        Value::Absent => Ok(Box::default()),
        Value::Text(text) => Ok(text.into()),
        Value::Resolved(text) => Ok(text),
        other => Err(FieldError::wrong_type(field, &other, STRING)),
    }
}

/// Checks that a text is present and not empty.
pub fn required(text: Box<str>, field: &'static str) -> Result<Box<str>, FieldError> {
    if text.is_empty() { Err(FieldError::missing(field, STRING)) } else { Ok(text) }
}

/// Returns the members of an object of texts, sorted.
pub fn pairs(value: Value<'_>, field: &'static str) -> Result<Pairs, FieldError> {
    let members = members(value, field, [MAP, STRING], limits::MEMBER)?;
    let Some(Members { texts: mut pairs, lists, .. }) = members else {
        return Ok(Pairs::new());
    };
    if let Some((key, _)) = lists.first() {
        return Err(wrong_type_of(field, key, "an array", STRING));
    }
    event::sort_pairs(&mut pairs);
    Ok(pairs)
}

/// Returns the device ids, sorted by key; an array is a pair for each element, in their order.
pub fn ids(value: Value<'_>) -> Result<Pairs, FieldError> {
    let members = members(value, IDS, [ID_MAP, STRINGS], limits::LONG)?;
    let Some(Members { texts: mut pairs, lists, nulls, .. }) = members else {
        return Ok(Pairs::new());
    };
    check_keys(&pairs, &lists, &nulls)?;
    for (key, values) in lists {
        if values.is_empty() {
            pairs.push((key, Box::default()));
        } else {
            pairs.extend(values.into_iter().map(|value| (key.clone(), value)));
        }
    }
    let values: usize = pairs.iter().map(|(key, value)| device_ids::count(key, value)).sum();
    if values > IDS_MAX {
        let problem = format!("an object with {values} device ids");
        return Err(FieldError::bad_value(IDS, &problem, IDS_ALLOWED));
    }
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(pairs)
}

/// Checks that no kind of id is present twice.
fn check_keys(
    pairs: &Pairs,
    lists: &[(Box<str>, Texts)],
    nulls: &[Box<str>],
) -> Result<(), FieldError> {
    if pairs.len() + lists.len() + nulls.len() < 2 {
        return Ok(());
    }
    let texts = pairs.iter().map(|(key, _)| key);
    let mut keys: Vec<_> = texts.chain(lists.iter().map(|(key, _)| key)).chain(nulls).collect();
    keys.sort_unstable();
    let repeated = keys.windows(2).find(|pair| pair[0] == pair[1]);
    let Some(key) = repeated.and_then(|pair| pair.first()) else { return Ok(()) };
    let field = format!("{IDS}.{}", printable_name(key));
    Err(FieldError::bad_value(&field, "present twice", "each kind of id once"))
}

/// Returns the members of an object, whose texts have the length limit `limit`; `None` if it is absent.
fn members(
    value: Value<'_>,
    field: &str,
    [expected, expected_member]: [&'static str; 2],
    limit: TextLimit,
) -> Result<Option<Members>, FieldError> {
    let mut members = match value {
        absent if absent.is_absent() => return Ok(None),
        Value::Object(members) => *members,
        other => return Err(FieldError::wrong_type(field, &other, expected)),
    };
    match members.other.take() {
        Some((key, problem)) => Err(wrong_type_of(field, &key, problem, expected_member)),
        None => {
            check_sizes(&members, field, limit)?;
            Ok(Some(members))
        }
    }
}

/// Checks the number of members, and the lengths of their names and texts.
fn check_sizes(members: &Members, field: &str, limit: TextLimit) -> Result<(), FieldError> {
    let Members { texts, lists, nulls, .. } = members;
    let listed: usize = lists.iter().map(|(_, values)| values.len().max(1)).sum();
    let count = texts.len() + nulls.len() + listed;
    if count > MEMBERS_MAX {
        let problem = format!("an object with {count} values");
        return Err(FieldError::too_large(field, &problem, MEMBERS_ALLOWED));
    }
    let error = |name: &str, problem: &str, limit: TextLimit| {
        let field = format!("{field}.{}", printable_name(name));
        Err(FieldError::too_large(&field, problem, limit.expected))
    };
    let names = texts.iter().map(|(name, _)| name).chain(lists.iter().map(|(name, _)| name));
    if let Some(name) = names.chain(nulls).find(|name| name.len() > limits::NAME.bytes) {
        return error(name, "a name that is too long", limits::NAME);
    }
    let single = texts.iter().find(|(_, text)| text.len() > limit.bytes).map(|(name, _)| name);
    let is_long = |values: &Texts| values.iter().any(|text| text.len() > limit.bytes);
    let list = || lists.iter().find(|(_, values)| is_long(values)).map(|(name, _)| name);
    match single.or_else(list) {
        Some(name) => error(name, "too long", limit),
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
