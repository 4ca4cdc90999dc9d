//! The commands and the page: a network that is down, and what an operator does then.

use std::fs;

use testbed::kafka::Kafka;
use testbed::site::Site;
use testbed::{check_exit, check_refused, eventually};

use super::*;

const TAKEN: &str = "{\"code\":0}";

fn lines(output: &std::process::Output) -> Vec<Value> {
    check_exit(output, 0, &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn dead_callbacks_are_listed_shown_and_sent_again_with_the_same_id() {
    let network = Network::start();
    let endpoints = [ocean(&network, "a", ""), ocean(&network, "b", "")].concat();
    let site = Site::new(Kafka::shared(), "callbacks.dead", 2, &settings(&endpoints)).impatient();
    network.answer("/a", 403, "{\"code\":1,\"detail\":\"token-c-1 is blocked\"}");
    network.answer("/b", 200, TAKEN);
    let adtrail = site.start();
    produce(&site, &click(1, "c-1", 1, 30 * MINUTE_MS));
    produce(&site, &activation("a-1", 1, 20 * MINUTE_MS));
    produce(&site, &click(2, "c-2", 2, 30 * MINUTE_MS));
    produce(&site, &activation("a-2", 2, 20 * MINUTE_MS));
    await_state(&adtrail, "a", "dead", 1);
    // The other endpoint goes on.
    await_state(&adtrail, "b", "sent", 1);

    let list = |more: &[&str]| lines(&site.run(&[&["callbacks", "list"][..], more].concat()));
    let dead = list(&["--state", "dead"]);
    let [line] = &dead[..] else { panic!("{dead:?}") };
    assert_eq!((&line["endpoint"], &line["event_id"]), (&"a".into(), &"a-1".into()), "{line}");
    assert_eq!((&line["kind"], &line["reason"]), (&"activation".into(), &"status 403".into()));
    assert_eq!(list(&[]).len(), 2);
    assert_eq!(list(&["--endpoint", "b", "--app", "app-x"]).len(), 1);
    let counts = list(&["--counts"]);
    assert_eq!((&counts[0]["made"], &counts[0]["dead"]), (&1.into(), &1.into()), "{counts:?}");

    let shown = site.run(&["callbacks", "show", "--app", "app-x", "--activation", "a-1"]);
    check_exit(&shown, 0, &[]);
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(text.contains("request: POST http://localhost:"), "{text}");
    assert!(text.contains("hidden is blocked") && !text.contains("token-c-1"), "{text}");
    let page = adtrail.get("/callbacks?app=app-x&state=dead").unwrap().text();
    assert!(page.contains("status 403") && page.contains("hidden is blocked"), "{page}");
    assert!(!page.contains("token-c-1") && !page.contains(&oaid(1)), "{page}");

    network.answer("/a", 200, TAKEN);
    let retried = lines(&site.run(&["callbacks", "retry", "--app", "app-x"]));
    assert_eq!(retried, [json!({"retried": 1})]);
    let requests = network.await_requests("/a", 2);
    let ids: Vec<Value> =
        requests.iter().map(|request| request.json()["outer_event_id"].clone()).collect();
    assert_eq!(ids[0], ids[1]);
    await_state(&adtrail, "a", "sent", 1);
    check_conserved(&adtrail);
    // Without a service the command changes the store itself.
    adtrail.stop();
    assert_eq!(lines(&site.run(&["callbacks", "retry"])), [json!({"retried": 0})]);
    assert_eq!(list(&["--state", "sent"]).len(), 2);
}

#[test]
fn pending_callbacks_are_sent_before_they_are_due() {
    let network = Network::start();
    let settings = settings(&ocean(&network, "a", ""));
    let site = Site::new(Kafka::shared(), "callbacks.pending", 1, &settings).impatient();
    network.answer_with("/a", 500, "Retry-After: 1800", "");
    let adtrail = site.start();
    produce(&site, &click(1, "c-1", 1, 30 * MINUTE_MS));
    produce(&site, &activation("a-1", 1, 20 * MINUTE_MS));
    network.await_requests("/a", 1);
    eventually("the failure is stored", || {
        let pending = lines(&site.run(&["callbacks", "list", "--state", "pending"]));
        let has_failed = pending.iter().any(|line| line["reason"] == "status 500");
        if has_failed { Ok(()) } else { Err(format!("{pending:?}")) }
    });
    network.answer("/a", 200, TAKEN);
    let retry = |more: &[&str]| lines(&site.run(&[&["callbacks", "retry"][..], more].concat()));
    assert_eq!(retry(&[]), [json!({"retried": 0})], "it is not dead");
    let of_effects = ["--state", "pending", "--endpoint", "a", "--kind", "effect"];
    assert_eq!(retry(&of_effects), [json!({"retried": 0})], "it is of another kind");
    let hastened = retry(&["--state", "pending", "--endpoint", "a", "--app", "app-x"]);
    assert_eq!(hastened, [json!({"retried": 1})]);
    await_state(&adtrail, "a", "sent", 1);
    assert_eq!(adtrail.metric_of("adtrail_callbacks_made", "endpoint=\"a\""), Some(1.0));
    check_conserved(&adtrail);
}

#[test]
fn an_endpoint_is_tested_with_a_made_up_event_or_a_stored_one() {
    let network = Network::start();
    let endpoints = [ocean(&network, "a", ""), webhook(&network, "")].concat();
    let site = Site::new(Kafka::shared(), "callbacks.test", 2, &settings(&endpoints)).impatient();
    network.answer("/hook", 200, "thanks");
    network.answer("/a", 500, "");
    let test = |more: &[&str]| site.run(&[&["callbacks", "test"][..], more].concat());
    let tested = test(&["hook"]);
    check_exit(&tested, 0, &[]);
    let shown: Value = serde_json::from_slice(&tested.stdout).unwrap();
    assert_eq!((&shown["outcome"], &shown["response"]), (&"sent".into(), &"thanks".into()));
    let received = network.received("/hook").remove(0).json();
    assert_eq!(received["type"], "activation.attributed");
    let event_id = received["data"]["event_id"].as_str().unwrap();
    assert!(event_id.starts_with("adtrail-test-"), "{received}");

    let failed = test(&["a"]);
    check_exit(&failed, 1, &[]);
    assert!(String::from_utf8_lossy(&failed.stdout).contains("status 500"), "{failed:?}");
    check_exit(&test(&["a", "--callback", "token-7"]), 1, &[]);
    let received = network.received("/a").pop().unwrap().json();
    assert_eq!(received["context"]["ad"]["callback"], "token-7");
    let expected = "ENDPOINT: no such endpoint is configured: \"other\"; known: hook, a";
    check_refused(&test(&["other"]), 2, &[expected]);
    check_refused(
        &test(&["a", "--kind", "activation.changed"]),
        2,
        &["expected one of activation"],
    );

    let adtrail = site.start();
    produce(&site, &click(2, "c-1", 1, 30 * MINUTE_MS));
    produce(&site, &activation("a-1", 1, 20 * MINUTE_MS));
    await_state(&adtrail, "hook", "sent", 1);
    let made = adtrail.metric("adtrail_callbacks_made");
    let tested = test(&["hook", "--app", "app-x", "--activation", "a-1"]);
    check_exit(&tested, 0, &[]);
    let received = network.received("/hook").pop().unwrap().json();
    assert_eq!(received["data"]["click_id"], "c-1");
    check_refused(
        &test(&["hook", "--app", "app-x", "--activation", "none"]),
        1,
        &["the store has no such event"],
    );
    // A test changes nothing.
    assert_eq!(adtrail.metric("adtrail_callbacks_made"), made);
}

#[test]
fn mistakes_of_endpoints_are_found_before_a_start() {
    let network = Network::start();
    let unknown = ocean(&network, "a", "").replace("oceanengine", "oceanengin");
    let late = ocean(&network, "b", "settle = \"2h\"\nmax_age = \"1h\"\n");
    let endpoints = settings(&[unknown, late].concat());
    let site = Site::new(Kafka::shared(), "callbacks.mistakes", 1, &endpoints);
    let text = fs::read_to_string(site.config()).unwrap();
    let lines = text.lines().zip(1..).filter(|(line, _)| *line == "[[callbacks.endpoint]]");
    let lines: Vec<i32> = lines.map(|(_, number)| number).collect();
    let expected = [
        format!("adtrail.toml:{}: callbacks.endpoint[0].preset: no such preset", lines[0]),
        format!("adtrail.toml:{}: callbacks.endpoint[1].settle: expected less than", lines[1]),
    ];
    let expected = expected.each_ref().map(|part| &**part);
    check_refused(&site.run(&["check-config"]), 2, &expected);
    site.spawn().check_ended(1, &expected);
    check_refused(
        &site.run(&["callbacks", "list", "--state", "lost"]),
        2,
        &["--state: expected one of"],
    );
}

#[test]
fn an_unknown_endpoint_is_refused_with_the_known_names() {
    let network = Network::start();
    let [kept, removed] = [ocean(&network, "a", ""), ocean(&network, "b", "")];
    let both = settings(&[&*kept, &*removed].concat());
    let mut site = Site::new(Kafka::shared(), "callbacks.unknown", 1, &both).impatient();
    network.answer("/b", 200, TAKEN);
    let adtrail = site.start();
    produce(&site, &click(2, "c-1", 1, 30 * MINUTE_MS));
    produce(&site, &activation("a-1", 1, 20 * MINUTE_MS));
    await_state(&adtrail, "b", "sent", 1);
    adtrail.stop();
    let run = |site: &Site, args: &[&str]| site.run(&[&["callbacks"][..], args].concat());
    for args in [&["list"][..], &["list", "--counts"], &["retry"]] {
        let output = run(&site, &[args, &["--endpoint", "c"]].concat());
        check_refused(&output, 2, &["--endpoint: no such endpoint", ": \"c\"; known: a, b"]);
    }
    // The callbacks of a former endpoint can be seen, but nobody would send them.
    site.change(&settings(&kept));
    assert_eq!(lines(&run(&site, &["list", "--endpoint", "b"])).len(), 1);
    check_refused(&run(&site, &["list", "--endpoint", "c"]), 2, &["known: a, b"]);
    let expected = "--endpoint: no such endpoint is configured: \"b\"; known: a";
    check_refused(&run(&site, &["retry", "--endpoint", "b"]), 2, &[expected]);
}
