//! A token sees nothing of other apps.

use proptest::prelude::*;

use super::{closed, get_by, of_both};
use crate::http::router::{PAGES, ROUTES};
use crate::tests::fixture::{Answer, Bed, EVENTS, token};

/// Values of path parameters and queries, of either app.
const VALUES: &str = "app-x app%20y app-q APP%20Y 1 2 7 8 oaid mine other a-mine a-other a-other-too e-other \
                      installs_report v5";

const PARAMETERS: &str = "from=2026-03-01&to=2026-04-01&from=2026-03-10&to=2026-03-10&type=activation\
                          &fields=app,pid,event_id,oaid&by=day,channel,spreadid&limit=1&format=json&spreadid=8\
                          &channel=unknown&event_name=other&app=app%20y&pid=2";

/// A path of the route with its parameters filled in.
fn target<V: AsRef<str>>(route: &str, mut value: impl FnMut() -> V, query: &[&str]) -> String {
    let segments = route.split('/').map(|segment| match segment.find('{') {
        Some(start) => {
            let end = segment.rfind('}').unwrap() + 1;
            format!("{}{}{}", &segment[..start], value().as_ref(), &segment[end..])
        }
        None => segment.to_owned(),
    });
    format!("{}?{}", segments.collect::<Vec<_>>().join("/"), query.join("&"))
}

/// Checks that an answer has nothing of the other app, except what the request itself named.
#[track_caller]
fn check_nothing_of_other(target: &str, answer: &Answer) {
    let text = String::from_utf8_lossy(&answer.body);
    let headers = answer.headers.iter().map(|(_, value)| value.as_str());
    for part in headers.chain([&*text]) {
        for word in ["a-other", "e-other", "c-other", "app y", "app%20y", "\"name\":\"Y\"", ">Y "] {
            let is_in_request = target.contains(word) || target.contains(&word.replace(' ', "%20"));
            assert!(is_in_request || !part.contains(word), "{word:?} by {target}: {part}");
        }
    }
}

/// Checks that a path that names an app the caller may not read is answered like one of an unknown app, except for
/// the name.
#[track_caller]
fn check_like_none(bed: &Bed, method: &str, target: &str) {
    let authorization = format!("Authorization: Bearer {}", token("x"));
    let answers = ["app%20y", "app%20z"].map(|key| {
        let target = target.replacen("app%20y", key, 1);
        let answer = bed.send(&format!("{method} {target} HTTP/1.1\r\n{authorization}"));
        let (mut answer, key) = (answer, key.replace("%20", " "));
        answer.headers.retain(|(name, _)| !["date", "x-request-id"].contains(&&**name));
        (answer.status, answer.headers, String::from_utf8(answer.body).unwrap().replace(&key, ""))
    });
    assert_eq!(answers[0], answers[1], "{method} {target}");
    assert_eq!(answers[0].0, 404, "{method} {target}");
}

/// Checks whether the path names the other app as `{app}`.
fn names_other(route: &str, target: &str) -> bool {
    let index = route.split('/').position(|segment| segment.contains("{app}"));
    index.is_some_and(|index| target.split(['/', '?']).nth(index) == Some("app%20y"))
}

#[test]
fn another_apps_rows_never_appear() {
    let bed = closed(of_both(), 16);
    let mine = get_by(&bed, EVENTS, "x");
    assert_eq!((mine.status, mine.text().lines().count()), (200, 3));
    check_nothing_of_other(EVENTS, &mine);
    let other = get_by(&bed, &EVENTS.replace("app-x", "app%20y"), "y");
    assert!(other.text().contains("e-other") && other.text().contains("a-other-too"));
    for (route, _) in ROUTES.iter().filter(|(route, _)| route.contains("{app}")) {
        let of_other = target(route, || "app%20y", &["from=2026-03-01", "to=2026-04-01"]);
        for method in ["GET", "HEAD", "POST"] {
            check_like_none(&bed, method, &of_other);
        }
    }
    let routes = prop::sample::select(
        ROUTES.iter().chain(PAGES).map(|(route, _)| *route).collect::<Vec<_>>(),
    );
    // An export of the other app is not found either.
    let export = other.header("adtrail-export-id").unwrap().to_owned();
    assert_eq!(get_by(&bed, &format!("/v1/exports/{export}"), "y").json()["app"], "app y");
    assert_eq!(get_by(&bed, &format!("/v1/exports/{export}"), "all").status, 200);
    let [hidden, none] = [&*export, "1"].map(|id| {
        let answer = get_by(&bed, &format!("/v1/exports/{id}"), "x");
        (answer.status, answer.text().replace(id, "ID"))
    });
    assert_eq!((hidden.0, &hidden), (404, &none));
    let explained = |id: &str| {
        let answer = get_by(&bed, &format!("/v1/apps/app-x/activations/{id}/explain"), "x");
        check_nothing_of_other(id, &answer);
        (answer.status, answer.text().replace(id, "ID"))
    };
    assert_eq!(explained("a-mine").0, 200);
    // An activation of the other app is not found, whether or not its device is known in this one.
    let none = explained("none");
    assert_eq!((none.0, &none), (404, &explained("a-other")));
    assert_eq!(none, explained("a-other-too"));
    let values = VALUES.split(' ').chain([&*export]).map(str::to_owned).collect::<Vec<_>>();
    let values = prop::collection::vec(prop::sample::select(values), 8);
    let parameters: Vec<_> = PARAMETERS.split('&').collect();
    let query = prop::sample::subsequence(parameters, 0..14);
    proptest!(ProptestConfig::with_cases(512), |(route in routes, values in values, query in query)| {
        let mut values = values.into_iter();
        let target = target(route, || values.next().unwrap(), &query);
        check_nothing_of_other(&target, &get_by(&bed, &target, "x"));
        if names_other(route, &target) {
            check_like_none(&bed, "GET", &target);
        }
    });
}
