//! The lines of the audit log, over HTTP.

use std::io::Read;

use axum::body::Body;
use axum::http::Request;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;

use super::*;
use crate::http::hosts::Hosts;
use crate::http::router::{ROUTES, router};
use crate::tests::fixture::{Bed, EVENTS, entry, many_activations, past, token};

const DEVICE: &str = "/v1/apps/{app}/devices/{kind}/{value}";

/// A service of which nobody may download.
fn bed() -> Bed {
    Bed::with(many_activations(3), |config| {
        config.tokens = vec![entry("x", Some(1), None), entry("old", Some(1), past())];
        config.downloads_per_token_max = 0;
    })
}

/// Checks the lines since the last check: their message, and fields as `name=value`.
#[track_caller]
fn check_lines(bed: &Bed, request: &str, message: &str, expected: &[&str]) {
    let lines = bed.log.take_audit();
    assert_eq!(lines.len(), expected.len(), "{request}: {lines:?}");
    for (line, expected) in lines.iter().zip(expected) {
        let text = line.to_string();
        assert!(!["device-1", "a-1", "xxxx"].iter().any(|part| text.contains(part)), "{text}");
        assert_eq!(line["message"], message, "{text}");
        for field in expected.split(' ') {
            let (name, value) = field.split_once('=').unwrap();
            let found = match &line[name] {
                Value::String(text) => text.replace(' ', "_"),
                other => other.to_string(),
            };
            assert_eq!(found, value, "{request}: {text}");
        }
    }
}

fn get(bed: &Bed, target: &str) -> u64 {
    let authorization = format!("Authorization: Bearer {}", token("x"));
    bed.send_with(&format!("GET {target} HTTP/1.1"), &[&authorization]).body.len() as u64
}

#[test]
fn every_read_of_personal_data_writes_a_line() {
    let bed = bed();
    let check = |rest: &str, route: &str, status: u16| {
        let bytes = get(&bed, &format!("/v1/apps/app-x/{rest}"));
        let route = format!("/v1/apps/{{app}}/{route}");
        // A summary is written while it is sent, and a browser gets an error as a page.
        let is_unknown = rest.starts_with("summary") || status >= 400;
        let bytes = if is_unknown { "null".to_owned() } else { bytes.to_string() };
        let expected = format!("token=x app=app-x route={route} status={status} bytes={bytes}");
        check_lines(&bed, rest, "a request was answered", &[&expected]);
    };
    let range = "from=2026-03-10&to=2026-03-10";
    check("devices/oaid/device-1", "devices/{kind}/{value}", 200);
    check("devices/oaid/device-1?limit=none", "devices/{kind}/{value}", 400);
    check("activations/a-1/explain", "activations/{event_id}/explain", 200);
    check("activations/a-17/explain", "activations/{event_id}/explain", 404);
    check(&format!("campaigns/7/devices?{range}"), "campaigns/{spreadid}/devices", 200);
    check(&format!("summary?{range}&event_name=a-1"), "summary", 200);
    check(&format!("summary.csv?{range}&by=day"), "summary.csv", 200);
    for target in ["/v1/apps", "/v1/apps/app-x/campaigns", "/exports", "/devices", "/activations"] {
        get(&bed, target);
        check_lines(&bed, target, "", &[]);
    }
}

#[test]
fn lines_have_the_length_of_the_body_if_it_is_known() {
    let bed = bed();
    let authorization = format!("Authorization: Bearer {}", token("x"));
    let (device, range) = ("/v1/apps/app-x/devices/oaid/device-1", "from=2026-03-10&to=2026-03-10");
    let page = "/activations?app=app-x&event_id=a-1";
    for (request, header, is_known) in [
        (format!("GET {device}"), "Accept: */*", true),
        (format!("HEAD {device}"), "Accept: */*", true),
        (format!("HEAD /v1/apps/app-x/summary?{range}"), "Accept: */*", true),
        (format!("GET {device}?limit=none"), "Accept: text/html", false),
        (format!("GET {page}"), "Accept: text/html", true),
        (format!("GET {page}"), "Accept-Encoding: gzip", false),
    ] {
        let request_line = format!("{request} HTTP/1.1");
        let answer = bed.send_with(&request_line, &[&authorization, header]);
        let bytes = if is_known { answer.body.len().to_string() } else { "null".to_owned() };
        let expected = format!("status={} bytes={bytes}", answer.status);
        check_lines(&bed, &request, "a request was answered", &[&expected]);
    }
}

#[test]
fn lines_are_written_before_the_answer_is_sent() {
    let bed = bed();
    let service = TowerToHyperService::new(router(bed.state.clone(), Hosts::any()));
    let request = Request::builder()
        .uri("/v1/apps/app-x/summary?from=2026-03-10&to=2026-03-10")
        .header("authorization", format!("Bearer {}", token("x")));
    let answer = service.call(request.body(Body::empty()).unwrap());
    // The threads of the runtime have the log.
    let unread = bed.runtime.block_on(bed.runtime.spawn(answer)).unwrap().unwrap();
    check_lines(&bed, "a summary", "a request was answered", &["status=200 bytes=null"]);
    drop(unread);
}

#[test]
fn lookups_on_the_page_write_a_line() {
    let bed = bed();
    let cookie = bed.cookie("x");
    let page = |target: &str, route: &str, status: u16| {
        let answer =
            bed.send_with(&format!("GET {target} HTTP/1.1"), &["Accept: text/html", &cookie]);
        assert_eq!(answer.status, status);
        let expected = format!("token=x app=app-x route={route} status={status}");
        check_lines(&bed, target, "a request was answered", &[&expected]);
    };
    page("/activations?app=app-x&event_id=a-1", "/activations", 200);
    page("/activations?event_id=a-17", "/activations", 404);
    let form = "app=app-x&kind=oaid&value=device-1";
    let length = format!("Content-Length: {}", form.len());
    let headers = [&*cookie, &*length, "Sec-Fetch-Site: same-origin"];
    let redirect = bed.send_body("POST /devices HTTP/1.1", &headers, form.as_bytes());
    check_lines(&bed, "POST /devices", "", &[]);
    page(redirect.header("location").unwrap(), "/devices", 200);
}

#[test]
fn every_refusal_writes_a_line() {
    let bed = bed();
    let check = |request: &str, headers: &[&str], form: &str, expected: &str| {
        let length = format!("Content-Length: {}", form.len());
        let headers = [headers, &[&*length]].concat();
        bed.send_body(&format!("{request} HTTP/1.1"), &headers, form.as_bytes());
        let expected = format!("{expected} suppressed=0");
        check_lines(&bed, request, "a request was refused", &[&expected]);
    };
    let get = |target: &str, headers: &[&str], expected: &str| {
        check(&format!("GET {target}"), headers, "", expected);
    };
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    let [x, old] = [token("x"), token("old")];
    let wrong = x.replace("xxxx", "yyyy");
    let device = "/v1/apps/app-x/devices/oaid/device-1";
    let of_x = format!("app=app-x route={DEVICE}");
    get(device, &[], &format!("reason=no_token token=none status=401 {of_x}"));
    get("/a-1", &[], "reason=no_token token=none app=none route=other status=401");
    let unknown_app = "reason=no_token token=none app=none status=401";
    get("/v1/apps/device-1/summary", &[], unknown_app);
    let bad = |id: &str| format!("reason=bad_token token={id} status=401 {of_x}");
    get(device, &[&bearer(&wrong)], &bad("x"));
    get(device, &[&bearer(&token("a_1"))], &bad("none"));
    get(device, &[&bearer("device-1")], &bad("none"));
    get(device, &[&bearer(&old)], &format!("reason=expired token=old status=401 {of_x}"));
    get(device, &[&bed.cookie("old")], &format!("reason=expired token=old status=401 {of_x}"));
    let ended = "Cookie: adtrail_session=device-1";
    get(device, &[ended], &format!("reason=session token=none status=401 {of_x}"));
    let other = device.replace("app-x", "app%20y");
    let of_y = format!("reason=app token=x app=app_y status=404 route={DEVICE}");
    get(&other, &[&bearer(&x)], &of_y);
    let of_none = "reason=app token=x app=none status=404 route=/v1/apps/{app}/summary";
    get("/v1/apps/device-1/summary", &[&bearer(&x)], of_none);
    let events = "route=/v1/apps/{app}/events.csv";
    let downloads = format!("reason=downloads token=x app=app-x status=429 {events}");
    get(EVENTS, &[&bearer(&x)], &downloads);
    let form = format!("token={wrong}");
    let sign_in = "token=x app=none route=/sign-in status=401";
    let own = ["Sec-Fetch-Site: same-origin"];
    check("POST /sign-in", &own, &form, &format!("reason=bad_token {sign_in}"));
    for page in ["/sign-in", "/sign-out"] {
        let origin = format!("reason=origin token=none app=none route={page} status=400");
        check(&format!("POST {page}"), &["Origin: http://evil.example"], "", &origin);
    }
    let length = format!("Content-Length: {}", x.len() + "token=".len());
    let form = format!("token={x}");
    bed.send_body("POST /sign-in HTTP/1.1", &[&length, own[0]], form.as_bytes());
    check_lines(&bed, "POST /sign-in", "a session has begun", &["token=x"]);
}

#[test]
fn lines_have_the_id_of_their_request() {
    const SUMMARY: &str = "/v1/apps/app-x/summary?from=2026-03-10&to=2026-03-10";
    let bed = Bed::new(many_activations(3));
    let check = |target: &str, header: &str, status: u16, message: &str| {
        let answer = bed.send_with(&format!("GET {target} HTTP/1.1"), &[header]);
        let id = answer.header("x-request-id").unwrap().to_owned();
        assert_eq!((answer.status, id == "req-1"), (status, header == "X-Request-Id: req-1"));
        let line = bed.log.take_audit().remove(0);
        assert_eq!((&line["message"], &line["span"]["request_id"]), (&message.into(), &id.into()));
    };
    for header in ["X-Request-Id: req-1", "X-Request-Id: req 1", "X: y"] {
        check(SUMMARY, header, 200, "a request was answered");
        check(EVENTS, header, 200, "an export has ended");
    }
    let other = "X-Request-Id: req-1\r\nHost: evil.example";
    let refused = bed.send_with("GET /v1/apps HTTP/1.1", &[other]);
    let line = bed.log.take_audit().remove(0);
    assert_eq!((refused.status, &line["span"]["request_id"]), (421, &"req-1".into()));
}

/// Its body is dropped outside of the request.
#[test]
fn the_line_of_an_interrupted_download_has_the_id_of_its_request() {
    let bed = Bed::new(many_activations(100_000));
    let mut gone = bed.open(&format!("GET {EVENTS} HTTP/1.1\r\nX-Request-Id: req-1"));
    gone.read_exact(&mut [0; 4096]).unwrap();
    drop(gone);
    let mut lines = Vec::new();
    while lines.is_empty() {
        std::thread::sleep(Duration::from_millis(1));
        lines = bed.log.take_audit();
    }
    assert_eq!(lines[0]["outcome"], "aborted", "{lines:?}");
    assert_eq!(lines[0]["span"]["request_id"], "req-1", "{lines:?}");
}

#[test]
fn unaudited_routes_exist() {
    for route in UNAUDITED {
        assert!(ROUTES.iter().any(|(known, _)| *known == route), "{route}");
    }
}

#[test]
fn the_lines_of_refusals_are_limited_by_reason() {
    let refusals = Refusals::default();
    let start = Instant::now();
    let line = |reason, seconds| refusals.next_line(reason, start + Duration::from_secs(seconds));
    for _ in 0..LINES_MAX {
        assert_eq!(line("a", 0), Some(0));
    }
    for _ in 0..1_000 {
        assert_eq!(line("a", 59), None);
    }
    // Another reason has its own lines.
    assert_eq!(line("b", 59), Some(0));
    assert_eq!([line("a", 60), line("a", 60)], [Some(1_000), Some(0)]);
    for _ in 2..LINES_MAX {
        assert_eq!(line("a", 119), Some(0));
    }
    assert_eq!([line("a", 119), line("a", 119), line("a", 1_000)], [None, None, Some(2)]);
}
