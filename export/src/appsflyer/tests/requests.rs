//! Requests of the Pull API, and its errors.

use serde_json::Value;

use super::{MONTH, bed, pull};
use crate::appsflyer::field_list;
use crate::http::state::SCANS_MAX;
use crate::tests::fixture::Answer;
use crate::{ExportQuery, Format};

/// Checks an error in the form that connectors parse.
#[track_caller]
fn check_refused(answer: &Answer, status: u16, part: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(!answer.text().contains('\n'), "one line, for clients that read lines");
    let error = answer.json();
    assert!(error["error"].as_str().unwrap().contains(part), "{error}");
    assert_eq!(error["error"], error["message"]);
    assert_eq!(error["status"], status);
}

#[test]
fn errors_are_json() {
    let bed = bed();
    let check = |more: &str, part: &str| {
        check_refused(&pull(&bed, "installs_report", more), 400, part);
    };
    check("to=2026-03-10", "from is missing");
    check("from=10.3.2026&to=2026-03-10", "from: expected");
    check(&format!("{MONTH}&maximum_rows=0"), "maximum_rows: expected");
    check(&format!("{MONTH}&currency=CNY"), "currency: expected preferred, or USD");
    check(&format!("{MONTH}&media_source=kua"), "the nearest is \"kuai\"");
    check(&format!("{MONTH}&media_source=%22a,b"), "media_source: the quote at character 1 is");
    check(&format!("{MONTH}&from=2026-03-02"), "from is given more than once");
    check(&format!("{MONTH}&geo=CN"), "unknown parameter (allowed: from, to, timezone,");
    check(&format!("{MONTH}&timezone=%ff"), "timezone");
    let report = pull(&bed, "uninstall_events_report", MONTH);
    check_refused(&report, 404, "(allowed: installs_report, in_app_events_report");
    let api = "/api/raw-data/export/app";
    check_refused(&bed.get(&format!("{api}/app-z/installs_report/v5?{MONTH}")), 404, "app-z");
    check_refused(&bed.get(&format!("{api}/app-x/installs_report/v6?{MONTH}")), 404, "this path");
    check_refused(&bed.get("/api/"), 404, "this path");
    let post = bed.send(&format!("POST {api}/app-x/installs_report/v5?{MONTH} HTTP/1.1"));
    check_refused(&post, 405, "GET or HEAD");
    assert_eq!(post.header("allow"), Some("GET,HEAD"));
    let old = bed.send(&format!("GET {api}/app-x/installs_report/v5?{MONTH} HTTP/1.0"));
    check_refused(&old, 505, "HTTP/1.1");
    let all = bed.state.scans.clone().try_acquire_many_owned(SCANS_MAX as u32).unwrap();
    let busy = pull(&bed, "installs_report", MONTH);
    check_refused(&busy, 429, "too many downloads");
    assert_eq!(busy.header("retry-after"), Some("10"));
    drop(all);
    // Other paths keep their form.
    let other = bed.get("/v1/apps/app-z/events.csv");
    assert_eq!(other.header("content-type"), Some("application/problem+json"));
}

#[test]
fn a_report_is_an_ordinary_export() {
    let bed = bed();
    let target = format!("/api/raw-data/export/app/app-x/installs_report/v5?{MONTH}");
    let answer = bed.send_with(&format!("GET {target} HTTP/1.1"), &["TE: trailers"]);
    assert_eq!(answer.trailers[0], ("adtrail-rows".to_owned(), "2".to_owned()));
    let file = "app-x_installs-report_2026-03-01_2026-03-31_UTC.csv";
    let disposition = format!("attachment; filename=\"{file}\"");
    assert_eq!(answer.header("content-disposition"), Some(&*disposition));
    let id = answer.header("adtrail-export-id").unwrap();
    let export = bed.get(&format!("/v1/exports/{id}")).json();
    assert_eq!((&export["state"], &export["file"]), (&Value::from("complete"), &Value::from(file)));
    let packed = bed.send_with(&format!("GET {target} HTTP/1.1"), &["Accept-Encoding: gzip"]);
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
}

#[test]
fn a_preset_allows_only_its_own_columns() {
    let check = |format: Format, more: &[(&str, &str)], expected: &str| {
        let day = [("from", "2026-03-10"), ("to", "2026-03-10")];
        let params = day.into_iter().chain(more.iter().copied());
        assert_eq!(ExportQuery::parse(format, params).unwrap_err().to_string(), expected);
    };
    let appsflyer = ("preset", "appsflyer");
    check(Format::Csv, &[("preset", "x")], "preset: expected native, or appsflyer: \"x\"");
    check(Format::Ndjson, &[appsflyer], "preset: expected native: \"appsflyer\"");
    let fields = "fields: not allowed with preset = appsflyer, use additional_fields: \"pid\"";
    check(Format::Csv, &[appsflyer, ("fields", "pid")], fields);
    let additional = "additional_fields: not allowed with preset = native: \"oaid\"";
    check(Format::Csv, &[("additional_fields", "oaid")], additional);
    assert_eq!(field_list::fields(std::iter::empty()).len(), 81);
}
