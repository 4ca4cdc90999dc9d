//! `adtrail explain`: what it tells, and that the documentation shows just that.
#![cfg(test)]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::adtrail::adtrail;
use support::{run, run_ok};

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

fn json(activation: &str) -> Value {
    let printed = run_ok(&mut explain(activation, &["--json", EVENTS]), b"");
    serde_json::from_slice(&printed).unwrap()
}

#[test]
fn the_documentation_shows_what_is_printed() {
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
fn json_tells_the_same() {
    let told = json("two-clicks");
    assert_eq!(told["decision"]["click_id"], "c-late");
    assert_eq!(told["decision"]["channel"], "toutiao");
    assert_eq!(told["touches"][0]["verdict"], "won");
    assert_eq!(told["touches"][1]["click_id"], "c-early");
    assert_eq!(told["touches"][1]["age_ms"], 6 * 86_400_000);
    assert_eq!(told["touches"][1]["window_from"], "default");
    let told = json("why-organic");
    let reasons: Vec<_> =
        told["touches"].as_array().unwrap().iter().map(|touch| &touch["reason"]).collect();
    assert_eq!(reasons, ["not_before", "too_old"]);
    assert_eq!(told["touches"][1]["window_from"], "campaign");
    assert_eq!(json("came-back")["last_install"]["event_id"], "two-clicks");
}

#[test]
fn a_later_fact_that_changed_the_decision_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let activation = r#"{"type":"activation","app":"app-x","event_id":"a","time":"2026-03-10T12:00:00Z","ids":{"oaid":"d"}}"#;
    let click = r#"{"type":"click","app":"app-x","click_id":"c","spreadid":7,"time":"2026-03-10T11:00:00Z","ids":{"oaid":"d"}}"#;
    let files = [write("first", format!("{activation}\n")), write("later", format!("{click}\n"))];
    // Each event is attributed before the next is read.
    let mut more = vec!["--set", "ingest.batch_records_max=1"];
    more.extend(files.iter().map(String::as_str));
    let printed = String::from_utf8(run_ok(&mut explain("a", &more), b"")).unwrap();
    assert!(printed.contains("Decided 2 times\n  Before: install, organic."), "{printed}");
    assert!(printed.contains("click c came in later and won. (section 7)"), "{printed}");
}

#[test]
fn what_is_not_there_is_said() {
    for (activation, app, code, said) in [
        ("nobody", "app-x", 1, "app-x has no activation with this event_id: nobody\n"),
        ("two-clicks", "app-z", 2, "--app: no such app is configured: \"app-z\"; known: app-x"),
    ] {
        let output = run(&mut explain_of(app, activation, &[EVENTS]), b"");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(said), "{stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn an_id_of_something_else_is_said_to_be_one() {
    let folder = tempfile::tempdir().unwrap();
    let events = folder.path().join("events.ndjson");
    let text = [
        r#"{"type":"click","app":"app-x","click_id":"c","spreadid":7,"time":1,"ids":{"oaid":"d"}}"#,
        r#"{"type":"impression","app":"app-x","click_id":"i","spreadid":7,"time":1,"ids":{"oaid":"d"}}"#,
        r#"{"type":"activation","app":"app-x","event_id":"a","time":2,"ids":{"oaid":"d"}}"#,
        r#"{"type":"effect","app":"app-x","event_id":"before","name":"n","time":3,"ids":{"oaid":"d"}}"#,
        r#"{"type":"effect","app":"app-x","event_id":"e","name":"n","time":3,"ids":{"oaid":"d"}}"#,
        r#"{"type":"effect","app":"app-x","event_id":"orphan","name":"n","time":3,"ids":{"oaid":"x"}}"#,
    ];
    fs::write(&events, text.join("\n")).unwrap();
    for (id, said) in [
        ("e", "this event_id: e; it is that of an effect of activation a\n"),
        ("orphan", "this event_id: orphan; it is that of an effect\n"),
        ("c", "this event_id: c; it is the click_id of a click\n"),
        ("i", "this event_id: i; it is the click_id of an impression\n"),
    ] {
        let output = run(&mut explain(id, &[events.to_str().unwrap()]), b"");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.ends_with(said), "{stderr}");
        assert!(output.stdout.is_empty());
    }
}
