//! Queries of valid and invalid requests.

use attribution::rules::row::{EventType, InstallType, Status};

use super::*;

const DAY: [(&str, &str); 2] = [("from", "2026-03-10"), ("to", "2026-03-10")];

fn parse(more: &[(&'static str, &'static str)]) -> Result<ExportQuery, ExportError> {
    ExportQuery::parse(Format::Csv, DAY.iter().chain(more).copied())
}

#[track_caller]
fn check_error(parameters: &[(&str, &str)], expected: &str) {
    let error = ExportQuery::parse(Format::Csv, parameters.iter().copied()).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[track_caller]
fn check_more(more: (&'static str, &'static str), expected: &str) {
    assert_eq!(parse(&[more]).unwrap_err().to_string(), expected);
}

#[test]
fn types_and_columns_are_parsed() {
    let query = parse(&[("type", "effect"), ("fields", "revenue,app"), ("fields", "pid")]).unwrap();
    assert_eq!(query.filter.event_type, Some(EventType::Effect));
    let names: Vec<_> = query.fields.iter().map(Field::name).collect();
    assert_eq!(names, ["revenue", "app", "pid"]);
    assert_eq!(parse(&[("type", "all")]).unwrap().filter.event_type, None);
    let query = parse(&[("fields", "pid,\"props.a,\"\"b\"")]).unwrap();
    assert_eq!(query.fields[1], Field::Prop("a,\"b".into()));
}

/// Every row is compared with all of them.
#[test]
fn a_status_that_is_named_often_counts_once() {
    let parsed = parse(&[
        ("status", "organic,rejected,organic"),
        ("status", "organic"),
        ("install_type", "install,install"),
    ]);
    let filter = parsed.unwrap().filter;
    let mut statuses = filter.statuses.unwrap();
    statuses.sort_unstable_by_key(|status| status.name());
    assert_eq!(statuses, [Status::Organic, Status::Rejected]);
    assert_eq!(filter.install_types, Some(vec![InstallType::Install]));
}

/// Otherwise a name with a comma would have the same text as two names.
#[test]
fn canonical_texts_of_lists_are_unambiguous() {
    let texts = |name, value| parse(&[(name, value)]).unwrap().texts()[name].clone();
    assert_eq!(texts("event_name", "b,a"), "a,b");
    assert_eq!(texts("event_name", "\"a,b\""), "\"a,b\"");
    assert_eq!(texts("fields", "props.a,props.b"), "props.a,props.b");
    assert_eq!(texts("fields", "\"props.a,props.b\""), "\"props.a,props.b\"");
}

#[test]
fn invalid_times_are_reported() {
    const FORMS: &str = "expected an RFC 3339 instant such as 2026-03-10T08:00:00+08:00, \
        or a local date-time such as 2026-03-10T08:00, or a date such as 2026-03-10";
    check_error(&[], &format!("from is missing, {FORMS}"));
    check_error(&[DAY[0]], &format!("to is missing, {FORMS}"));
    check_error(&[("from", "yesterday"), DAY[1]], &format!("from: {FORMS}: \"yesterday\""));
    check_error(&[DAY[0], ("to", "")], &format!("to: {FORMS}: \"\""));
    check_error(
        &[DAY[0], ("to", "2026-03-09")],
        "to: expected a time that is not before from = \"2026-03-10\": \"2026-03-09\"",
    );
    check_error(
        &[DAY[0], ("to", "2026-03-09T23:59:59.999")],
        "to: expected a time that is not before from = \"2026-03-10\": \"2026-03-09T23:59:59.999\"",
    );
    check_error(
        &[("from", "1969-12-31"), DAY[1]],
        "from: expected a time within 1970-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z: \
         \"1969-12-31\"",
    );
    check_error(
        &[DAY[0], ("to", "9999-12-31T23:59:59.9999Z")],
        "to: expected a time within 1970-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z: \
         \"9999-12-31T23:59:59.9999Z\"",
    );
}

#[test]
fn an_unclosed_quote_is_refused() {
    let check = |name: &str, value: &str, position: usize| {
        let expected =
            format!("{name}: the quote at character {position} is not closed: {value:?}");
        let preset = (name == ADDITIONAL_FIELDS).then_some((PRESET, "appsflyer"));
        let parameters: Vec<_> = DAY.into_iter().chain(preset).chain([(name, value)]).collect();
        check_error(&parameters, &expected);
    };
    check("event_name", "\u{fc},\"b", 3);
    check("channel", "\"", 1);
    check("status", "organic,\"organic", 9);
    check("spreadid", "7,\"8", 3);
    check("install_type", "\"install", 1);
    check("fields", "pid,\"props.a", 5);
    check("additional_fields", "\"oaid,att", 1);
}

#[test]
fn other_invalid_parameters_are_reported() {
    let long = "x".repeat(1_000);
    let shown = format!("{}\u{2026}", &long[..256]);
    check_error(
        &[DAY[0], DAY[1], ("type", &*long)],
        &format!("type: expected all, or activation, or effect: {shown:?}"),
    );
    check_more(
        ("timezone", "Asia/Shangai"),
        "timezone: expected an IANA time zone name such as Asia/Shanghai, or an offset such as +08:00, \
         the nearest is \"Asia/Shanghai\": \"Asia/Shangai\"",
    );
    check_more(
        ("timezone", "GMT+8"),
        "timezone: expected an IANA time zone name such as Asia/Shanghai, or an offset such as +08:00; \
         for GMT+8 write +08:00, which is Etc/GMT-8: signs of Etc names are inverted: \"GMT+8\"",
    );
    check_more(("type", "click"), "type: expected all, or activation, or effect: \"click\"");
    check_more(
        ("fields", "app,chanel"),
        "fields: unknown column, the nearest is \"channel\": \"chanel\"",
    );
    check_more(("fields", ""), "fields: unknown column, the nearest is \"ip\": \"\"");
    check_more(("fields", "app,pid,app"), "fields: this column is named twice: \"app\"");
    check_more(("to", "2026-03-11"), "to is given more than once");
    for name in ["prest", "From", "from ", ""] {
        let known = ExportQuery::PARAMETERS.join(", ");
        check_more((name, "x"), &format!("unknown parameter (allowed: {known}): {name:?}"));
    }
    check_more(
        ("status", "attributed,lost"),
        "status: expected attributed, or organic, or unattributed, or rejected, or duplicate, \
         or orphan: \"lost\"",
    );
    check_more(("event_name", "a,"), "event_name: expected a name: \"\"");
    for spreadid in ["", "-1", "+1", "4294967296", "x"] {
        let expected = format!("spreadid: expected a number from 0 to 4294967295: {spreadid:?}");
        check_more(("spreadid", spreadid), &expected);
    }
    for limit in ["", "0", "-1", "+1", "1e3", "18446744073709551616"] {
        check_more(
            ("limit", limit),
            &format!("limit: expected a number of rows, 1 or more: {limit:?}"),
        );
    }
    check_more(("dialect", "tsv"), "dialect: expected data, or excel: \"tsv\"");
    check_more(
        ("after", "AQ"),
        "after: expected the after of a Link of the same app, range and filters: \"AQ\"",
    );
    let ndjson = ExportQuery::parse(Format::Ndjson, DAY.into_iter().chain([("dialect", "excel")]));
    assert_eq!(ndjson.unwrap_err().to_string(), "dialect: expected data: \"excel\"");
}
