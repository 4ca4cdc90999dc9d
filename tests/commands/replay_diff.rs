//! `adtrail replay --diff`: the rows whose decisions differ under other settings.

use std::fs;
use std::process::Output;

use testbed::check_exit;
use testbed::rows;
use testbed::site::{Site, Topics};

const APPS: &str = r#"
[[apps]]
pid = 1
key = "app-x"
[[channels]]
id = "toutiao"
[[channels]]
id = "kuaishou"
[[campaigns]]
spreadid = 7
pid = 1
channel = "toutiao"
name = "Spring, \"26\""
[[campaigns]]
spreadid = 8
pid = 1
channel = "kuaishou"
name = "春季"
"#;

/// 2025-03-10T12:00:00Z.
const NOON: i64 = 1_741_608_000_000;
const HOUR: i64 = 3_600_000;

fn click(device: u32, spreadid: u32, time: i64) -> String {
    format!(
        r#"{{"type":"click","app":"app-x","click_id":"c-{device}-{spreadid}","spreadid":{spreadid},"time":{time},"ids":{{"oaid":"d-{device}"}}}}"#
    )
}

fn activation(device: u32, time: i64) -> String {
    format!(
        r#"{{"type":"activation","app":"app-x","event_id":"a-{device}","time":{time},"ids":{{"oaid":"d-{device}"}}}}"#
    )
}

fn purchase(device: u32, time: i64) -> String {
    format!(
        r#"{{"type":"effect","app":"app-x","event_id":"e-{device}","name":"purchase","time":{time},"ids":{{"oaid":"d-{device}"}},"revenue":"9.90","currency":"CNY"}}"#
    )
}

/// Device 1 clicked campaign 7 half an hour before its activation, device 2 two days before. Device 3 clicked
/// campaign 8 two days before and buys nothing; device 4 clicked nothing. All activations are in one millisecond, in
/// which the row of an event may have different positions in the two stores.
fn events() -> String {
    let mut lines = vec![
        click(1, 7, NOON - HOUR / 2),
        click(2, 7, NOON - 48 * HOUR),
        click(3, 8, NOON - 48 * HOUR),
    ];
    lines.extend((1..=4).map(|device| activation(device, NOON)));
    lines.extend([1, 2, 4].map(|device| purchase(device, NOON + HOUR)));
    lines.join("\n")
}

fn site() -> Site {
    Site::on(Topics::of("replay-diff"), "127.0.0.1:1".into(), APPS)
}

/// Runs `replay --diff` with the site's settings and these others on the events.
fn diff(site: &Site, other: &str, events: &str, more: &[&str]) -> Output {
    let other = site.write("other.toml", other);
    let file = site.write("events.ndjson", events);
    let args = ["replay", "--diff", &other, &file];
    site.run(&[&args[..], more].concat())
}

/// Checks these columns of each row.
#[track_caller]
fn check_rows<const N: usize>(output: &Output, columns: [&str; N], expected: &[[&str; N]]) {
    check_exit(output, 0, &[]);
    let rows = rows::parse(&output.stdout);
    let found: Vec<_> = rows.iter().map(|row| columns.map(|name| &*row[name])).collect();
    assert_eq!(found, expected);
}

const NARROW: &str = "[attribution]\nclick_window = \"1d\"\n";
const HEADER: &str = "app,event_type,event_name,event_time,event_id,old_status,new_status,\
    old_install_type,new_install_type,old_spreadid,new_spreadid,old_campaign,new_campaign,\
    old_channel,new_channel,old_match_type,new_match_type,old_touch_type,new_touch_type,\
    old_touch_time,new_touch_time,old_click_id,new_click_id,old_reject_reason,new_reject_reason,\
    revenue,currency\n";

/// The output has exactly the changed rows, including the effect that inherits a change, and the totals of all
/// campaigns.
#[test]
fn a_narrower_window_changes_only_the_affected_rows() {
    let site = site();
    let totals = site.path().join("totals.csv");
    let more = ["--totals", totals.to_str().unwrap()];
    let output = diff(&site, &format!("{NARROW}{APPS}"), &events(), &more);
    let summary = check_exit(&output, 0, &[]);
    let spring = r#""Spring, ""26""""#;
    let touch = "2025-03-08T12:00:00.000Z";
    let expected = format!(
        "{HEADER}\
         app-x,activation,activation,2025-03-10T12:00:00.000Z,a-2,attributed,organic,install,\
         install,7,0,{spring},,toutiao,,oaid,,click,,{touch},,c-2-7,,,,,\n\
         app-x,activation,activation,2025-03-10T12:00:00.000Z,a-3,attributed,organic,install,\
         install,8,0,春季,,kuaishou,,oaid,,click,,{touch},,c-3-8,,,,,\n\
         app-x,effect,purchase,2025-03-10T13:00:00.000Z,e-2,attributed,organic,install,install,\
         7,0,{spring},,toutiao,,oaid,,click,,{touch},,c-2-7,,,,9.90,CNY\n"
    );
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    let expected = format!(
        "app,spreadid,campaign,channel,old_activations,new_activations,old_effects,new_effects\n\
         app-x,0,,,1,3,1,2\n\
         app-x,7,{spring},toutiao,2,1,2,1\n\
         app-x,8,春季,kuaishou,1,0,0,0\n"
    );
    assert_eq!(fs::read_to_string(totals).unwrap(), expected);
    let expected = "\
activations  effects  credited to
      1 → 3    1 → 2  app-x: no campaign
      2 → 1    2 → 1  app-x: 7 Spring, \"26\" toutiao
      1 → 0    0 → 0  app-x: 8 春季 kuaishou
3 of 7 rows are decided differently
";
    assert_eq!(summary, expected);
}

#[test]
fn equal_settings_give_only_the_header() {
    let site = site();
    let output = diff(&site, APPS, &events(), &[]);
    assert_eq!(check_exit(&output, 0, &[]), "0 of 7 rows are decided differently\n");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), HEADER);
    // --set applies to both configurations.
    let output = diff(&site, APPS, &events(), &["--set", "attribution.click_window=1d"]);
    check_rows(&output, ["event_id"], &[]);
}

const IDS: [&str; 6] =
    ["app", "event_id", "old_status", "new_status", "old_spreadid", "new_spreadid"];

/// Apps are matched by key, not by pid. The columns of the configuration without the app are empty.
#[test]
fn an_app_may_be_missing_in_one_configuration() {
    let site = site();
    // In the other settings app-y has the pid of app-x.
    let other = "[[apps]]\npid = 1\nkey = \"app-y\"\n[[apps]]\npid = 2\nkey = \"app-x\"\n";
    let events = [activation(1, NOON), activation(1, NOON).replace("app-x", "app-y")].join("\n");
    let output = diff(&site, other, &events, &[]);
    check_rows(&output, IDS, &[["app-y", "a-1", "", "organic", "", "0"]]);
    check_exit(&output, 0, &["0 → 1    0 → 0  app-y: no campaign"]);

    let none = "[[apps]]\npid = 1\nkey = \"app-z\"\n";
    let output = diff(&site, none, &activation(1, NOON), &[]);
    check_rows(&output, IDS, &[["app-x", "a-1", "organic", "", "0", ""]]);
    // A line of an app that neither configuration has.
    let unknown = activation(1, NOON).replace("app-x", "app-q");
    let output = diff(&site, none, &format!("{unknown}\n{}", activation(1, NOON)), &[]);
    check_exit(&output, 1, &["unknown_app", "skipped 1 line"]);
    assert_eq!(rows::parse(&output.stdout).len(), 1);

    let output = diff(&site, other, &events, &["--app", "app-x"]);
    check_rows(&output, IDS, &[]);
    let output = diff(&site, other, &events, &["--app", "app-y"]);
    check_rows(&output, IDS, &[["app-y", "a-1", "", "organic", "", "0"]]);
}

#[test]
fn invalid_options_are_named() {
    let site = site();
    let check_refused = |output: Output, parts: &[&str]| testbed::check_refused(&output, 2, parts);
    let file = site.write("events.ndjson", events());
    let bad = "[attribution]\nclick_windw = \"1d\"\n";
    check_refused(
        diff(&site, &format!("{bad}{APPS}"), &events(), &[]),
        &["--diff", "other.toml:2", "click_windw", "click_window"],
    );
    check_refused(diff(&site, "", &events(), &[]), &["other.toml: no app is configured"]);
    check_refused(diff(&site, "apps = ", &events(), &[]), &["other.toml:1: not TOML"]);
    check_refused(diff(&site, APPS, &events(), &["--app", "app-q"]), &["--app", "app-q"]);
    let same_file = ["--out", "rows.csv", "--totals", "rows.csv"];
    check_refused(diff(&site, APPS, &events(), &same_file), &["--totals", "rows.csv"]);
    check_refused(site.run(&["replay", "--diff", "absent.toml", &file]), &["absent.toml"]);
    check_refused(site.run(&["replay", "--totals", "t.csv", &file]), &["--diff"]);
}
