//! Pages as they are sent, and where forms lead. How a browser renders them is tested in `tests/integrations`.

use std::sync::Arc;

use attribution::facts::event::{Fact, Pid, SpreadId};
use attribution::rules::policy::{AppPolicy, Campaign, Policy, Windows};
use jiff::civil::date;

use super::export_form::state::{Choice, FieldError, dates};
use crate::tests::fixture::{
    Answer, Bed, DAY, MINUTE, activation, at, click, effect, entry, many_activations, past, token,
};

const HOSTILE: &str = "<script>alert(1)</script>\"'&\u{202e}x";
/// The days of which the bed has rows.
const DAYS: &str = "range=custom&from=2026-03-10&to=2026-03-10";

fn page(bed: &Bed, target: &str) -> Answer {
    bed.send_with(&format!("GET {target} HTTP/1.1"), &["Accept: text/html,*/*;q=0.8"])
}

fn post(bed: &Bed, target: &str, form: &str, headers: &[&str]) -> Answer {
    let length = format!("Content-Length: {}", form.len());
    let all = [&*length, "Content-Type: application/x-www-form-urlencoded", "Accept: text/html"];
    let headers = [&all[..], headers].concat();
    // The body follows the empty line that the bed ends a request with.
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
    for target in ["/", "/exports", "/activations", "/devices", "/sign-in", "/nothing"] {
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
fn rows_and_bytes_are_shown_before_a_download() {
    let bed = Bed::new(many_activations(50));
    for form in ["excel", "csv", "ndjson"] {
        let answer = page(&bed, &format!("/?{DAYS}&form={form}"));
        let file = bed.get(&link(&answer)).body.len() as u64;
        has(&answer, &["50 rows", &format!("<span>{}</span>", super::format::size(file))]);
        has(&answer, &["All 50 rows", "10 Mar 2026", "a-49"]);
    }
    let answer =
        page(&Bed::new(many_activations(1_204)), &format!("/?{DAYS}&preset=own&fields=event_id"));
    has(&answer, &["1,204 rows", "about 15 kB", "The first 50 rows", "1 column", "a-49"]);
    assert!(!answer.text().contains("a-50<"));
}

/// The URL in the curl command.
fn link(answer: &Answer) -> String {
    let command = answer.text().split("<code id=\"curl\">").nth(1).unwrap();
    let command = command.split("</code>").next().unwrap();
    let address =
        command.split("&#x27;").nth(3).unwrap().replace("&amp;", "&").replace("&#x2f;", "/");
    address.replace("http://adtrail", "")
}

#[test]
fn the_download_button_redirects_to_the_export() {
    let bed = Bed::new(many_activations(3));
    let check = |form: &str, expected: &str| {
        let answer = page(&bed, &format!("/download?{form}"));
        assert_eq!((answer.status, answer.header("location")), (303, Some(expected)), "{form}");
        assert_eq!(bed.get(expected).status, 200, "{expected}");
    };
    check(
        &format!(
            "app=app-x&{DAYS}&timezone=Asia%2FShanghai&type=all&form=excel&preset=native&fields=app&channel=&spreadid="
        ),
        "/v1/apps/app-x/events.csv?from=2026-03-10&to=2026-03-10&timezone=Asia%2FShanghai&dialect=excel",
    );
    check(
        &format!(
            "app=app+y&{DAYS}&type=effect&form=ndjson&preset=own&fields=app&fields=props.a,%22props.b,c%22&fields=\
             &event_name=a,+b&status=organic&export_id=f000000000000001"
        ),
        "/v1/apps/app%20y/events.ndjson?from=2026-03-10&to=2026-03-10&timezone=UTC&type=effect\
         &event_name=a%2Cb&status=organic&fields=app%2Cprops.a%2C%22props.b%2Cc%22\
         &export_id=f000000000000001",
    );
    let refused = page(&bed, &format!("/download?{DAYS}&timezone=Mars"));
    assert_eq!(refused.status, 400);
    has(&refused, &["aria-invalid", "value=\"Mars\"", "the nearest is"]);
}

#[test]
fn every_invalid_field_is_reported_and_keeps_its_value() {
    let bed = Bed::new(vec![]);
    let target = "/?app=app-z&range=custom&from=2026-03-10&to=2026-03-09&timezone=Berlin&type=x&form=y\
                  &preset=own&fields=evnt_time&channel=nowhere&spreadid=-1&status=lost&install_type=z";
    let answer = page(&bed, target);
    assert_eq!(answer.status, 400);
    let fields =
        ["app", "to", "timezone", "type", "form", "fields", "spreadid", "status", "install_type"];
    for field in fields {
        has(&answer, &[&format!("id=\"{field}-wrong\"")]);
    }
    has(
        &answer,
        &["Europe&#x2f;Berlin", "event_time", "value=\"-1\"", "value=\"Berlin\"", "value=\"lost\""],
    );
    has(&answer, &["<option value=\"app-z\" selected>", "This day is before the first one."]);
    let answer = page(&bed, "/?range=custom&from=&to=&channel=nowhere");
    has(&answer, &["from-wrong", "channel-wrong", "the nearest is"]);
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

#[test]
fn the_history_shows_the_outcome_of_each_export() {
    let bed = Bed::new(many_activations(3));
    let address = "/v1/apps/app-x/events.csv?from=2026-03-10&to=2026-03-10&timezone=Asia/Shanghai\
                   &status=organic&fields=event_id&dialect=excel&export_id=f000000000000001";
    let file = bed.get(address);
    assert_eq!((file.status, file.header("adtrail-export-id")), (200, Some("f000000000000001")));
    let history = page(&bed, "/exports");
    let export = bed.get("/v1/exports/f000000000000001").json();
    has(&history, &["Complete, 3 rows", export["sha256"].as_str().unwrap(), "Status: organic"]);
    has(&history, &["app-x_2026-03-10_2026-03-10_Asia-Shanghai.csv", "1 column"]);
    let without_id = address.replace("&export_id=f000000000000001", "");
    assert_eq!(links(&history, "/v1/"), [&*without_id]);
    let form = page(&bed, &links(&history, "/?app=")[0]);
    assert_eq!(link(&form), without_id.replace("Asia/", "Asia%2F"));
    // An id belongs to one export.
    for id in ["f000000000000001", "f", "F000000000000002", "0000000000000001", ""] {
        let target =
            format!("/v1/apps/app-x/events.csv?from=2026-03-10&to=2026-03-10&export_id={id}");
        let answer = bed.get(&target);
        assert_eq!(
            (answer.status, &answer.json()["parameter"]),
            (400, &"export_id".into()),
            "{id}"
        );
    }
}

/// The URLs of a page that begin with `beginning`.
fn links(answer: &Answer, beginning: &str) -> Vec<String> {
    let texts = answer.text().split('"').map(|text| text.replace("&#x2f;", "/"));
    let links = texts.filter(|text| text.starts_with(beginning));
    links.map(|text| text.replace("&amp;", "&").replace("&quot;", "\"")).collect()
}

/// The history repeats any request with the same file, and links the form only if it can express the request.
#[test]
fn an_export_can_be_repeated_exactly() {
    let mut facts = many_activations(3);
    for (id, name) in [("e-1", "buy"), ("e-2", " buy"), ("e-3", "a,\"b ")] {
        facts.push(Fact::Effect(effect(id, name, "device-1", DAY + 9 * MINUTE)));
    }
    let bed = Bed::new(facts);
    let events = "/v1/apps/app-x/events.csv?from=2026-03-10&to=2026-03-10";
    let first = bed.get(&format!("{events}&limit=2"));
    let second = first.next_page().unwrap();
    let pull = "/api/raw-data/export/app/app-x/installs_report/v5?from=2026-03-10&to=2026-03-10";
    let organic = pull.replace("installs_report", "organic_installs_report");
    let check = |address: &str, has_form: bool, texts: &[&str]| {
        let file = bed.get(address);
        assert_eq!(file.status, 200, "{address}");
        let history = page(&bed, "/exports");
        assert_eq!(links(&history, &address[..5])[0], *address);
        assert_eq!(bed.get(&links(&history, &address[..5])[0]).body, file.body, "{address}");
        let first = history.text().split("<li class=\"card\"").nth(1).unwrap();
        texts.iter().for_each(|text| assert!(first.contains(text), "{text:?} is not in {first}"));
        assert_eq!(first.contains("&#x2f;?app="), has_form, "{address}: {first}");
        if has_form {
            let form = page(&bed, &links(&history, "/?app=")[0]);
            assert_eq!(bed.get(&link(&form)).body, file.body, "{address}");
        }
        file.text().lines().count() - 1
    };
    assert_eq!(check(&format!("{events}&event_name=%20buy"), true, &["&quot; buy&quot;"]), 1);
    assert_eq!(check(&format!("{events}&event_name=%22a,%22%22b%20%22,buy"), true, &[]), 2);
    assert_eq!(check(&format!("{events}&fields=event_id,channel"), true, &["2 columns"]), 6);
    assert_eq!(
        check(&format!("{events}&fields=channel,event_id"), false, &["channel,event_id"]),
        6
    );
    assert_eq!(check(&format!("{events}&limit=2"), false, &["limit: 2", "cannot express"]), 2);
    assert_eq!(check(second, false, &["after: "]), 2);
    let additional = format!("{events}&preset=appsflyer&additional_fields=store_reinstall");
    assert_eq!(check(&additional, false, &["additional_fields: store_reinstall"]), 6);
    assert_eq!(check(&format!("{events}&preset=appsflyer"), true, &[]), 6);
    let narrowed = format!("{organic}&media_source=organic&maximum_rows=1&additional_fields=x_y");
    let texts = ["organic_installs_report", "media_source: organic", "maximum_rows: 1", "x_y"];
    assert_eq!(check(&narrowed, false, &texts), 1);
    assert_eq!(check(&organic, false, &["organic_installs_report"]), 3);
}

#[test]
fn a_request_converts_to_a_choice_of_the_form() {
    let request = "/v1/apps/a%26b/events.ndjson?from=2026-03-10T08%3A00&to=2026-03-11&type=effect\
                   &channel=%22a,b%22&channel=c&fields=app,%22props.x,y%22&export_id=1";
    let choice = Choice::of_request("a&b", request).unwrap();
    let (_, query) =
        choice.address().split_once('?').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let params: Vec<(String, String)> = serde_urlencoded::from_str(&query).unwrap();
    assert_eq!(Choice::new(&params), choice);
    assert_eq!((&*choice.app, &*choice.form, &*choice.from), ("a&b", "ndjson", "2026-03-10T08:00"));
    assert_eq!(choice.filters[0], "\"a,b\",c");
    assert_eq!(choice.fields, ["app", "props.x,y"]);
}

#[test]
fn named_ranges_end_today_or_yesterday() {
    let today = date(2026, 3, 1);
    let check =
        |range, first, last| assert_eq!(dates(range, today), Some((first, last)), "{range}");
    check("yesterday", date(2026, 2, 28), date(2026, 2, 28));
    check("last7", date(2026, 2, 23), today);
    check("month", today, today);
    assert_eq!(dates("custom", today), None);
    // In Kiritimati it is already tomorrow.
    let policy = Policy::new(vec![AppPolicy::new(Pid(1), "a")], vec![]);
    let app = policy.app_by_key("a").unwrap();
    let range = |zone: &str| {
        let choice =
            Choice::new(&[("range".into(), "yesterday".into()), ("timezone".into(), zone.into())]);
        let request = choice.export_request(&[app], &policy, at(DAY + 12 * 60 * MINUTE)).unwrap();
        request.parameters[0].1.clone()
    };
    assert_eq!([range("UTC"), range("Pacific/Kiritimati")], ["2026-03-09", "2026-03-10"]);
    let wrong =
        Choice::new(&[("range".into(), "never".into())]).export_request(&[app], &policy, at(DAY));
    assert!(matches!(&wrong.unwrap_err()[0], FieldError { field: "range", .. }));
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
    let cookie = format!("Cookie: a=b; adtrail_token={}", token(id));
    bed.send_with(&format!("GET {target} HTTP/1.1"), &["Accept: text/html", &cookie])
}

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
        let next = sign_in.text().split("name=\"next\" value=\"").nth(1).unwrap();
        let next = next.split('"').next().unwrap().replace("&#x2f;", "/").replace("&amp;", "&");
        assert_eq!((sign_in.status, &*next), (401, expected), "{request}");
    };
    let home = "http://adtrail/?app=app-x";
    let sent = "/download?app=app-x&range=last7&export_id=f000000000000001";
    from(&format!("GET {sent}"), home, "/?app=app-x&range=last7");
    let file = "/v1/apps/app-x/events.csv?from=2026-03-10&to=2026-03-10";
    from(&format!("GET {file}"), "http://adtrail/exports?app=a", "/exports?app=a");
    let pull = "/api/raw-data/export/app/app-x/reinstalls/v5?from=2026-03-10&to=2026-03-10";
    from(&format!("GET {pull}"), "http://adtrail/exports", "/exports");
    from(&format!("GET {file}"), "", file);
    from(&format!("GET {file}"), "http://evil.example/exports", file);
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
    let file = by(&bed, "/v1/apps/app-x/events.csv?from=2026-03-10&to=2026-03-10", "x");
    assert!(file.status == 200 && file.is_ended);
    assert_eq!(
        by(&bed, "/v1/apps/app%20y/events.csv?from=2026-03-10&to=2026-03-10", "x").status,
        404
    );
    let expired = by(&bed, "/", "old");
    assert_eq!(expired.status, 401);
    has(&expired, &["this token has expired"]);
    // The header takes precedence over the cookie.
    let cookie = format!("Cookie: adtrail_token={}", token("x"));
    let header = format!("Authorization: Bearer {}", token("y"));
    let apps = bed.send_with("GET /v1/apps HTTP/1.1", &[&cookie, &header]);
    assert_eq!(apps.json()[0]["key"], "app y");
    let bad = bed.send_with("GET /v1/apps HTTP/1.1", &[&cookie, "Authorization: Basic eDp5"]);
    assert_eq!(bad.status, 401);
    // Only our own pages may post.
    let form = "app=app-x&kind=oaid&value=device-1";
    assert_eq!(look_up(&bed, form, &[&cookie]).status, 200);
    assert_eq!(post(&bed, "/devices", form, &[&cookie, "Origin: http://evil.example"]).status, 401);
    assert_eq!(post(&bed, "/devices", form, &[&cookie]).status, 401);
    let other = look_up(&bed, "app=app+y&kind=oaid&value=device-1", &[&cookie]);
    assert_eq!(other.status, 404);
    has(&other, &["No app has this key"]);
}

#[test]
fn a_token_sees_only_its_own_history() {
    let bed = closed();
    by(&bed, "/v1/apps/app-x/events.csv?from=2026-03-10&to=2026-03-10", "x");
    has(&by(&bed, "/exports", "x"), &["Complete, 3 rows"]);
    for other in ["y", "z"] {
        has(&by(&bed, "/exports", other), &["No export yet"]);
    }
}

#[test]
fn a_device_lookup_has_no_device_id_in_its_url() {
    let facts = (0..120).map(|n| click(7, &format!("c-{n}"), "mine", DAY + n)).collect();
    let bed = Bed::new(facts);
    let form = "app=app-x&kind=oaid&value=mine&timezone=Asia/Shanghai";
    let redirect = post(&bed, "/devices", form, &[SAME_ORIGIN]);
    let at = redirect.header("location").unwrap();
    assert!(redirect.status == 303 && redirect.text().is_empty() && !at.contains("mine"), "{at}");
    assert!(at.starts_with("/devices?app=app-x&timezone=Asia%2FShanghai&lookup="), "{at}");
    // The page can be reloaded.
    let [first, again] = [page(&bed, at), page(&bed, at)];
    assert_eq!(first.text(), again.text());
    has(&first, &["c-119", "c-20<", "2026-03-10T08:00:00.119+08:00", "Older events"]);
    let after = first.text().split("name=\"after\" value=\"").nth(1).unwrap();
    let after = after.split('"').next().unwrap();
    let second = look_up(&bed, &format!("{form}&after={after}"), &[]);
    has(&second, &["c-19<", "c-0<"]);
    assert!(!second.text().contains("Older events") && !second.text().contains("c-20<"));
    for (form, field) in [
        ("app=app-x&kind=x&value=mine", "kind-wrong"),
        ("app=app-x&kind=oaid&value=", "value-wrong"),
        ("app=app-x&kind=oaid&value=mine&timezone=Mars", "timezone-wrong"),
        ("app=app-z&kind=oaid&value=mine", "app-wrong"),
    ] {
        let answer = look_up(&bed, form, &[]);
        assert!(matches!(answer.status, 400 | 404));
        has(&answer, &[field]);
    }
    assert_eq!(post(&bed, "/devices", form, &[]).status, 400);
    let none = page(&bed, "/devices?app=app-x&lookup=0123456789abcdef");
    assert_eq!(none.status, 404);
    has(&none, &["This lookup has expired", "name=\"value\""]);
}

#[test]
fn a_token_sees_only_its_own_lookups() {
    let bed = closed();
    let cookie = format!("Cookie: adtrail_token={}", token("x"));
    let form = "app=app-x&kind=oaid&value=device-1";
    let redirect = post(&bed, "/devices", form, &[&cookie, SAME_ORIGIN]);
    let at = redirect.header("location").unwrap();
    has(&by(&bed, at, "x"), &["a-1"]);
    has(&by(&bed, at, "z"), &["This lookup has expired"]);
}

#[test]
fn a_preview_shows_the_cells_of_the_file() {
    let name = "=\"007\"";
    let facts = vec![
        Fact::Activation(activation("00123", "mine", DAY)),
        Fact::Effect(effect("e", name, "mine", DAY + MINUTE)),
    ];
    let bed = Bed::new(facts);
    let of = |form: &str| {
        page(&bed, &format!("/?{DAYS}&preset=own&fields=event_id,event_name&form={form}"))
    };
    for form in ["csv", "ndjson"] {
        has(&of(form), &["<td>00123</td>", "<td>=&quot;007&quot;</td>"]);
    }
    // In the file the first cell is `="00123"`, and the other one begins with an apostrophe.
    has(&of("excel"), &["<td>00123</td>", "=&quot;007&quot;</td>"]);
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
