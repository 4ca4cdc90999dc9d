//! `adtrail check-events`: what would become of the events of files.

use serde_json::Value;
use testbed::site::{ONE_CAMPAIGN, SECOND_APP, Site, Topics};
use testbed::{check_exit, check_refused, run};

const MD5: &str = "83e9158a4fb54c0e1ef0b238639a23ae";
const TIME: &str = "1773144000000";

/// Returns a site without Kafka, which the command does not need.
fn site() -> Site {
    let settings = format!("{ONE_CAMPAIGN}{SECOND_APP}");
    Site::on(Topics::of("check-events"), "127.0.0.1:1".into(), &settings)
}

fn event(kind: &str, fields: &str) -> String {
    format!(r#"{{"type":"{kind}","app":"app-x","spreadid":7,"time":{TIME},{fields}}}"#)
}

/// Clicks, then activations, each with a fault of its own; `#` is the number of the line.
fn faults() -> Vec<String> {
    let click = |fields: &str| event("click", &format!(r#""click_id":"c-#",{fields}"#));
    let activation = |fields: &str| event("activation", &format!(r#""event_id":"a-#",{fields}"#));
    let lines = [
        click(r#""ids":{"oaid":"__OAID__"}"#),
        click(r#""ids":{"imei_md5":"868049039501257"}"#),
        click(&format!(r#""ids":{{"imei":"{MD5}"}}"#)),
        click(r#""ids":{"idfv":"599f9c00-92dc-4b5c-9464-7971f01f8370"}"#),
        click(r#""ids":{"IMEI":"868049039501257"}"#),
        click(r#""ip":"unknown""#),
        click(r#""ip":"100.64.3.9","ids":{"mac":"02:00:00:00:00:00"}"#),
        click(r#""os":"ios""#).replace(r#""spreadid":7"#, r#""spreadid":9"#),
        click(r#""os":"ios""#).replace(TIME, "1773144000"),
        click(r#""os":"ios""#).replace(TIME, "253402300799999"),
        "[]".to_owned(),
        activation(&format!(r#""ids":{{"idfv_md5":"{MD5}"}}"#)),
        activation(r#""install_begin_time":0,"click_id":"c-1""#),
        activation(r#""install_begin_time":1773143990,"click_id":"c-1""#),
        activation(r#""click_id":"{click_id}""#),
        event("activation", r#""event_id":"__EVENTID__","ip":"203.0.113.9""#),
        event("activation", r#""event_id":"null","ip":"203.0.113.9""#),
        event("activation", r#""event_id":"0","ids":{"oaid":"d-1"}"#),
        event("activation", r#""event_id":"0","ids":{"oaid":"d-2"}"#),
    ];
    let number = |(line, number): (String, u32)| line.replace('#', &number.to_string());
    lines.into_iter().zip(1..).map(number).collect()
}

/// Returns the items of a list as `name, problem, events, first line, fault`.
fn problems(report: &Value, kind: &str) -> Vec<String> {
    let types = report["types"].as_array().unwrap();
    let section = types.iter().find(|it| it["type"] == kind && it["app"] == "app-x").unwrap();
    let problems = section["problems"].as_array().unwrap().iter();
    let found = problems.filter(|it| it["problem"] != "missing").map(|it| {
        let [field, problem] = ["field", "problem"].map(|key| it[key].as_str().unwrap());
        let mark = if it["fault"] == true { "!" } else { "" };
        format!("{mark}{field} {problem} {} {}", it["events"], it["first"]["line"])
    });
    found.collect()
}

#[test]
fn each_fault_is_found_with_its_line() {
    let site = site();
    let file = site.write("events.ndjson", faults().join("\n"));
    let output = site.run(&["check-events", "--json", &file]);
    check_exit(&output, 1, &["faults found"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let clicks = [
        "!idfv wrong_case 1 4",
        "!ids unknown_kind 1 5",
        "!imei hashed 1 3",
        "!imei_md5 not_md5 1 2",
        "!ip not_an_address 1 6",
        "ip shared_address 1 7",
        "mac placeholder 1 7",
        "!oaid macro 1 1",
        "!spreadid unknown_campaign 1 8",
    ];
    assert_eq!(problems(&report, "click"), clicks);
    let activations = [
        "!click_id macro 1 15",
        "!event_id placeholder 1 17",
        "!event_id macro 1 16",
        "!event_id not_unique 1 19",
    ];
    assert_eq!(problems(&report, "activation"), activations);
    let types = report["types"].as_array().unwrap();
    let letters = types.iter().flat_map(|it| it["dead_letters"].as_array().unwrap());
    let mut letters: Vec<_> = letters
        .map(|it| (it["first"]["line"].as_u64().unwrap(), it["code"].as_str().unwrap()))
        .collect();
    letters.sort_unstable();
    let expected = [(9, "bad_time"), (10, "bad_time"), (11, "not_an_object"), (14, "bad_time")];
    assert_eq!(letters, expected);

    let ids = report["apps"][0]["ids"].as_array().unwrap();
    let kind = |name: &str| ids.iter().find(|it| it["kind"] == name).unwrap();
    // The touches have the raw IDFV, the activations only MD5s of other texts.
    assert_eq!(kind("idfv")["fault"], true);
    assert_eq!(kind("click_id")["matched_activations"], 1);
    assert_eq!(report["apps"][0]["activations"]["events"], 7);
    assert_eq!(report["apps"][0]["activations"]["without_id"], 3);
    assert_eq!(report["apps"][0]["activations"]["unmatched"], 3);
}

#[test]
fn values_are_shown_on_request_only() {
    let site = site();
    let file = site.write("events.ndjson", faults().join("\n"));
    let text = |args: &[&str]| {
        let output = site.run(&[&["check-events"][..], args, &[&*file]].concat());
        check_exit(&output, 1, &[]);
        String::from_utf8(output.stdout).unwrap()
    };
    let without = text(&[]);
    assert!(without.contains("! imei_md5") && without.contains(&format!("{file}:2")), "{without}");
    assert!(without.contains("looks like seconds"), "{without}");
    for id in ["868049039501257", MD5, "599f9c00", "02:00", "100.64"] {
        assert!(!without.contains(id), "{id}: {without}");
    }
    let with = text(&["--show-values"]);
    assert!(with.contains(&format!("{file}:2: 868049039501257")), "{with}");
    assert_eq!(with, text(&["--show-values"]));
}

#[test]
fn events_without_a_fault_end_with_0() {
    let site = site();
    let ids = r#""ids":{"oaid":"1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5"}"#;
    let click = event("click", ids);
    let activation =
        event("activation", r#""ids":{"oaid_md5":"83e9158a4fb54c0e1ef0b238639a23ae"}"#);
    let input = format!("{activation}\n\n{click}\n");
    let output = run(&mut site.command(&["check-events", "--json", "-"]), input.as_bytes());
    assert_eq!(check_exit(&output, 0, &[]), "");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!([&report["events"], &report["faults"]], [2, 0]);
    assert_eq!(report["apps"][0]["ids"][0]["matched_activations"], 1);
    check_refused(&site.run(&["check-events"]), 2, &["EVENTS.ndjson"]);
    check_refused(&site.run(&["check-events", "/nowhere"]), 1, &["cannot be read: /nowhere"]);
}
