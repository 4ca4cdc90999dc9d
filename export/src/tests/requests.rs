//! Requests at the limits of what is allowed, and response headers.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use attribution::facts::event::Fact;

use super::fixture::{Answer, Bed, DAY, EVENTS, MINUTE, activation, click, many_activations};
use super::{check_headers, check_problem};

const DAYS: &str = "from=2026-03-10&to=2026-03-10";
/// Ends a hang; far longer than any step takes.
const DEADLINE: Duration = Duration::from_secs(120);
const REPORT: &str = "/api/raw-data/export/app/app-x/installs_report/v5";

/// Three installs of three devices, all credited to one campaign.
fn credited() -> Bed {
    let install = |n: u64| {
        let (device, time) = (format!("d{n}"), DAY + n * 120 * MINUTE);
        let install = Fact::Activation(activation(&format!("a-{n}"), &device, time));
        [click(7, &format!("c-{n}"), &device, time - MINUTE), install]
    };
    Bed::new((1..=3).flat_map(install).collect())
}

/// All headers except those of the body, and except the id of an export, which only `GET` has.
fn headers(answer: &Answer) -> BTreeSet<(String, String)> {
    const OTHERS: [&str; 6] = [
        "adtrail-export-id",
        "x-request-id",
        "trailer",
        "date",
        "content-length",
        "transfer-encoding",
    ];
    let headers = answer.headers.iter().cloned();
    headers.filter(|(name, _)| !OTHERS.contains(&&**name)).collect()
}

#[test]
fn head_has_the_same_headers_as_get() {
    let bed = credited();
    let app = "/v1/apps/app-x";
    let targets = [
        (false, EVENTS.to_owned()),
        (true, format!("{EVENTS}&limit=2")),
        (false, format!("{EVENTS}&limit=3")),
        (true, format!("{app}/events.ndjson?{DAYS}&limit=1&type=activation")),
        (true, format!("{app}/campaigns/7/devices?{DAYS}&limit=2")),
        (false, format!("{app}/campaigns/7/devices?{DAYS}&limit=3")),
        (true, format!("{app}/devices/oaid/d1?limit=1")),
        (false, format!("{app}/summary.csv?{DAYS}")),
        (false, format!("{REPORT}?{DAYS}")),
        (false, format!("{app}/activations/a-1/explain")),
        (false, "/v1/apps".to_owned()),
    ];
    for (has_next, target) in targets {
        let [get, head] =
            ["GET", "HEAD"].map(|method| bed.send(&format!("{method} {target} HTTP/1.1")));
        assert_eq!((get.status, head.status, head.body.len()), (200, 200, 0), "{target}");
        assert_eq!(headers(&get), headers(&head), "{target}");
        let length = head.header("content-length");
        assert!(length.is_none() || length == get.header("content-length"), "{target}");
        assert_eq!(head.header("link").is_some(), has_next, "{target}");
        assert_eq!(head.header("adtrail-export-id"), None, "{target}");
    }
}

/// While `HEAD` reads to the end of a page, it counts as a download.
#[test]
fn head_of_a_page_counts_as_a_download() {
    let bed = Bed::new(many_activations(3));
    let all = bed.state.scans.clone().try_acquire_many_owned(64).unwrap();
    let head = |more: &str| bed.send(&format!("HEAD {EVENTS}{more} HTTP/1.1")).status;
    assert_eq!((head(""), head("&limit=1")), (200, 503));
    // A report has no pages.
    let report = format!("HEAD {REPORT}?{DAYS}&maximum_rows=1 HTTP/1.1");
    assert_eq!(bed.send(&report).status, 200);
    drop(all);
    assert_eq!(head("&limit=1"), 200);
    let started = Instant::now();
    while bed.state.scans.available_permits() < 64 {
        assert!(started.elapsed() < DEADLINE, "the permit was not released");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_range_may_end_with_the_last_day_of_9999() {
    let bed = Bed::new(many_activations(3));
    for (zone, end) in [
        ("UTC", "9999-12-31T23:59:59.999Z"),
        ("America/New_York", "9999-12-31T23:59:59.999Z"),
        ("Asia/Shanghai", "9999-12-31T16:00:00.000Z"),
    ] {
        for path in ["events.csv", "events.ndjson", "summary", "summary.csv", "campaigns/7/devices"]
        {
            let target =
                format!("/v1/apps/app-x/{path}?from=2026-03-10&to=9999-12-31&timezone={zone}");
            let answer = bed.get(&target);
            assert_eq!(answer.status, 200, "{target}: {}", answer.text());
            assert_eq!(answer.header("adtrail-range-to"), Some(end), "{target}");
        }
    }
    for zone in ["UTC", "Asia%2FShanghai"] {
        let page = bed.get(&format!("/?app=app-x&from=2026-03-10&to=9999-12-31&timezone={zone}"));
        assert!(page.status == 200 && page.text().contains("All 3 rows"), "{}", page.text());
    }
    let rows =
        bed.get(&format!("{}&fields=event_id", EVENTS.replace("to=2026-03-10", "to=9999-12-31")));
    assert_eq!(rows.text().lines().count(), 4);
    let summary = bed.get("/v1/apps/app-x/summary.csv?from=1970-01-01&to=9999-12-31");
    assert!(summary.text().ends_with(",3,0\n"), "{}", summary.text());
    // The Pull API includes the named minute.
    let report = format!("{REPORT}?from=2026-03-10");
    for to in ["9999-12-31", "9999-12-31%2023:59", "9999-12-31%2023:59:59"] {
        let answer = bed.get(&format!("{report}&to={to}"));
        assert_eq!(answer.status, 200, "{to}");
        assert_eq!(answer.header("adtrail-range-to"), Some("9999-12-31T23:59:59.999Z"), "{to}");
    }
}

#[test]
fn invalid_utf8_is_refused_in_any_parameter() {
    let bed = Bed::new(many_activations(3));
    for target in [
        EVENTS,
        "/v1/apps/app-x/summary?from=2026-03-10&to=2026-03-10",
        "/v1/apps/app-x/devices/oaid/d1?timezone=UTC",
        "/v1/apps?x=1",
    ] {
        let check = |more: &str, kind: &str, parameter: Option<&str>| {
            check_problem(&bed.get(&format!("{target}&{more}")), 400, kind, parameter);
        };
        check("event_name=a%FFb", "bad-parameter", Some("event_name"));
        check("props%2E=%ED%A0%80", "bad-parameter", Some("props."));
        check("%ff=1", "bad-query", None);
        check("%ff", "bad-query", None);
    }
    for more in ["media_source=%ff", "additional_fields=%ff", "event_name=%C3"] {
        let answer = bed.get(&format!("{REPORT}?{DAYS}&{more}"));
        assert_eq!(answer.status, 400, "{more}");
        let name = more.split_once('=').unwrap().0;
        assert!(answer.json()["message"].as_str().unwrap().starts_with(name), "{more}");
    }
    let answer = bed.send_body(
        "POST /devices HTTP/1.1",
        &["Sec-Fetch-Site: same-origin", "Content-Length: 31"],
        b"app=app-x&kind=oaid&value=%ff%ff",
    );
    assert_eq!(answer.status, 400);
}

#[test]
fn only_clients_that_prefer_html_get_pages() {
    let bed = Bed::new(vec![]);
    let check = |accept: &[&str], is_page: bool| {
        let accept: Vec<_> = accept.iter().map(|accept| format!("Accept: {accept}")).collect();
        let accept: Vec<_> = accept.iter().map(|accept| &**accept).collect();
        let answer = bed.send_with("GET /v1/nothing HTTP/1.1", &accept);
        let expected =
            if is_page { "text/html; charset=utf-8" } else { "application/problem+json" };
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (404, Some(expected)),
            "{accept:?}"
        );
    };
    check(&[], false);
    check(&["*/*"], false);
    check(&["text/html"], true);
    check(&["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"], true);
    check(&["TEXT/HTML ; Q=0.1"], true);
    check(&["text/plain", "text/html;level=1"], true);
    for refused in
        ["text/html;q=0", "text/html; q=0.0", "text/html;level=1;q=0.000", "text/html ;Q=0"]
    {
        check(&[refused], false);
        check(&[&format!("application/json, {refused}")], false);
    }
    check(&["text/htmlx", "x-text/html"], false);
    check(&["application/problem+json, text/html;q=0.5"], false);
    check(&["application/json;q=0.4, text/html;q=0.5"], true);
    check(&["text/html;q=x"], false);
}

#[test]
fn headers_describe_an_export() {
    let answer = Bed::new(vec![]).get(&format!("{EVENTS}&timezone=Asia/Shanghai"));
    let file = "attachment; filename=\"app-x_2026-03-10_2026-03-10_Asia-Shanghai.csv\"";
    let expected = [
        ("content-type", Some("text/csv; charset=utf-8; header=present")),
        ("content-disposition", Some(file)),
        ("adtrail-range-from", Some("2026-03-09T16:00:00.000Z")),
        ("adtrail-range-to", Some("2026-03-10T16:00:00.000Z")),
        ("adtrail-complete-until", Some("2026-03-10T00:00:00.001Z")),
        ("content-length", None),
    ];
    check_headers(&answer, &expected);
}
