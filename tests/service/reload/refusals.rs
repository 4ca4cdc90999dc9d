//! Settings that are refused change nothing. A command, a request and a signal reload.

use std::fs;

use testbed::http;
use testbed::kafka::Kafka;
use testbed::site::{ONE_CAMPAIGN, SECOND_APP, Site};
use testbed::{check_exit, check_refused as check_command_refused, free_port};

use super::{SUCCESSFUL, check_refused, reload};
use crate::collector;

const CAMPAIGN: &str = "[[campaigns]]\nspreadid = 8\npid = 1\nchannel = \"toutiao\"\n";

#[test]
fn settings_that_are_refused_change_nothing() {
    let mut site = Site::new(Kafka::shared(), "reload.refused", 1, ONE_CAMPAIGN);
    let adtrail = site.start();
    let apps = || adtrail.get("/v1/apps").unwrap().text();
    let loaded_at = || adtrail.metric("adtrail_config_last_reload_success_timestamp_seconds");
    let (before, started) = (apps(), loaded_at());
    let both = format!("{ONE_CAMPAIGN}{SECOND_APP}");
    let mut check = |more: &str, parts: &[&str]| {
        check_refused(&mut site, &adtrail, &format!("{both}{more}"), parts);
        assert_eq!((apps(), loaded_at()), (before.clone(), started), "{more}");
    };
    check("[[campaigns]]\nspreadid = 9\npid = 7\nchannel = \"toutiao\"\n", &["campaigns", "pid"]);
    check("[[apps]\n", &["adtrail.toml:"]);
    check("[callbacks]\nno_such_key = 1\n", &["no_such_key"]);
    let fixed = "cannot change while running; restart adtrail";
    check("[ingest]\nbatch_records_max = 7\n", &[&format!("ingest: {fixed}")]);
    let two = "[run]\nshutdown_deadline = \"7s\"\n[collect]\nlisten = \"127.0.0.1:1\"\n";
    check(two, &[&format!("collect, run.shutdown_deadline: {fixed}")]);
    adtrail.await_log("settings not reloaded");
    reload(&mut site, &adtrail, &both);
    assert_eq!(adtrail.metric(SUCCESSFUL), Some(1.0));
    assert!(loaded_at() > started && apps().contains("app-y"), "{}", apps());
    adtrail.stop();
}

/// It reads the file of a cluster that has moved to another store.
#[test]
fn a_collector_takes_settings_with_another_store() {
    let settings = collector::settings(free_port(), "");
    let site = Site::new(Kafka::shared(), "reload.collector", 1, &settings);
    let collector = site.start_role("collect");
    let text = fs::read_to_string(site.config()).unwrap();
    let moved = text.replacen("[store]\n", "[store]\nkind = \"hbase\"\npartitions = 8\n", 1);
    let moved = format!("{moved}[store.hbase]\nservers = [\"nowhere:1\"]\n");
    let check = |more: &str, status: u16, part: &str| {
        fs::write(site.config(), format!("{moved}{more}")).unwrap();
        let reply = collector.reload();
        assert!(reply.status == status && reply.text().contains(part), "{reply:?}");
    };
    check("", 200, "settings reloaded: 1 app, ");
    check("[ingest]\nbatch_records_max = 7\n", 422, "ingest: cannot change while running");
    collector.stop();
}

#[test]
fn settings_of_a_stored_app_cannot_be_those_of_another() {
    let mut site = Site::new(Kafka::shared(), "reload.other-app", 1, ONE_CAMPAIGN);
    let adtrail = site.start();
    let other = ONE_CAMPAIGN.replace("app-x", "app-z");
    check_refused(&mut site, &adtrail, &other, &["the store cannot have these apps", "app-x"]);
    // Nothing was read for the app that is added meanwhile.
    reload(&mut site, &adtrail, &format!("{ONE_CAMPAIGN}{SECOND_APP}"));
    let other = SECOND_APP.replace("app-y", "app-z");
    check_refused(&mut site, &adtrail, &format!("{ONE_CAMPAIGN}{other}"), &["app-y"]);
    adtrail.stop();
}

#[test]
fn an_app_returns_only_with_the_storage_that_it_had() {
    let stored = |retention: &str| {
        format!("{ONE_CAMPAIGN}{SECOND_APP}[apps.store]\nretention = \"{retention}\"\n")
    };
    let mut site = Site::new(Kafka::shared(), "reload.returned-app", 1, &stored("300d"));
    let adtrail = site.start();
    reload(&mut site, &adtrail, ONE_CAMPAIGN);
    check_refused(&mut site, &adtrail, &stored("30d"), &["apps.store: cannot change"]);
    reload(&mut site, &adtrail, &stored("300d"));
    adtrail.stop();
    // Now the store is opened without the settings of the app.
    site.change(ONE_CAMPAIGN);
    let adtrail = site.start();
    let parts = ["apps.store of \"app-y\"", "cannot change while running; restart adtrail"];
    check_refused(&mut site, &adtrail, &stored("30d"), &parts);
    reload(&mut site, &adtrail, &format!("{ONE_CAMPAIGN}{SECOND_APP}"));
    adtrail.stop();
}

#[test]
fn the_command_and_the_signal_reload_too() {
    let mut site = Site::new(Kafka::shared(), "reload.command", 1, ONE_CAMPAIGN);
    let adtrail = site.start();
    let campaigns = || adtrail.get("/v1/apps/app-x/campaigns").unwrap().text();
    site.change_beside(&adtrail, &format!("{ONE_CAMPAIGN}{CAMPAIGN}"));
    let output = site.run(&["reload"]);
    check_exit(&output, 0, &[]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.starts_with("settings reloaded: 1 app, 2 campaigns, version "), "{shown}");
    assert!(campaigns().contains("8"), "{}", campaigns());
    site.change_beside(&adtrail, &format!("{ONE_CAMPAIGN}[ingest]\nbatch_records_max = 7\n"));
    check_command_refused(&site.run(&["reload"]), 1, &["ingest: cannot change while running"]);
    site.change_beside(&adtrail, "[[apps]\n");
    check_command_refused(&site.run(&["reload"]), 1, &["adtrail.toml:"]);
    site.change_beside(&adtrail, ONE_CAMPAIGN);
    adtrail.signal("HUP");
    adtrail.await_line(&["settings reloaded", "campaigns=1"]);
    // A page of another site cannot make its reader's browser reload.
    let headers = [("Origin", "http://evil.example")];
    let reply = http::request("POST", &adtrail.admin, "/-/reload", &headers).unwrap();
    assert_eq!(reply.status, 403);
    adtrail.stop();
    check_command_refused(&site.run(&["reload"]), 1, &["/-/reload"]);
}
