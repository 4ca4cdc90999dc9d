//! The links of campaigns, and what came of their last requests.

use std::sync::Arc;

use attribution::facts::event::{Fact, Pid, SpreadId};
use attribution::rules::policy::{AppPolicy, Campaign, Policy, Windows};
use serde_json::{Value, json};

use super::{HOSTILE, by, has, page, unescaped};
use crate::tests::fixture::{self, Answer, Bed, MINUTE, entry};
use crate::{PersonLink, ReportLink, ReportUrl, TrackingLinks};

const URL: &str = "https://click.example.com";

/// A collector whose last requests are these; `None` if they are those of another process.
struct Collector {
    dialect: Option<&'static str>,
    recent: Option<Value>,
}

impl TrackingLinks for Collector {
    fn report_url(&self, link: ReportLink<'_>) -> Option<ReportUrl> {
        let ReportLink { app, channel, spreadid, is_impression } = link;
        let path = if is_impression { "impression" } else { "click" };
        let url = format!("{URL}/{path}/{app}/{channel}?spreadid={}&ip={{ip}}", spreadid.0);
        let is_verified = self.dialect != Some("oppo");
        let is_unsigned = self.dialect == Some("generic");
        Some(ReportUrl { url, dialect: self.dialect?.into(), is_verified, is_unsigned })
    }

    fn person_links(&self, spreadid: SpreadId) -> Vec<PersonLink> {
        let ids = if spreadid == SpreadId(7) { &["poster", "mail"][..] } else { &[] };
        let link = |id: &&str| PersonLink {
            id: (*id).into(),
            url: format!("{URL}/go/{id}"),
            is_unsigned: *id == "mail",
        };
        ids.iter().map(link).collect()
    }

    fn recent_reports(&self, _: ReportLink<'_>) -> Option<Value> {
        self.recent.clone()
    }

    fn recent_clicks(&self, _: &str) -> Option<Value> {
        self.recent.clone()
    }
}

/// A service with two apps, the campaigns 7 and 9 of one, and the campaign 8 of the other.
fn bed(dialect: Option<&'static str>, recent: Option<Value>) -> Bed {
    let dir = tempfile::tempdir().unwrap();
    let mut config = fixture::settings(dir.path());
    let campaign = |spreadid, pid, channel: &str| Campaign {
        spreadid: SpreadId(spreadid),
        pid: Pid(pid),
        channel: channel.into(),
        name: "".into(),
        windows: Windows::default(),
    };
    let campaigns =
        vec![campaign(7, 1, "toutiao"), campaign(8, 2, "secret"), campaign(9, 1, HOSTILE)];
    let apps: Vec<AppPolicy> = config.policy.apps().cloned().collect();
    config.policy = Arc::new(Policy::new(apps, campaigns));
    config.tokens = vec![entry("x", Some(1), None), entry("all", None, None)];
    let reader = fixture::fill(&config, vec![]);
    Bed::linked(dir, config, reader, Some(Arc::new(Collector { dialect, recent })))
}

/// The texts of elements that a button copies.
fn urls(answer: &Answer) -> Vec<String> {
    let parts = answer.text().split("<code id=\"link-").skip(1);
    let texts = parts.map(|part| part.split(['>', '<']).nth(1).unwrap());
    texts.map(unescaped).collect()
}

fn recent() -> Value {
    json!({
        "requests": [
            {"time": "2026-03-10T12:00:00.123Z", "outcome": "produced", "not_replaced": ["oaid", "ip"],
             "missing": ["ua"], "signature": "missing", "bot": "crawler"},
            {"time": "2026-03-10T11:00:00.000Z", "outcome": "refused", "code": "bad_time", "field": "time",
             "detail": HOSTILE, "not_replaced": [], "missing": [HOSTILE], "signature": "valid"},
        ],
        "others": [
            {"time": "2026-03-10T10:00:00.000Z", "outcome": "spooled", "spreadid": 199, "not_replaced": [],
             "missing": []},
        ],
    })
}

#[test]
fn a_link_is_shown_with_its_last_requests() {
    let bed = bed(Some("weibo"), Some(recent()));
    let answer = by(&bed, "/links", "x");
    assert_eq!(answer.status, 200);
    assert_eq!(urls(&answer), [format!("{URL}/click/app-x/toutiao?spreadid=7&ip={{ip}}")]);
    has(
        &answer,
        &["data-copy=\"link-1\"", "<bdi>7 (toutiao)</bdi>", "2026-03-10 12:00:00.123 UTC"],
    );
    has(&answer, &["Macro not replaced: <code>oaid</code>, <code>ip</code></p>"]);
    has(
        &answer,
        &["Missing or empty: <code>ua</code></p>", "The signature is missing.", "crawler"],
    );
    has(&answer, &["accepted</span>", "refused</span>", "(bad_time)"]);
    has(&answer, &["accepted while Kafka was away</span>", "<p>Campaign 199</p>"]);
    assert!(!answer.text().contains("The signature is valid"), "{}", answer.text());
    // What a client has sent is never markup.
    has(&answer, &["&lt;script&gt;"]);
    assert_eq!(answer.text().matches("<script").count(), 1, "{}", answer.text());
}

/// Older rows are not counted, nor those of known campaigns and of other apps.
#[test]
fn campaigns_that_the_settings_do_not_have_are_listed() {
    let now = jiff::Timestamp::now().as_millisecond() as u64;
    let ago = |minutes: u64| now - minutes * MINUTE;
    let facts = vec![
        fixture::click(33, "c-1", "a", ago(50)),
        Fact::Activation(fixture::activation("a-1", "a", ago(40))),
        Fact::Effect(fixture::effect("e-1", "purchase", "a", ago(30))),
        fixture::click(34, "c-2", "b", ago(8 * 24 * 60 + 10)),
        Fact::Activation(fixture::activation("a-2", "b", ago(8 * 24 * 60))),
        fixture::click(7, "c-3", "c", ago(50)),
        Fact::Activation(fixture::activation("a-3", "c", ago(40))),
    ];
    let bed = Bed::with(facts, |config| config.tokens = vec![entry("all", None, None)]);
    let answer = by(&bed, "/links?app=app-x", "all");
    has(&answer, &["Campaigns that the settings do not have"]);
    has(&answer, &["<th scope=\"row\">33</th><td>1</td><td>1</td><td>"]);
    assert_eq!(answer.text().matches("scope=\"row\"").count(), 1, "{}", answer.text());
    let other = by(&bed, "/links?app=app%20y", "all");
    assert!(!other.text().contains("do not have</h2>"), "{}", other.text());
}

#[test]
fn the_form_chooses_app_channel_campaign_and_kind() {
    let bed = bed(Some("generic"), Some(json!({"requests": [], "others": []})));
    let check = |query: &str, expected: &[&str]| {
        let answer = by(&bed, &format!("/links?{query}"), "all");
        let expected: Vec<_> = expected.iter().map(|path| format!("{URL}{path}")).collect();
        assert_eq!((answer.status, urls(&answer)), (200, expected), "{query}");
        answer
    };
    check("app=app-x&kind=impression", &["/impression/app-x/toutiao?spreadid=7&ip={ip}"]);
    check("app=app%20y&channel=&campaign=8", &["/click/app y/secret?spreadid=8&ip={ip}"]);
    let hostile = serde_urlencoded::to_string([("app", "app-x"), ("channel", HOSTILE)]).unwrap();
    let answer = by(&bed, &format!("/links?{hostile}"), "all");
    assert!(urls(&answer)[0].contains("spreadid=9"), "{}", answer.text());
    // The form still has the campaign of another channel.
    let answer = by(&bed, &format!("/links?{hostile}&campaign=7"), "all");
    assert_eq!(answer.status, 200);
    assert!(urls(&answer)[0].contains("spreadid=9"), "{}", answer.text());
    assert_eq!(answer.text().matches("<script").count(), 1, "{}", answer.text());
    let people = check("app=app-x&campaign=7&kind=person", &["/go/poster", "/go/mail"]);
    has(&people, &["data-copy=\"link-2\"", "<bdi>mail</bdi>", "do not publish it before"]);
    assert_eq!(people.text().matches("this link has none").count(), 1, "{}", people.text());
    has(&check("app=app-x&campaign=9&kind=person", &[]), &["No link for people"]);
    let generic = by(&bed, "/links", "x");
    has(&generic, &["Replace each text in braces", "None yet: make a test click"]);
    has(&generic, &["The sender must sign each request."]);
}

#[test]
fn what_cannot_be_chosen_is_marked() {
    let bed = bed(Some("weibo"), None);
    let check = |query: &str, status: u16, field: &str| {
        let answer = by(&bed, &format!("/links?{query}"), "x");
        assert_eq!((answer.status, urls(&answer).len()), (status, 0), "{query}");
        has(&answer, &[&format!("id=\"{field}-wrong\"")]);
        assert!(!answer.text().contains("secret"), "{}", answer.text());
    };
    check("app=app%20y", 404, "app");
    check("app=app-x&channel=other", 400, "channel");
    check("app=app-x&campaign=8", 400, "campaign");
    check("app=app-x&campaign=x", 400, "campaign");
    check("app=app-x&kind=go", 400, "kind");
}

#[test]
fn a_page_without_links_says_where_they_are() {
    let elsewhere = bed(Some("oppo"), None);
    let answer = by(&elsewhere, "/links", "x");
    has(&answer, &["Other processes receive", "the dialect <bdi>oppo</bdi> are not verified"]);
    let path = "/requests?app=app-x&channel=toutiao&campaign=7&kind=click";
    assert!(unescaped(answer.text()).contains(path), "{}", answer.text());
    let answer = by(&elsewhere, "/links?kind=person", "x");
    assert!(unescaped(answer.text()).contains("/requests?link=mail"), "{}", answer.text());
    has(
        &by(&bed(None, None), "/links", "x"),
        &["The dialects of the settings cannot be read here"],
    );
    has(&page(&Bed::new(vec![]), "/links"), &["No collector", "collect.public_url"]);
}
