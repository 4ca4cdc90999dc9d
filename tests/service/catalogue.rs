//! Catalogue files, and campaigns that events name before the settings have them.

use std::fs;

use serde_json::{Value, json};
use testbed::kafka::{Kafka, Message};
use testbed::site::{SECOND_APP, Site};
use testbed::{check_exit, check_refused, eventually, free_port, http};

use super::collector::{self, NOON_MS};

const OAID: &str = "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5";
const NEW: &str = "campaigns/new.csv";

/// A site with a collector, whose settings include the CSV files of `campaigns`.
fn site(name: &str, port: u16) -> Site {
    let more = format!("{SECOND_APP}[include]\ncatalogue = \"campaigns/*.csv\"\n");
    let site = Site::new(Kafka::shared(), name, 2, &collector::settings(port, &more));
    fs::create_dir(site.path().join("campaigns")).unwrap();
    site
}

fn produce(topic: &str, event: &Value) {
    let app = event["app"].as_str().unwrap();
    Kafka::shared().produce(topic, [Message::new(app, event.to_string())]);
}

fn unknown(site: &Site, more: &[&str]) -> Vec<Value> {
    let output = site.run(&[&["catalogue", "unknown"][..], more].concat());
    check_exit(&output, 0, &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn adopt(site: &Site, options: &[&str], code: i32, parts: &[&str]) -> String {
    let output = site.run(&[&["catalogue", "adopt"][..], options].concat());
    check_exit(&output, code, parts);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Two clicks of campaign 8 by the collector, of which one wins an activation with an effect; an impression of campaign
/// 9 and a click of the known campaign 7 by Kafka.
fn send_events(site: &Site, port: u16) {
    for (id, time, name) in
        [("c-1", NOON_MS, "Winter"), ("c-2", NOON_MS + 60_000, "Spring%20%22sale%22")]
    {
        let query =
            format!("spreadid=8&click_id={id}&time={time}&oaid={OAID}&campaign_name={name}");
        let url = format!("/click/app-x/toutiao?{query}");
        let reply = http::get(&format!("127.0.0.1:{port}"), &url).expect("the collector responds");
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    let event = |kind: &str, more: Value| {
        let mut event =
            json!({"type": kind, "app": "app-x", "time": NOON_MS + 120_000, "ids": {"oaid": OAID}});
        let Value::Object(more) = more else { panic!("an object") };
        event.as_object_mut().unwrap().extend(more);
        event
    };
    produce(&site.topics.activations, &event("activation", json!({"event_id": "a-1"})));
    produce(&site.topics.effects, &event("effect", json!({"event_id": "e-1", "name": "purchase"})));
    let nine = json!({"spreadid": 9, "click_id": "c-3", "ids": {"oaid": "other"}});
    produce(&site.topics.clicks, &event("impression", nine));
    let known = json!({"spreadid": 7, "click_id": "c-4", "ids": {"oaid": "other"}});
    produce(&site.topics.clicks, &event("click", known));
}

#[test]
fn unknown_campaigns_are_listed_and_taken_over_beside_the_service() {
    let port = free_port();
    let site = site("catalogue.unknown", port);
    let adtrail = site.start();
    send_events(&site, port);
    let expected = [
        json!({
            "spreadid": 8, "app": "app-x", "channel": "toutiao", "name": "Spring \"sale\"", "clicks": 2,
            "impressions": 0, "activations": 1, "effects": 1, "first_seen": "2025-03-10T12:00:00.000Z",
            "last_seen": "2025-03-10T12:01:00.000Z",
        }),
        json!({
            "spreadid": 9, "app": "app-x", "channel": null, "name": null, "clicks": 0, "impressions": 1,
            "activations": 0, "effects": 0, "first_seen": "2025-03-10T12:02:00.000Z",
            "last_seen": "2025-03-10T12:02:00.000Z",
        }),
    ];
    eventually("all events are listed", || {
        let found = unknown(&site, &[]);
        if found == expected { Ok(()) } else { Err(Value::from(found)) }
    });
    assert!(unknown(&site, &["--app", "app-y"]).is_empty());

    let toml = adopt(&site, &["8"], 0, &[]);
    let shown: toml::Table = toml.parse().unwrap();
    assert_eq!(shown["campaigns"][0]["name"].as_str(), Some("Spring \"sale\""), "{toml}");
    let outside =
        adopt(&site, &["--out", "other.csv"], 2, &["nothing is written", "include.catalogue"]);
    assert_eq!(outside, "");
    assert!(!site.path().join("other.csv").exists());
    let parts = ["campaign 9 is left out: its events do not say its channel", "1 campaign added"];
    adopt(&site, &["--out", NEW], 0, &parts);
    let eight = "spreadid,pid,channel,name\n8,1,toutiao,\"Spring \"\"sale\"\"\"\n";
    assert_eq!(fs::read_to_string(site.path().join(NEW)).unwrap(), eight);
    adopt(&site, &["9", "--channel", "toutiao", "--out", NEW], 0, &["1 campaign added"]);
    let both = format!("{eight}9,1,toutiao,\n");
    assert_eq!(fs::read_to_string(site.path().join(NEW)).unwrap(), both);
    assert!(unknown(&site, &[]).is_empty());
    adopt(&site, &["--out", NEW], 0, &["The settings have all campaigns"]);
    adopt(&site, &["8", "--out", NEW], 1, &["campaign 8 is left out: the settings have it"]);
    assert_eq!(fs::read_to_string(site.path().join(NEW)).unwrap(), both);

    let path =
        "/v1/apps/app-x/events.csv?from=2025-03-10&to=2025-03-10&fields=spreadid,campaign,channel";
    let check_rows = |row: &str| {
        let expected = format!("spreadid,campaign,channel\n{row}{row}");
        assert_eq!(adtrail.get(path).unwrap().text(), expected);
    };
    check_rows("8,,unknown\n");
    let reloaded = adtrail.reload();
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    check_rows("8,\"Spring \"\"sale\"\"\",toutiao\n");
    site.write(NEW, "spreadid,pid,channel\n8,1,toutia\n");
    assert_eq!(adtrail.reload().status, 422);
    check_rows("8,\"Spring \"\"sale\"\"\",toutiao\n");
    adtrail.stop();
}

#[test]
fn a_campaign_of_another_app_is_not_taken_over() {
    let port = free_port();
    let site = site("catalogue.apps", port);
    let adtrail = site.start();
    for (app, spreadid) in [("app-y", 7), ("app-x", 8), ("app-y", 8)] {
        let click = json!({
            "type": "click", "app": app, "spreadid": spreadid, "click_id": format!("c-{spreadid}"), "time": NOON_MS,
        });
        produce(&site.topics.clicks, &click);
    }
    eventually("all clicks are listed", || match unknown(&site, &[]).len() {
        3 => Ok(()),
        count => Err(count),
    });
    let parts = [
        "campaign 7 is left out: the settings have it for app-x",
        "campaign 8 is left out: events of several apps name it",
        "no campaign can be added",
    ];
    let options = ["--channel", "toutiao", "--out", NEW];
    adopt(&site, &options, 1, &parts);
    assert!(!site.path().join(NEW).exists());
    adopt(
        &site,
        &["--app", "app-y", "8", "--channel", "toutiao", "--out", NEW],
        0,
        &["1 campaign added"],
    );
    adtrail.stop();
}

#[test]
fn a_wrong_catalogue_file_is_refused_with_its_line() {
    let site = site("catalogue.wrong", free_port());
    site.write(NEW, "spreadid,pid,channel\n8,1,toutia\n");
    let parts =
        ["campaigns/new.csv:2: campaigns[0].channel: expected the id of one of the [[channels]]"];
    for command in ["check-config", "run"] {
        check_refused(&site.run(&[command]), 2, &parts);
    }
    site.write(NEW, "spreadid,pid,channel\n8,1,toutiao\n");
    let valid = site.run(&["check-config"]);
    check_exit(&valid, 0, &[]);
    assert!(String::from_utf8_lossy(&valid.stdout).contains("2 campaigns"), "{valid:?}");
}
