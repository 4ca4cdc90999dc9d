//! Pages as they are sent, and where forms lead. How a browser renders them is tested in `tests/integrations`.

mod callbacks;
mod form;
mod history;
mod links;
mod lookup;
mod sign_in;

use std::sync::Arc;

use attribution::facts::event::{Fact, Pid, SpreadId};
use attribution::rules::policy::{AppPolicy, Campaign, Policy, Windows};

use crate::tests::fixture::{
    Answer, Bed, DAY, MINUTE, activation, click, effect, entry, many_activations, past,
};

const HOSTILE: &str = "<script>alert(1)</script>\"'&\u{202e}x";

/// The day of all events.
const DAYS: &str = "range=custom&from=2026-03-10&to=2026-03-10";

fn page(bed: &Bed, target: &str) -> Answer {
    bed.send_with(&format!("GET {target} HTTP/1.1"), &["Accept: text/html,*/*;q=0.8"])
}

fn post(bed: &Bed, target: &str, form: &str, headers: &[&str]) -> Answer {
    let length = format!("Content-Length: {}", form.len());
    let all = [&*length, "Content-Type: application/x-www-form-urlencoded", "Accept: text/html"];
    let headers = [&all[..], headers].concat();
    // The body follows the empty line after the headers.
    bed.send_body(&format!("POST {target} HTTP/1.1"), &headers, form.as_bytes())
}

const SAME_ORIGIN: &str = "Sec-Fetch-Site: same-origin";

/// Submits the form and follows its redirect.
#[track_caller]
fn look_up(bed: &Bed, form: &str, headers: &[&str]) -> Answer {
    let redirect = post(bed, "/devices", form, &[headers, &[SAME_ORIGIN]].concat());
    assert_eq!(redirect.status, 303, "{}", redirect.text());
    let at = redirect.header("location").unwrap();
    bed.send_with(&format!("GET {at} HTTP/1.1"), &[headers, &["Accept: text/html"]].concat())
}

#[track_caller]
fn has(answer: &Answer, parts: &[&str]) {
    for part in parts {
        assert!(answer.text().contains(part), "{part:?} is not in {}", answer.text());
    }
}

/// The URL in the curl command.
fn link(answer: &Answer) -> String {
    let command = answer.text().split("<code id=\"curl\">").nth(1).unwrap();
    let address = command.split("&#x27;").nth(3).unwrap();
    unescaped(address).replace("http://localhost", "")
}

/// The URLs of a page that begin with `beginning`.
fn links(answer: &Answer, beginning: &str) -> Vec<String> {
    let texts = answer.text().split('"').map(unescaped);
    texts.filter(|text| text.starts_with(beginning)).collect()
}

/// The value of a hidden field.
fn hidden(answer: &Answer, name: &str) -> String {
    let value = answer.text().split(&format!("name=\"{name}\" value=\"")).nth(1).unwrap();
    unescaped(value.split('"').next().unwrap())
}

fn unescaped(text: &str) -> String {
    text.replace("&#x2f;", "/").replace("&quot;", "\"").replace("&amp;", "&")
}

fn closed() -> Bed {
    Bed::with(many_activations(3), |config| {
        config.tokens = vec![
            entry("x", Some(1), None),
            entry("z", Some(1), None),
            entry("y", Some(2), None),
            entry("old", Some(1), past()),
        ];
    })
}

fn by(bed: &Bed, target: &str, id: &str) -> Answer {
    let cookie = bed.cookie(id);
    bed.send_with(&format!("GET {target} HTTP/1.1"), &["Accept: text/html", &cookie])
}

fn hostile() -> Bed {
    let campaign = Campaign {
        spreadid: SpreadId(7),
        pid: Pid(1),
        channel: HOSTILE.into(),
        name: HOSTILE.into(),
        windows: Windows::default(),
    };
    let mut bought = effect(HOSTILE, HOSTILE, "mine", DAY + 2 * MINUTE);
    bought.device.ua = HOSTILE.into();
    let facts = vec![
        click(7, HOSTILE, "mine", DAY),
        Fact::Activation(activation(HOSTILE, "mine", DAY + MINUTE)),
        Fact::Effect(bought),
    ];
    Bed::with(facts, |config| {
        let mut apps: Vec<AppPolicy> = config.policy.apps().cloned().collect();
        apps.iter_mut().for_each(|app| app.name = HOSTILE.into());
        config.policy = Arc::new(Policy::new(apps, vec![campaign]));
    })
}

#[test]
fn hostile_names_are_escaped() {
    let bed = hostile();
    let id = serde_urlencoded::to_string([("event_id", HOSTILE)]).unwrap();
    let pages = [
        page(&bed, &format!("/?{DAYS}")),
        page(&bed, &format!("/?{DAYS}&form=ndjson")),
        page(&bed, &format!("/activations?app=app-x&{id}")),
        look_up(&bed, "app=app-x&kind=oaid&value=mine", &[]),
        page(&bed, "/?app=%3Cscript%3E&timezone=%22%3E%3Cscript%3E&channel=%3Cscript%3E"),
    ];
    for answer in &pages {
        has(answer, &["&lt;script&gt;"]);
        assert_eq!(answer.text().matches("<script").count(), 1, "{}", answer.text());
        assert!(!answer.text().contains(" style=") && !answer.text().contains(" onclick"));
    }
    has(&pages[0], &["alert(1)&lt;&#x2f;script&gt;&quot;&#x27;&amp;\u{202e}x"]);
    has(&pages[2], &["attributed", "Why an install", "click &lt;script&gt;", "\\u{202e}"]);
    has(&pages[3], &["effect", "/activations?app=app-x&amp;event_id=%3Cscript%3E"]);
}

#[test]
fn pages_are_not_cached_and_have_a_strict_csp() {
    let bed = Bed::new(many_activations(3));
    for target in [
        "/",
        "/exports",
        "/activations",
        "/devices",
        "/links",
        "/callbacks",
        "/sign-in",
        "/nothing",
    ] {
        let answer = page(&bed, target);
        let header = |name| answer.header(name).unwrap_or_default();
        assert_eq!(header("content-type"), "text/html; charset=utf-8", "{target}");
        assert_eq!(header("cache-control"), "no-store");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "same-origin");
        assert!(
            header("content-security-policy").starts_with("default-src 'none'; style-src 'self'")
        );
        assert!(!header("content-security-policy").contains("unsafe"));
        for asset in answer.text().split('"').filter(|text| text.starts_with("/assets/")) {
            let asset = bed.get(asset);
            assert_eq!((asset.status, asset.body.is_empty()), (200, false));
            assert_eq!(asset.header("x-content-type-options"), Some("nosniff"));
            assert!(asset.header("cache-control").unwrap().contains("immutable"));
        }
    }
    assert_eq!(bed.get("/assets/page.css").status, 404);
    assert_eq!(page(&bed, "/nothing").status, 404);
    // Programs get problems as JSON.
    assert_eq!(bed.get("/nothing").header("content-type"), Some("application/problem+json"));
}

#[test]
fn empty_pages_explain_why() {
    let bed = Bed::new(many_activations(3));
    has(
        &page(&bed, "/?range=custom&from=2020-01-01&to=2020-01-01"),
        &["No matching rows", "0 rows"],
    );
    has(&page(&bed, "/?app=app%20y"), &["No rows of this app yet"]);
    has(&page(&bed, "/exports"), &["No export yet"]);
    has(&page(&bed, "/activations?app=app-x&event_id=none"), &["has no activation with this id"]);
    let none = "app=app-x&kind=oaid&value=00000000-0000-4000-8000-00000000000e";
    let none = look_up(&bed, none, &[]);
    has(&none, &["Nothing is known about this device"]);
}

/// Browsers accept compressed responses; the problem of a download was compressed before it became a page.
#[test]
fn a_problem_as_a_page_is_not_compressed() {
    let bed = Bed::new(vec![]);
    let target = "GET /v1/apps/app-x/events.csv?from=bad&to=2026-03-10 HTTP/1.1";
    let accepts = ["Accept: text/html", "Accept-Encoding: gzip, br, zstd"];
    let answer = bed.send_with(target, &accepts);
    assert_eq!((answer.status, answer.header("content-encoding")), (400, None));
    assert!(answer.text().starts_with("<!doctype html>"), "{}", answer.text());
}
