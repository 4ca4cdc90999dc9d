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
    let (id, attributes) =
        cookie.strip_prefix("adtrail_session=").unwrap().split_once(';').unwrap();
    assert_eq!((id.len(), attributes), (43, " Path=/; HttpOnly; SameSite=Strict"));
    // A request that is not for a page leads back to the page that sent it.
    let from = |request: &str, referer: &str, expected: &str| {
        let referer = format!("Referer: {referer}");
        let sign_in =
            bed.send_with(&format!("{request} HTTP/1.1"), &["Accept: text/html", &referer]);
        assert_eq!((sign_in.status, &*hidden(&sign_in, "next")), (401, expected), "{request}");
    };
    let home = "http://localhost/?app=app-x";
    let sent = "/download?app=app-x&range=last7&export_id=f000000000000001";
    from(&format!("GET {sent}"), home, "/?app=app-x&range=last7");
    from(&format!("GET {EVENTS}"), "http://localhost/exports?app=a", "/exports?app=a");
    let pull = "/api/raw-data/export/app/app-x/reinstalls/v5?from=2026-03-10&to=2026-03-10";
    from(&format!("GET {pull}"), "http://localhost/exports", "/exports");
    from(&format!("GET {EVENTS}"), "", EVENTS);
    from(&format!("GET {EVENTS}"), "http://evil.example/exports", EVENTS);
    from("GET /devices?app=app-x", home, "/devices?app=app-x");
    from("GET /callbacks?app=app-x", home, "/callbacks?app=app-x");
    from("POST /devices", "http://localhost/devices?app=app-x", "/devices?app=app-x");
    from("POST /devices", "", "/devices");
    let elsewhere = post(&bed, "/sign-in", &form(&token("x"), "//evil.example"), &[SAME_ORIGIN]);
    assert_eq!(elsewhere.header("location"), Some("/"));
    let secure =
        post(&bed, "/sign-in", &form(&token("x"), "/"), &[SAME_ORIGIN, "X-Forwarded-Proto: https"]);
    let secure = secure.header("set-cookie").unwrap();
    assert!(
        secure.starts_with("__Host-adtrail_session=") && secure.ends_with("; Secure"),
        "{secure}"
    );
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
    assert!(out.header("set-cookie").unwrap().starts_with("adtrail_session=; Max-Age=0; "));
}

#[test]
fn a_session_reads_what_its_token_may_read() {
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
    let cookie = bed.cookie("x");
    let form = "app=app-x&kind=oaid&value=device-1";
    assert_eq!(look_up(&bed, form, &[&cookie]).status, 200);
    assert_eq!(post(&bed, "/devices", form, &[&cookie, "Origin: http://evil.example"]).status, 401);
    assert_eq!(post(&bed, "/devices", form, &[&cookie]).status, 401);
    let other = look_up(&bed, "app=app+y&kind=oaid&value=device-1", &[&cookie]);
    assert_eq!(other.status, 404);
    has(&other, &["No app has this key"]);
}

/// The server forgets a session when the user signs out or signs in again, so that a copy of the cookie is useless.
#[test]
fn a_session_ends_by_signing_out_or_in_again() {
    let bed = closed();
    let sign_in = |cookie: &str, scheme: &str| {
        let form = format!("token={}", token("x"));
        let answer = post(&bed, "/sign-in", &form, &[SAME_ORIGIN, cookie, scheme]);
        let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap();
        format!("Cookie: {cookie}")
    };
    let status = |cookie: &str, scheme: &str| {
        let headers = ["Accept: text/html", cookie, scheme];
        bed.send_with("GET /exports HTTP/1.1", &headers).status
    };
    for scheme in ["X-Forwarded-Proto: http", "X-Forwarded-Proto: https"] {
        let first = sign_in("Cookie: a=b", scheme);
        assert_eq!(status(&first, scheme), 200);
        let second = sign_in(&first, scheme);
        let other = sign_in("Cookie: a=b", scheme);
        assert_ne!(first, second);
        assert_eq!([status(&first, scheme), status(&second, scheme)], [401, 200]);
        // A form of another site ends nothing.
        let foreign = [&*second, scheme, "Origin: http://evil.example"];
        assert_eq!(post(&bed, "/sign-out", "", &foreign).status, 400);
        assert_eq!(status(&second, scheme), 200);
        assert_eq!(post(&bed, "/sign-out", "", &[&*second, scheme, SAME_ORIGIN]).status, 303);
        assert_eq!([status(&second, scheme), status(&other, scheme)], [401, 200]);
        let again = bed.send_with("GET /exports HTTP/1.1", &["Accept: text/html", &second, scheme]);
        has(&again, &["this session has ended; sign in again", "value=\"&#x2f;exports\""]);
        // The cookie of one scheme does not count over the other.
        let without = if scheme.ends_with("https") { "X-A: b" } else { "X-Forwarded-Proto: https" };
        assert_eq!(status(&other, without), 401);
    }
    // A token is not the id of a session.
    let cookie = format!("Cookie: adtrail_session={}", token("x"));
    assert_eq!(status(&cookie, "X-A: b"), 401);
}
