//! `adtrail explain`, and the output in its documentation.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testbed::adtrail::adtrail;
use testbed::{check_refused, run, run_ok};

const CONFIG: &str = "docs/explain/adtrail.toml";
const EVENTS: &str = "docs/explain/events.ndjson";

fn explain(activation: &str, more: &[&str]) -> Command {
    explain_of("app-x", activation, more)
}

fn explain_of(app: &str, activation: &str, more: &[&str]) -> Command {
    let mut command = adtrail();
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.args(["explain", "--config", CONFIG, "--app", app, "--activation", activation]);
    command.args(more);
    command
}

fn json_of(activation: &str) -> Value {
    let printed = run_ok(&mut explain(activation, &["--json", EVENTS]), b"");
    serde_json::from_slice(&printed).unwrap()
}

#[test]
fn the_documentation_shows_the_real_output() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/explain.md"));
    let page = page.unwrap();
    let mut shown = 0;
    for block in page.split("```\n$ adtrail explain ").skip(1) {
        let (command, rest) = block.split_once('\n').unwrap();
        let (text, _) = rest.split_once("```").unwrap();
        let activation = command.split(' ').skip_while(|word| *word != "--activation").nth(1);
        let activation = activation.unwrap();
        let printed = run_ok(&mut explain(activation, &[EVENTS]), b"");
        assert_eq!(String::from_utf8(printed).unwrap(), text, "{activation}");
        shown += 1;
    }
    assert!(shown >= 10, "{shown} decisions are shown");
}

#[test]
fn json_has_the_decision_of_the_text() {
    let json = json_of("two-clicks");
    assert_eq!(json["decision"]["click_id"], "c-late");
    assert_eq!(json["decision"]["channel"], "toutiao");
    assert_eq!(json["touches"][0]["verdict"], "won");
    assert_eq!(json["touches"][1]["click_id"], "c-early");
    assert_eq!(json["touches"][1]["age_ms"], 6 * 86_400_000);
    assert_eq!(json["touches"][1]["window_from"], "default");
    let json = json_of("why-organic");
    let reasons: Vec<_> =
        json["touches"].as_array().unwrap().iter().map(|touch| &touch["reason"]).collect();
    assert_eq!(reasons, ["not_before", "too_old"]);
    assert_eq!(json["touches"][1]["window_from"], "campaign");
    assert_eq!(json_of("came-back")["last_install"]["event_id"], "two-clicks");
}

/// Returns the explanation of activation `a`, as text and as JSON, after events that are attributed one by one.
fn explained_one_by_one(events: &[Value]) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.ndjson");
    let lines: Vec<_> = events.iter().map(|event| format!("{event}\n")).collect();
    fs::write(&path, lines.concat()).unwrap();
    // Each event is attributed before the next is read.
    let more = ["--set", "ingest.batch_records_max=1", path.to_str().unwrap()];
    let text = String::from_utf8(run_ok(&mut explain("a", &more), b"")).unwrap();
    let json = run_ok(&mut explain("a", &[&more[..], &["--json"]].concat()), b"");
    (text, serde_json::from_slice(&json).unwrap())
}

fn click(id: &str, time: &str) -> Value {
    json!({"type": "click", "app": "app-x", "click_id": id, "spreadid": 7, "time": time, "ids": {"oaid": "d"}})
}

fn activation(id: &str, time: &str) -> Value {
    json!({"type": "activation", "app": "app-x", "event_id": id, "time": time, "ids": {"oaid": "d"}})
}

/// Returns the event with some of its fields replaced.
fn with(mut event: Value, fields: Value) -> Value {
    for (key, value) in fields.as_object().unwrap() {
        event[key] = value.clone();
    }
    event
}

/// Checks the previous decision and the cause of its change in the text.
#[track_caller]
fn check_change(events: &[Value], before: &str, cause: &str) {
    let (text, json) = explained_one_by_one(events);
    let (_, change) = text.split_once("\nWhy it changed\n").unwrap_or_else(|| panic!("{text}"));
    let expected = format!("  Before: {before}.\n  Caused by {cause}. (section 7)\n\n");
    assert!(change.starts_with(&expected), "{text}");
    let [change] = &json["changed_by"].as_array().unwrap()[..] else { panic!("{json}") };
    assert_eq!(change["again"], cause.ends_with(REDELIVERED), "{json}");
    assert!(cause.contains(change["time"].as_str().unwrap()), "{json}");
    assert_eq!(json["changed_by_more"], false);
}

const REDELIVERED: &str = ", known before and now with an earlier time or other content";

#[test]
fn causes_of_a_changed_decision_are_named() {
    let [day_1, day_2, day_7, day_8, day_9, day_10] =
        [1, 2, 7, 8, 9, 10].map(|day| format!("2026-03-{day:02}T12:00:00.000Z"));
    let by = |id: &str, day: &str| {
        format!(
            "install, attributed to campaign 7 \"Spring\" of channel toutiao, by click {id} of {day}, \
             matched by oaid"
        )
    };
    let a = || activation("a", &day_10);
    let organic = "install, organic";
    check_change(&[a(), click("c", &day_9)], organic, &format!("click c of {day_9}"));
    // The winner is redelivered with an earlier time.
    let redelivered = [click("c1", &day_8), click("c2", &day_9), a(), click("c2", &day_7)];
    check_change(&redelivered, &by("c2", &day_9), &format!("click c2 of {day_7}{REDELIVERED}"));
    // The activation itself is redelivered: with an earlier time, then with the time at which the installation began.
    let earlier = [click("c1", &day_2), a(), activation("a", &day_8)];
    let itself = format!("this activation of {day_8}{REDELIVERED}");
    check_change(&earlier, organic, &itself);
    let just_before = activation("a", "2026-03-10T11:59:59.999Z");
    let begun = with(just_before, json!({"install_begin_time": day_8}));
    let itself = format!("this activation of 2026-03-10T11:59:59.999Z{REDELIVERED}");
    check_change(&[click("c1", &day_9), a(), begun], &by("c1", &day_9), &itself);
    // An earlier activation, which changes only the class.
    let installs = [activation("i1", &day_2), a(), activation("i0", &day_1)];
    let before = "reinstall, unattributed, after install i1";
    check_change(&installs, before, &format!("activation i0 of {day_1}"));
}

#[test]
fn control_characters_in_an_id_are_escaped() {
    let id = "c\u{1b}[2J\nWhy organic\n  \u{202e}";
    let events = [click(id, "2026-03-10T11:00:00Z"), activation("a", "2026-03-10T12:00:00Z")];
    let (text, json) = explained_one_by_one(&events);
    assert!(
        text.contains("  won          click c\\u{1b}[2J\\nWhy organic\\n  \\u{202e}, 2026"),
        "{text}"
    );
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
    assert_eq!(json["touches"][0]["click_id"], id);
    let output = run(&mut explain("no\u{1b}[2J\nbody", &[EVENTS]), b"");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.ends_with("this event_id: no\\u{1b}[2J\\nbody\n"), "{stderr}");
}

#[test]
fn an_id_without_an_activation_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let events = folder.path().join("events.ndjson");
    let text = [
        r#"{"type":"click","app":"app-x","click_id":"c","spreadid":7,"time":1773144000001,"ids":{"oaid":"d"}}"#,
        r#"{"type":"activation","app":"app-x","event_id":"a","time":1773144000002,"ids":{"oaid":"d"}}"#,
        r#"{"type":"effect","app":"app-x","event_id":"before","name":"n","time":1773144000003,"ids":{"oaid":"d"}}"#,
        r#"{"type":"effect","app":"app-x","event_id":"e","name":"n","time":1773144000003,"ids":{"oaid":"d"}}"#,
        r#"{"type":"effect","app":"app-x","event_id":"orphan","name":"n","time":1773144000003,"ids":{"oaid":"x"}}"#,
    ];
    fs::write(&events, text.join("\n")).unwrap();
    for (id, problem) in [
        ("e", "this event_id: e; it is an effect of activation a\n"),
        ("orphan", "this event_id: orphan\n"),
        ("c", "this event_id: c\n"),
        ("none", "app-x has no activation with this event_id: none\n"),
    ] {
        check_refused(&run(&mut explain(id, &[events.to_str().unwrap()]), b""), 1, &[problem]);
    }
    let problem = "--app: no such app is configured: \"app-z\"; known: app-x";
    check_refused(&run(&mut explain_of("app-z", "a", &[EVENTS]), b""), 2, &[problem]);
}
