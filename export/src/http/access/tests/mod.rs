//! Authentication and authorization over HTTP.

mod isolation;

use std::io::Read;

use attribution::facts::event::{Fact, Pid};
use jiff::SignedDuration;
use serde_json::json;

use super::*;
use crate::tests::fixture::{
    Answer, Bed, DAY, EVENTS, MINUTE, activation, click, effect, entry, many_activations, past,
    token,
};

/// The time this many seconds from now.
fn soon(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp::now() + SignedDuration::from_secs(seconds))
}

/// Tokens for `app-x`, for `app y` and for both, one that expires tomorrow and one that has expired.
fn closed(facts: Vec<Fact>, downloads_per_token_max: usize) -> Bed {
    Bed::with(facts, |config| {
        config.tokens = vec![
            entry("x", Some(1), None),
            entry("y", Some(2), None),
            entry("all", None, None),
            entry("lasting", Some(1), soon(86_400)),
            entry("expired", Some(1), past()),
        ];
        config.downloads_per_token_max = downloads_per_token_max;
    })
}

fn get_with(bed: &Bed, target: &str, headers: &[&str]) -> Answer {
    bed.send_with(&format!("GET {target} HTTP/1.1"), headers)
}

fn get_by(bed: &Bed, target: &str, id: &str) -> Answer {
    get_with(bed, target, &[&format!("Authorization: Bearer {}", token(id))])
}

#[track_caller]
fn check_problem(answer: &Answer, status: u16, kind: &str, detail: &str) {
    let problem = answer.json();
    assert_eq!((answer.status, &problem["type"]), (status, &json!(format!("/problems/{kind}"))));
    assert_eq!(problem["detail"], detail);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.header("www-authenticate"), (status == 401).then_some("Bearer"));
    assert!(!answer.text().contains("xxxx"), "{}", answer.text());
}

/// A browser may send an old cookie of another path or domain beside the present one.
#[test]
fn one_valid_cookie_among_several_is_enough() {
    let bed = closed(vec![], 16);
    let status = |cookies: &[&str]| get_with(&bed, "/v1/apps", cookies).status;
    let cookie = |ids: &[&str]| {
        let pairs: Vec<_> = ids.iter().map(|id| format!("adtrail_session={id}")).collect();
        format!("Cookie: {}", pairs.join("; "))
    };
    let id = |token| bed.cookie(token).split_once('=').unwrap().1.to_owned();
    let [x, y, expired] = ["x", "y", "expired"].map(id);
    let unknown = "A".repeat(x.len());
    for stale in ["", "x", &token("x"), &expired, &unknown, &x[..x.len() - 1]] {
        assert_eq!(status(&[&cookie(&[stale, &x])]), 200, "{stale}");
        assert_eq!(status(&[&cookie(&[&x, stale])]), 200, "{stale}");
        assert_eq!(status(&[&cookie(&[stale]), &cookie(&[&x])]), 200, "{stale}");
        assert_eq!(status(&[&cookie(&[stale, stale])]), 401, "{stale}");
    }
    let apps = get_with(&bed, "/v1/apps", &[&cookie(&[&y, &x])]).json();
    assert_eq!((apps.as_array().map(Vec::len), &apps[0]["pid"]), (Some(1), &json!(2)));
    // The number of cookies that are read is limited.
    let many = vec!["x"; 100];
    assert_eq!(status(&[&cookie(&[&many[..], &[&x]].concat())]), 401);
    // A token in the header takes precedence over cookies, and a session is not a token.
    let named = format!("Authorization: Bearer {}", token("z"));
    assert_eq!(status(&[&named, &cookie(&[&x])]), 401);
    assert_eq!(status(&[&format!("Authorization: Bearer {x}")]), 401);
    let problem = get_with(&bed, "/v1/apps", &[&cookie(&[&expired, &unknown])]).json();
    assert_eq!(problem["type"], "/problems/token-expired");
}

#[test]
fn only_a_complete_token_is_admitted() {
    let bed = closed(vec![], 16);
    let none = "expected a header Authorization: Bearer adt_…, with a token from the operator";
    let malformed = "expected one header Authorization: Bearer adt_<id>_<secret>, with the whole token \
                     as it was issued";
    let unknown = "unknown token; ask the operator for a new one";
    let check = |headers: &[&str], kind: &str, detail: &str| {
        for target in
            ["/", "/v1/apps", EVENTS, "/v1/apps/app-q/events.csv", "/nothing", "/v1/exports/1"]
        {
            check_problem(&get_with(&bed, target, headers), 401, kind, detail);
        }
    };
    let [x, y, expired] = ["x", "y", "expired"].map(token);
    check(&[], "unauthorized", none);
    let cut = &x[..x.len() - 1];
    let short = &x[4..];
    let wrong = format!(
        "Bearer|Bearer |Bearer x||adt_x|{x}|{cut}|Bearer adt_x_|Bearer \u{e9}|Basic eDp5|Basic {x}|Token {x}|Bearer{x}|\
         Bearer {cut}|Bearer {x}x|Bearer {x},|Bearer {x} {x}|Bearer \"{x}\"|Bearer {short}"
    );
    for wrong in wrong.split('|') {
        check(&[&format!("Authorization: {wrong}")], "unauthorized", malformed);
    }
    let right = format!("Authorization: Bearer {x}");
    for second in [&right, &format!("Authorization: Bearer {y}"), "Authorization: Basic eDp5"] {
        check(&[&right, second], "unauthorized", malformed);
        check(&[second, &right], "unauthorized", malformed);
    }
    for wrong in [token("z"), format!("{cut}y"), cut.to_owned() + "X"] {
        check(&[&format!("Authorization: Bearer {wrong}")], "unauthorized", unknown);
    }
    // The right secret of another id.
    check(
        &[&format!("Authorization: Bearer {}", expired.replace('e', "f"))],
        "unauthorized",
        unknown,
    );
    let detail = "this token has expired, ask the operator for a new one: 2026-01-31T10:00:00Z";
    check(&[&format!("Authorization: Bearer {expired}")], "token-expired", detail);
    let wrong_secret = format!("{}y", &expired[..expired.len() - 1]);
    check(&[&format!("Authorization: Bearer {wrong_secret}")], "unauthorized", unknown);
    // Tokens in the address do not count.
    let target = format!("/v1/apps?token={x}&authorization=Bearer%20{x}&access_token={x}");
    assert_eq!(get_with(&bed, &target, &[]).status, 401);
    for method in ["POST", "HEAD", "OPTIONS", "BREW"] {
        assert_eq!(bed.send(&format!("{method} {EVENTS} HTTP/1.1")).status, 401, "{method}");
    }

    for right in [right, format!("authorization:  bEARER   {x} ")] {
        for target in ["/", "/v1/apps", EVENTS] {
            assert_eq!(get_with(&bed, target, &[&right]).status, 200, "{right}");
        }
        assert_eq!(bed.send(&format!("POST /v1/apps HTTP/1.1\r\n{right}")).status, 405);
        assert_eq!(get_with(&bed, "/nothing", &[&right]).status, 404);
    }
    for id in ["all", "lasting"] {
        assert_eq!(get_by(&bed, EVENTS, id).status, 200);
    }
}

#[test]
fn a_token_is_valid_until_it_expires() {
    let access = Access::new(&[entry("a", None, soon(0))], 1);
    let value = format!("Bearer {}", token("a")).parse().unwrap();
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
    let expires = access.tokens["a"].expires.unwrap();
    let nano = SignedDuration::from_nanos(1);
    assert!(access.admit(&Method::GET, &headers, expires - nano).is_ok());
    for now in [expires, expires + nano] {
        let denial = access.admit(&Method::GET, &headers, now).unwrap_err();
        assert_eq!(denial, Denial { refusal: Refusal::Expired(expires), token: "a" });
    }
    // A session ends with its token.
    let begun = expires - SignedDuration::from_mins(1);
    let caller = access.admit_token(&token("a"), begun).unwrap();
    let id = access.begin_session(caller, begun).unwrap();
    let cookie = format!("adtrail_session={id}").parse().unwrap();
    let headers = HeaderMap::from_iter([(header::COOKIE, cookie)]);
    assert!(access.admit(&Method::GET, &headers, expires - nano).is_ok());
    let denial = access.admit(&Method::GET, &headers, expires).unwrap_err();
    assert_eq!(denial.refusal, Refusal::Expired(expires));
}

#[test]
fn sessions_and_downloads_outlive_a_change_of_tokens() {
    let with_secret = |id: &str, other: &str| Token {
        digest: entry(other, None, None).digest,
        ..entry(id, None, None)
    };
    let before = Access::new(&["kept", "changed", "gone"].map(|id| entry(id, None, None)), 1);
    let now = Timestamp::now();
    let sessions = ["kept", "changed", "gone"].map(|id| {
        let caller = before.admit_token(&token(id), now).unwrap();
        let id = before.begin_session(caller, now).unwrap();
        let cookie = format!("adtrail_session={id}").parse().unwrap();
        HeaderMap::from_iter([(header::COOKIE, cookie)])
    });
    let download = before.tokens["kept"].caller.start_download().unwrap();
    let tokens = [entry("kept", Some(1), None), with_secret("changed", "other")];
    let after = before.with_tokens(&tokens, 1);
    let is_open = |headers| after.admit(&Method::GET, headers, now).is_ok();
    assert_eq!(sessions.each_ref().map(is_open), [true, false, false]);
    let kept = after.admit_token(&token("kept"), now).unwrap();
    assert!(kept.can_read(Pid(1)) && !kept.can_read(Pid(2)), "the apps are the new ones");
    assert!(kept.start_download().is_err(), "the download before counts");
    drop(download);
    assert!(kept.start_download().is_ok());
    assert!(after.admit_token(&token("gone"), now).is_err());
}

#[test]
fn without_tokens_everyone_may_read_everything() {
    let bed = Bed::new(vec![]);
    for headers in [&[][..], &["Authorization: Basic eDp5"], &["Authorization: Bearer adt_x"]] {
        let apps = get_with(&bed, "/v1/apps", headers);
        assert_eq!(apps.json().as_array().map(Vec::len), Some(2));
        assert_eq!(get_with(&bed, EVENTS, headers).status, 200);
    }
}

#[test]
fn only_readable_apps_are_listed() {
    let bed = closed(vec![], 16);
    let x = json!({"key": "app-x", "pid": 1, "name": "App X"});
    let y = json!({"key": "app y", "pid": 2, "name": "Y"});
    for (id, expected) in [("x", json!([x])), ("y", json!([y])), ("all", json!([x, y]))] {
        assert_eq!(get_by(&bed, "/v1/apps", id).json(), expected);
        let page = get_by(&bed, "/", id);
        let listed =
            ["app-x", "app y"].map(|key| page.text().contains(&format!("<option value=\"{key}\"")));
        assert_eq!(listed, [id != "y", id != "x"], "{}", page.text());
    }
}

/// One fact of each kind for both apps. No text of one app occurs in the other.
fn of_both() -> Vec<Fact> {
    let mut facts = vec![
        click(7, "c-mine", "mine", DAY),
        Fact::Activation(activation("a-mine", "mine", DAY + MINUTE)),
        Fact::Effect(effect("e-mine", "mine", "mine", DAY + 2 * MINUTE)),
        click(8, "c-other", "other", DAY),
        Fact::Activation(activation("a-other", "other", DAY + MINUTE)),
        Fact::Effect(effect("e-other", "other", "other", DAY + 2 * MINUTE)),
        // The same device is in both apps.
        Fact::Activation(activation("a-other-too", "mine", DAY + MINUTE)),
    ];
    for fact in &mut facts[3..] {
        match fact {
            Fact::Touch(touch) => touch.pid = Pid(2),
            Fact::Activation(activation) => activation.pid = Pid(2),
            Fact::Effect(effect) => effect.pid = Pid(2),
        }
    }
    facts
}

#[test]
fn downloads_per_token_are_limited() {
    let bed = closed(many_activations(60_000), 2);
    let authorization = |id| format!("Authorization: Bearer {}", token(id));
    let begun = |id| {
        let mut stream = bed.open(&format!("GET {EVENTS} HTTP/1.1\r\n{}", authorization(id)));
        stream.read_exact(&mut [0; 1]).unwrap();
        stream
    };
    let under_way = [begun("x"), begun("x")];
    for _ in 0..3 {
        let answer = get_by(&bed, EVENTS, "x");
        let detail = "too many downloads of one token are in progress, the limit is 2";
        check_problem(&answer, 429, "too-many-downloads", detail);
        assert_eq!(answer.header("retry-after"), Some("10"));
    }
    // Requests that do not scan are answered, and other tokens are not affected.
    assert_eq!(bed.send(&format!("HEAD {EVENTS} HTTP/1.1\r\n{}", authorization("x"))).status, 200);
    assert_eq!(get_by(&bed, "/v1/apps", "x").status, 200);
    assert!(get_by(&bed, EVENTS, "all").is_ended);
    drop(under_way);
    let again = (0..3_000).map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        get_by(&bed, EVENTS, "x")
    });
    assert!(again.into_iter().find(|answer| answer.status != 429).unwrap().is_ended);
    assert_eq!(bed.state.scans.available_permits(), crate::http::state::SCANS_MAX);
}

/// A client that has read a whole download may begin the next.
#[test]
fn a_fully_read_download_no_longer_counts() {
    let bed = closed(of_both(), 1);
    for _ in 0..300 {
        assert_eq!(get_by(&bed, EVENTS, "x").status, 200);
    }
}

#[test]
fn without_tokens_all_clients_share_one_limit() {
    let bed = Bed::with(many_activations(60_000), |config| config.downloads_per_token_max = 1);
    let mut under_way = bed.open(&format!("GET {EVENTS} HTTP/1.1"));
    under_way.read_exact(&mut [0; 1]).unwrap();
    assert_eq!(bed.get(EVENTS).status, 429);
}
