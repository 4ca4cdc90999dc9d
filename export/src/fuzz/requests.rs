//! Fuzz targets for requests.

use attribution::facts::event::{EventTime, Pid, SpreadId};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use jiff::Timestamp;
use store::layout::key::RowKey;

use super::CONFIG;
use crate::Access;
use crate::ExportError;
use crate::api::campaign_devices;
use crate::api::summary::{Form, SummaryQuery};
use crate::api::timeline::TimelineQuery;
use crate::api::timeline::cursor::TimelineCursor;
use crate::appsflyer::pull_api;
use crate::appsflyer::report::Kind;
use crate::echo::CHARS_MAX;
use crate::http::access::session;
use crate::query::cursor::Cursor;
use crate::query::parameter::{FORMAT, decoded, pairs};
use crate::query::{ExportQuery, Format, Preset};

/// Checks that the canonical texts of a query parse to the same query.
pub fn query(input: &[u8]) {
    let Ok(params) = decoded(input) else { return };
    for format in [Format::Csv, Format::Ndjson] {
        match ExportQuery::parse(format, pairs(&params)) {
            Ok(query) => check(&query),
            Err(error) => check_error(&error),
        }
    }
}

fn check(query: &ExportQuery) {
    if let Some(config) = &*CONFIG {
        for app in config.policy.apps() {
            let _ = query.check(app, &config.policy);
            let name = query.ascii_file_name(app);
            let is_safe = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
            assert!(name.chars().all(is_safe), "{name}");
        }
    }
    check_cursor(query);
    if query.preset == Preset::AppsFlyer {
        return;
    }
    let mut texts = query.texts();
    texts.remove(FORMAT);
    let canonical = texts.iter().map(|(name, value)| (*name, &**value));
    let again = ExportQuery::parse(query.format, canonical);
    assert!(again.is_ok(), "{:?}: {texts:?}", again.err());
    let Ok(again) = again else { return };
    // [`EventTime::END`] is written as the last time before it.
    let to = query.to.min(EventTime::MAX);
    let (from_text, to_text) = (again.from_text.clone(), again.to_text.clone());
    // Duplicates and order within a filter do not count.
    assert_eq!(again.filter.named(), query.filter.named(), "{texts:?}");
    let filter = again.filter.clone();
    let expected = ExportQuery { to, filter, from_text, to_text, ..query.clone() };
    assert_eq!(again, expected, "{texts:?}");
}

/// Checks that a row's cursor is valid only for its query.
fn check_cursor(query: &ExportQuery) {
    let (event_time, spreadid, seq) = (query.from.min(EventTime::MAX), SpreadId(7), 1 << 40);
    let key = RowKey { partition: 0, pid: Pid(1), event_time, spreadid, seq };
    let cursor = Cursor::after(&key, query);
    assert_eq!(cursor.row(Pid(1)), key);
    assert!(cursor.check(Pid(1), query).is_ok() && cursor.check(Pid(2), query).is_err());
    assert_eq!(Cursor::parse(&cursor.to_string()).ok(), Some(cursor));
}

fn check_error(error: &ExportError) {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.contains(char::is_control), "{text}");
    if let ExportError::BadParameter { value, .. } = error {
        assert!(value.chars().count() <= CHARS_MAX + 1, "{text}");
    }
}

/// The first byte selects the endpoint.
pub fn short_answers(input: &[u8]) {
    let Some((choice, query)) = input.split_first() else { return };
    let Ok(params) = decoded(query) else { return };
    let error = match choice % 3 {
        0 => SummaryQuery::parse(Form::Csv, pairs(&params)).err(),
        1 => TimelineQuery::parse(pairs(&params)).err(),
        _ => campaign_devices::parse(pairs(&params), SpreadId(7)).err(),
    };
    if let Some(error) = error {
        check_error(&error);
    }
}

/// The first byte selects the report.
pub fn appsflyer(input: &[u8]) {
    let Some((choice, query)) = input.split_first() else { return };
    let names = Kind::names();
    let Ok(kind) = Kind::parse(names[usize::from(*choice) % names.len()]) else { return };
    let Ok(params) = decoded(query) else { return };
    match pull_api::parse(kind, pairs(&params)) {
        Ok(query) => check(&query),
        Err(error) => check_error(&error),
    }
}

/// Checks that a parsed cursor is written the same.
pub fn cursor(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match Cursor::parse(text) {
        Ok(cursor) => assert_eq!(cursor.to_string(), text),
        Err(error) => check_error(&error),
    }
    if let Ok(cursor) = TimelineCursor::parse(text) {
        assert_eq!(cursor.to_string(), text);
    }
}

/// Parses headers, one per line; nothing is admitted, because no input has a valid secret.
pub fn token(input: &[u8]) {
    assert!(CONFIG.is_some());
    let Some(config) = &*CONFIG else { return };
    let access = Access::new(&config.tokens, 1);
    let names =
        [header::AUTHORIZATION, header::COOKIE, header::HOST, header::ORIGIN, header::REFERER];
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n') {
        let Some((choice, value)) = line.split_first() else { continue };
        let name = &names[usize::from(*choice) % names.len()];
        headers.extend(HeaderValue::from_bytes(value).map(|value| (name.clone(), value)));
    }
    for method in [Method::GET, Method::POST] {
        assert!(access.admit(&method, &headers, Timestamp::UNIX_EPOCH).is_err());
    }
    assert!(session::own_referer(&headers).is_none_or(|address| address.starts_with('/')));
    if let Ok(text) = std::str::from_utf8(input) {
        assert!(access.admit_token(text, Timestamp::UNIX_EPOCH).is_err());
    }
}
