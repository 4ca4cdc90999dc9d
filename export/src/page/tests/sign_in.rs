//! Signing in and out, and sessions.

use super::{SAME_ORIGIN, by, closed, has, hidden, look_up, page, post};
use crate::tests::fixture::{EVENTS, token};

#[test]
fn signing_in_and_out_works_only_from_our_own_pages() {
    let bed = closed();
    let sign_in = page(&bed, "/exports?a=b");
    assert_eq!((sign_in.status, sign_in.header("www-authenticate")), (401, Some("Bearer")));
    has(&sign_in, &["type=\"password\"", "name=\"next\" value=\"&#x2f;exports?a=b\""]);
    assert!(!sign_in.text().contains("wrong"), "{}", sign_in.text());
    let form = |token: &str, next: &str| {
        serde_urlencoded::to_string([("token", token), ("next", next)]).unwrap()
    };
    let signed_in =
        post(&bed, "/sign-in", &form(&format!(" {} ", token("x")), "/exports"), &[SAME_ORIGIN]);
    assert_eq!((signed_in.status, signed_in.header("location")), (303, Some("/exports")));
    let cookie = signed_in.header("set-cookie").unwrap();
    assert_eq!(cookie, format!("adtrail_token={}; Path=/; HttpOnly; SameSite=Strict", token("x")));
    // A request that is not for a page leads back to the page that sent it.
    let from = |request: &str, referer: &str, expected: &str| {
        let referer = format!("Referer: {referer}");
        let sign_in =
            bed.send_with(&format!("{request} HTTP/1.1"), &["Accept: text/html", &referer]);
        assert_eq!((sign_in.status, &*hidden(&sign_in, "next")), (401, expected), "{request}");
    };
    let home = "http://adtrail/?app=app-x";
    let sent = "/download?app=app-x&range=last7&export_id=f000000000000001";
    from(&format!("GET {sent}"), home, "/?app=app-x&range=last7");
    from(&format!("GET {EVENTS}"), "http://adtrail/exports?app=a", "/exports?app=a");
    let pull = "/api/raw-data/export/app/app-x/reinstalls/v5?from=2026-03-10&to=2026-03-10";
    from(&format!("GET {pull}"), "http://adtrail/exports", "/exports");
    from(&format!("GET {EVENTS}"), "", EVENTS);
    from(&format!("GET {EVENTS}"), "http://evil.example/exports", EVENTS);
    from("GET /devices?app=app-x", home, "/devices?app=app-x");
    from("POST /devices", "http://adtrail/devices?app=app-x", "/devices?app=app-x");
    from("POST /devices", "", "/devices");
    let elsewhere = post(&bed, "/sign-in", &form(&token("x"), "//evil.example"), &[SAME_ORIGIN]);
    assert_eq!(elsewhere.header("location"), Some("/"));
    let secure =
        post(&bed, "/sign-in", &form(&token("x"), "/"), &[SAME_ORIGIN, "X-Forwarded-Proto: https"]);
    assert!(secure.header("set-cookie").unwrap().ends_with("; Secure"));
    for (wrong, message) in [
        (token("old"), "this token has expired"),
        (token("q"), "unknown token"),
        ("adt_x".into(), "not a complete token"),
        (String::new(), "not a complete token"),
    ] {
        let answer = post(&bed, "/sign-in", &form(&wrong, "/"), &[SAME_ORIGIN]);
        assert_eq!((answer.status, answer.header("set-cookie")), (401, None));
        has(&answer, &[message, "aria-invalid"]);
        assert!(!answer.text().contains("xxxx"));
    }
    // Forms of other sites are refused, and the size of a form is limited.
    for headers in [&["Sec-Fetch-Site: cross-site"][..], &["Origin: http://evil.example"], &[]] {
        for target in ["/sign-in", "/sign-out"] {
            let answer = post(&bed, target, &form(&token("x"), "/"), headers);
            assert_eq!((answer.status, answer.header("set-cookie")), (400, None), "{target}");
        }
    }
    assert_eq!(post(&bed, "/sign-in", &form(&"x".repeat(9_000), "/"), &[SAME_ORIGIN]).status, 400);
    let out = post(&bed, "/sign-out", "", &[SAME_ORIGIN]);
    assert!(out.header("set-cookie").unwrap().starts_with("adtrail_token=; Max-Age=0; "));
}

#[test]
fn a_session_is_the_token_in_a_cookie() {
    let bed = closed();
    has(&by(&bed, "/", "x"), &["Token <bdi>x</bdi>", "Sign out", "app-x"]);
    let file = by(&bed, EVENTS, "x");
    assert!(file.status == 200 && file.is_ended);
    assert_eq!(
        by(&bed, "/v1/apps/app%20y/events.csv?from=2026-03-10&to=2026-03-10", "x").status,
        404
    );
    let expired = by(&bed, "/", "old");
    assert_eq!(expired.status, 401);
    has(&expired, &["this token has expired"]);
    // Only our own pages may post.
    let cookie = format!("Cookie: adtrail_token={}", token("x"));
    let form = "app=app-x&kind=oaid&value=device-1";
    assert_eq!(look_up(&bed, form, &[&cookie]).status, 200);
    assert_eq!(post(&bed, "/devices", form, &[&cookie, "Origin: http://evil.example"]).status, 401);
    assert_eq!(post(&bed, "/devices", form, &[&cookie]).status, 401);
    let other = look_up(&bed, "app=app+y&kind=oaid&value=device-1", &[&cookie]);
    assert_eq!(other.status, 404);
    has(&other, &["No app has this key"]);
}
