//! Malformed requests of all kinds get a problem and never cause an internal error.

use serde_json::json;

use super::fixture::{Bed, EVENTS, many_activations};
use super::{bed, check_headers, check_problem};
use crate::{ExportQuery, fuzz};

const DAYS: &str = "&from=2026-03-10&to=2026-03-10";

const NAMES: &str = "from to timezone type event_name status channel spreadid install_type fields dialect preset limit \
                     after by media_source currency additional_fields maximum_rows";

/// Invalid values, as they appear in a URL.
#[rustfmt::skip]
const NONSENSE: [&str; 30] = [
    "", "%20", "%00", "%0d%0a", "%ff", "%C3%28", "%ED%A0%80", "%F4%90%80%80", "%", "%zz", "%2", "+", "&", "=", "==",
    "null", "-1", "0", "1e99", "NaN", "18446744073709551616", "[]", "{}", "%22", "%22%22%22", ",,,",
    "..%2F..%2Fetc%2Fpasswd", "'%20OR%201=1--", "%E2%80%AE%F0%9F%A6%80", "props.",
];

/// The fuzz targets check errors and accepted queries.
#[test]
fn nonsense_in_any_parameter_is_refused_or_ignored() {
    let is_of_queries = |name| ["query", "short-answers", "appsflyer", "page"].contains(&name);
    let targets = fuzz::TARGETS.iter().filter(|(name, _)| is_of_queries(*name));
    for name in NAMES.split(' ') {
        for value in NONSENSE {
            // Some targets take the endpoint from the first byte; a timeline has no range.
            for (first, range) in [("", DAYS), ("0", DAYS), ("1", ""), ("2", DAYS)] {
                let input = format!("{first}{name}={value}{range}");
                targets.clone().for_each(|(_, target)| target(input.as_bytes()));
            }
        }
    }
}

#[test]
fn malformed_paths_are_not_found() {
    let bed = Bed::new(vec![]);
    for path in [
        "/v1/apps/%00/campaigns",
        "/v1/apps/%2F/campaigns",
        "/v1/apps/../apps",
        "/v1//apps",
        "/%2e%2e",
        "/v1/apps/app-x%00/campaigns",
        "/v1/apps/APP-X/campaigns",
        "/v1/exports/%00",
        "/v1/exports/-1",
    ] {
        assert_eq!(bed.get(path).status, 404, "{path}");
    }
}

/// A response to an error does not grow with the request.
#[test]
fn long_texts_of_clients_are_cut() {
    let bed = Bed::new(vec![]);
    let ellipsis = '\u{2026}';
    // The most that escapes can make of a character.
    let long = "%22".repeat(20_000);
    let report = "/api/raw-data/export/app/app-x/installs_report/v5";
    for (method, target) in [
        ("GET", format!("/v1/{long}")),
        ("GET", format!("/assets/{long}")),
        ("GET", format!("/v1/apps/{long}/campaigns")),
        ("GET", format!("/v1/apps/app-x/campaigns/{long}/devices?x=1{DAYS}")),
        ("GET", format!("/v1/apps/app-x/devices/{long}/1")),
        ("GET", format!("/v1/apps/app-x/activations/{long}/explain")),
        ("GET", format!("/v1/exports/{long}")),
        ("GET", format!("{EVENTS}&{long}=1")),
        ("GET", format!("{EVENTS}&{long}=%ff")),
        ("GET", format!("{EVENTS}&status=x{long}")),
        ("GET", format!("{EVENTS}&channel=x{long}")),
        ("GET", format!("{EVENTS}&timezone=x{long}")),
        ("GET", format!("{report}?x{long}=1{DAYS}")),
        ("GET", format!("{}?x=1{DAYS}", report.replace("installs_report", &long))),
        (&*"A".repeat(60_000), "/v1/apps".to_owned()),
    ] {
        for accept in ["application/json", "text/html"] {
            let accept = format!("Accept: {accept}");
            let answer = bed.send_with(&format!("{method} {target} HTTP/1.1"), &[&accept]);
            let start = &target[..target.len().min(60)];
            assert!((400..500).contains(&answer.status), "{} of {start}", answer.status);
            assert!(answer.text().contains(ellipsis), "{start}: {}", answer.text());
            assert!(answer.body.len() < 8 << 10, "{start}: {} bytes", answer.body.len());
        }
    }
}

#[test]
fn filters_may_have_thousands_of_values() {
    let bed = Bed::new(many_activations(3));
    let rows = |more: &str| {
        let answer = bed.get(&format!("{EVENTS}&fields=event_id{more}"));
        (answer.status, answer.text().lines().count())
    };
    let numbers: Vec<_> = (0..10_000).map(|n: u32| n.to_string()).collect();
    assert_eq!(rows(&format!("&spreadid={}", numbers.join(","))), (200, 4));
    let repeated = "&spreadid=0".repeat(5_000);
    assert_eq!(rows(&repeated), (200, 4));
    let names: Vec<_> = (0..10_000).map(|n: u32| format!("e{n:x}")).collect();
    assert_eq!(rows(&format!("&event_name={},activation", names.join(","))), (200, 4));
    assert_eq!(rows(&format!("&status={}", ["organic"; 8_000].join(","))), (200, 4));
    let props: Vec<_> = (0..4_000).map(|n: u32| format!("props.{n}")).collect();
    assert_eq!(rows(&format!(",{}", props.join(","))), (200, 4));
}

/// Flips each bit of a cursor, and uses it for other routes.
#[test]
fn a_modified_cursor_is_refused() {
    let bed = Bed::new(many_activations(4));
    let refused = |target: &str, cursor: &str| {
        let answer = bed.get(&format!("{target}&after={cursor}"));
        assert_eq!(
            (answer.status, &answer.json()["parameter"]),
            (400, &"after".into()),
            "{cursor}"
        );
    };
    let first = bed.get(&format!("{EVENTS}&limit=2"));
    let cursor = first.cursor();
    for target in [EVENTS, &EVENTS.replace("csv", "ndjson")] {
        assert_eq!(bed.get(&format!("{target}&after={cursor}")).status, 200);
    }
    refused(&EVENTS.replace("events.csv", "campaigns/7/devices"), cursor);
    refused("/v1/apps/app-x/devices/oaid/device-1?", cursor);
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let all: u32 = cursor.len() as u32 * 6;
    for bit in 0..all {
        let (index, bit) = ((bit / 6) as usize, bit % 6);
        let mut changed = cursor.as_bytes().to_vec();
        let digit = DIGITS.iter().position(|digit| *digit == changed[index]).unwrap();
        changed[index] = DIGITS[digit ^ (1 << bit)];
        refused(EVENTS, std::str::from_utf8(&changed).unwrap());
    }
    for cursor in [
        &cursor[1..],
        &cursor[..cursor.len() - 1],
        &format!("{cursor}="),
        &format!("{cursor}A"),
        "",
    ] {
        refused(EVENTS, cursor);
    }
}

#[test]
fn invalid_requests_are_problems() {
    let bed = bed();
    let check = |target: &str, status, kind, parameter| {
        check_problem(&bed.get(target), status, kind, parameter);
    };
    check("/v1/apps/app-z/events.csv", 404, "unknown-app", None);
    check("/v1/apps/%ff/events.csv", 404, "not-found", None);
    check("/v1/apps/app-x/events.xlsx", 404, "not-found", None);
    check("/v1/apps/app-x/events.csv/", 404, "not-found", None);
    check("/v1/apps?x=1", 400, "unknown-parameter", Some("x"));
    check("/v1/apps/app-x/events.csv?to=2026-03-10", 400, "missing-parameter", Some("from"));
    check(&format!("{EVENTS}&to=2026-03-11"), 400, "repeated-parameter", Some("to"));
    check(&format!("{EVENTS}&fields=nope"), 400, "bad-parameter", Some("fields"));
    let pull = EVENTS.replace("/v1/apps/", "/api/raw-data/export/app/");
    let pull = pull.replace("events.csv", "installs_report/v5");
    for address in [EVENTS, &EVENTS.replace("csv", "ndjson"), &pull] {
        let address = format!("{address}&limt=5&export_id=f0000000000000ff");
        let problem = bed.get(&address).json();
        let detail = problem["detail"].as_str().or(problem["error"].as_str()).unwrap();
        assert!(detail.contains("export_id"), "{detail}");
    }
    let problem = bed.get(&format!("{EVENTS}&limt=5")).json();
    assert_eq!(problem["allowed"], json!(ExportQuery::PARAMETERS));
    assert!(problem["allowed"].as_array().unwrap().contains(&"export_id".into()));
    let problem = bed.get(&format!("{EVENTS}&channel=toutiao")).json();
    let detail = "channel: no campaign of the app has this channel, the nearest is \"tou,tiao\": \
                  \"toutiao\"";
    assert_eq!(problem["detail"], detail);
    let problem = bed.get(&format!("{EVENTS}&fields=chanel")).json();
    assert_eq!(problem["allowed"].as_array().map(Vec::len), Some(78));
}

#[test]
fn other_methods_and_versions_are_refused() {
    let bed = bed();
    for method in ["POST", "DELETE", "OPTIONS", "BREW"] {
        for target in ["/", "/v1/apps", EVENTS] {
            let answer = bed.send(&format!("{method} {target} HTTP/1.1"));
            check_problem(&answer, 405, "method-not-allowed", None);
            check_headers(&answer, &[("allow", Some("GET,HEAD"))]);
        }
    }
    check_problem(&bed.send(&format!("GET {EVENTS} HTTP/1.0")), 505, "http-version", None);
}
