//! Which settings can change while a process runs.

use super::*;

#[track_caller]
fn check(before: &str, after: &str, fixed: &[&str]) {
    let [before, after] =
        [before, after].map(|text| parse(&format!("{text}\n{CATALOGUE}")).unwrap());
    let mut found = fixed_changes(&before, &after);
    found.extend(fixed_store_changes(&before, &after));
    assert_eq!(found, fixed);
}

const HBASE: &str = "[store]\nkind = \"hbase\"\n[store.hbase]\nservers = [\"a:16000\"]\n";

#[test]
fn connections_listeners_and_the_layout_of_rows_are_fixed() {
    check("", "[kafka]\nbrokers = \"a:1\"\ngroup = \"b\"\n", &["kafka.brokers", "kafka.group"]);
    check("", "[kafka.librdkafka]\nsasl.username = \"a\"\n", &["kafka.librdkafka"]);
    check("", "[store]\npath = \"a\"\nretention = \"9d\"\n", &["store.path", "store.retention"]);
    check("", HBASE, &["store.kind"]);
    check("", "[export]\nlisten = \"127.0.0.1:9\"\n", &["export.listen"]);
    check("", "[admin]\nlisten = \"127.0.0.1:9\"\n", &["admin.listen"]);
    check("", "[attribution]\nworkers = 64\n", &["attribution.workers"]);
    check("", "[callbacks]\nallow_loopback = [\"a.example\"]\n", &["callbacks.allow_loopback"]);
}

#[test]
fn the_catalogue_and_the_rules_are_not_fixed() {
    check("", "[attribution]\nclick_window = \"3d\"\n[fraud]\nctit_min = \"1s\"\n", &[]);
    check("", "[[channels]]\nid = \"b\"\n", &[]);
    // The settings of the client are on other lines.
    let client = "[kafka.librdkafka]\nsasl.username = \"a\"\n";
    check(client, &format!("\n\n{client}"), &[]);
}

#[test]
fn the_storage_of_an_app_is_fixed_once_it_is_known() {
    let app =
        |settings: &str| format!("[[apps]]\npid = 2\nkey = \"b\"\n[apps.store]\n{settings}\n");
    check(&app("fanout = 2"), &app("fanout = 4"), &["apps.store"]);
    check("", &app("fanout = 4"), &[]);
    check(&app("fanout = 4"), "", &[]);
    let shared = |more: &str| format!("{HBASE}{more}");
    check(&shared(""), &shared(&app("fanout = 4")), &["apps.store"]);
    check(&shared(""), &shared("[[apps]]\npid = 2\nkey = \"b\"\n"), &[]);
}

#[test]
fn endpoints_on_other_lines_have_the_same_values() {
    let callbacks = |before: &str, name: &str| {
        let endpoint = "[[callbacks.endpoint]]\npreset = \"oceanengine\"\nname =";
        parse(&format!("{before}{endpoint} \"{name}\"\n{CATALOGUE}")).unwrap().callbacks
    };
    assert!(callbacks("\n\n", "a").has_values_of(&callbacks("", "a")));
    assert!(!callbacks("", "b").has_values_of(&callbacks("", "a")));
}
