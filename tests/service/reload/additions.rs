//! What is added takes effect without a restart.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use testbed::free_port;
use testbed::http::{self, Reply};
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, SECOND_APP, Site};

use super::{SUCCESSFUL, reload};
use crate::collector::{self, NOON_MS};
use crate::network::Network;

const CHANNEL: &str = "[[channels]]\nid = \"kuaishou\"\n";
const CAMPAIGN: &str =
    "[[campaigns]]\nspreadid = 8\npid = 1\nchannel = \"kuaishou\"\nname = \"May\"\n";

/// An event of one device, at noon of 2025-03-10 unless it has a time.
fn message(app: &str, mut event: Value) -> Message {
    event["app"] = app.into();
    if event.get("time").is_none() {
        event["time"] = NOON_MS.into();
    }
    event["ids"] = json!({"oaid": "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5"});
    Message::new(app, event.to_string()).at(NOON_MS)
}

#[test]
fn a_campaign_and_its_channel_are_named_in_rows_that_were_stored_before() {
    let kafka = Kafka::shared();
    let mut site = Site::new(kafka, "reload.campaign", 1, ONE_CAMPAIGN);
    let adtrail = site.start();
    assert_eq!(adtrail.metric(SUCCESSFUL), Some(1.0));
    let time = NOON_MS - 60_000;
    let click = json!({"type": "click", "spreadid": 8, "click_id": "c-1", "time": time});
    kafka.produce(&site.topics.clicks, [message("app-x", click)]);
    kafka.produce(&site.topics.activations, [message("app-x", json!({"event_id": "a-1"}))]);
    adtrail.await_read(2);
    let path = "/v1/apps/app-x/events.csv?from=2025-03-10&to=2025-03-10\
                &fields=event_id,status,channel,campaign";
    let rows = || adtrail.get(path).unwrap().text();
    let head = "event_id,status,channel,campaign\n";
    assert!(rows().starts_with(&format!("{head}a-1,attributed,unknown,")), "{}", rows());
    reload(&mut site, &adtrail, &format!("{ONE_CAMPAIGN}{CHANNEL}{CAMPAIGN}"));
    assert_eq!(rows(), format!("{head}a-1,attributed,kuaishou,May\n"));
    adtrail.stop();
}

#[test]
fn the_log_has_the_version_of_the_settings_that_decide() {
    let kafka = Kafka::shared();
    let mut site = Site::new(kafka, "reload.version", 1, ONE_CAMPAIGN);
    let adtrail = site.start();
    let topic = site.topics.activations.clone();
    let activation = |id: &str| {
        kafka.produce(&topic, [message("app-x", json!({"event_id": id}))]);
    };
    let version = || {
        let reply = adtrail.get("/v1/apps/app-x/activations/a-1/explain").unwrap();
        let explained: Value = serde_json::from_str(&reply.text()).unwrap();
        explained["settings_version"].as_str().unwrap().to_owned()
    };
    activation("a-1");
    adtrail.await_read(1);
    let before = version();
    adtrail.await_line(&["settings loaded", &*before]);
    let changed = format!("[attribution]\nclick_window = \"3d\"\n{ONE_CAMPAIGN}");
    reload(&mut site, &adtrail, &changed);
    let after = version();
    assert_ne!(before, after);
    let versions = [format!("version=\"{after}\""), format!("before=\"{before}\"")];
    adtrail.await_line(&["settings reloaded", &*versions[0], &*versions[1]]);
    activation("a-2");
    adtrail.await_read(2);
    adtrail.await_line(&["batches are decided by the reloaded settings from here on", &*after]);
    adtrail.stop();
}

#[test]
fn events_of_an_app_are_accepted_once_it_is_added_and_refused_once_it_is_removed() {
    let kafka = Kafka::shared();
    let mut site = Site::new(kafka, "reload.app", 1, ONE_CAMPAIGN);
    let adtrail = site.start();
    let topic = site.topics.activations.clone();
    let activation = |id: &str| {
        kafka.produce(&topic, [message("app-y", json!({"event_id": id}))]);
    };
    let dead = || adtrail.metric_of("adtrail_ingest_dead_lettered_total", &topic);
    let path = "/v1/apps/app-y/events.csv?from=2025-03-10&to=2025-03-10&fields=event_id";
    let rows = || adtrail.get(path).unwrap();
    activation("a-1");
    adtrail.await_read(1);
    assert_eq!((dead(), rows().status), (Some(1.0), 404));
    reload(&mut site, &adtrail, &format!("{ONE_CAMPAIGN}{SECOND_APP}"));
    assert_eq!((rows().status, rows().text()), (200, "event_id\n".to_owned()));
    activation("a-2");
    adtrail.await_read(2);
    assert_eq!((dead(), rows().text()), (Some(1.0), "event_id\na-2\n".to_owned()));
    reload(&mut site, &adtrail, ONE_CAMPAIGN);
    activation("a-3");
    adtrail.await_read(3);
    assert_eq!((dead(), rows().status), (Some(2.0), 404));
    // The rows were kept.
    reload(&mut site, &adtrail, &format!("{ONE_CAMPAIGN}{SECOND_APP}"));
    assert_eq!(rows().text(), "event_id\na-2\n");
    adtrail.stop();
}

#[test]
fn a_token_is_admitted_once_it_is_added_and_refused_once_it_is_removed() {
    let mut site = Site::new(Kafka::shared(), "reload.token", 1, ONE_CAMPAIGN);
    let (first, first_entry) = site.new_token(&["--app", "app-x", "--id", "first"]);
    let (second, second_entry) = site.new_token(&["--app", "app-x", "--id", "second"]);
    site.change(&format!("{ONE_CAMPAIGN}{first_entry}"));
    let adtrail = site.start();
    let status = |token: &str| {
        let value = format!("Bearer {token}");
        let headers = [("Authorization", &*value)];
        http::request("GET", &adtrail.export, "/v1/apps", &headers).unwrap().status
    };
    assert_eq!([status(&first), status(&second)], [200, 401]);
    reload(&mut site, &adtrail, &format!("{ONE_CAMPAIGN}{first_entry}\n{second_entry}"));
    assert_eq!([status(&first), status(&second)], [200, 200]);
    reload(&mut site, &adtrail, &format!("{ONE_CAMPAIGN}{second_entry}"));
    assert_eq!([status(&first), status(&second)], [401, 200]);
    adtrail.stop();
}

#[test]
fn the_collector_has_links_and_write_tokens_that_were_added() {
    let port = free_port();
    let mut site = Site::new(Kafka::shared(), "reload.link", 1, &collector::settings(port, ""));
    let adtrail = site.start();
    let address = format!("127.0.0.1:{port}");
    let (token, entry) = site.new_token(&["--write", "--app", "app-x"]);
    let authorization = format!("Bearer {token}");
    let post = || -> Reply {
        let headers = [("Authorization", &*authorization)];
        let event = format!(r#"{{"event_id":"a-1","time":{NOON_MS}}}"#);
        let path = "/activation/app-x";
        http::send("POST", &address, path, &headers, event.as_bytes()).unwrap()
    };
    let go = || http::get(&address, "/go/poster").unwrap().status;
    assert_eq!(go(), 404);
    assert_ne!(post().status, 200);
    let link = "[[links]]\nid = \"poster\"\nspreadid = 7\nfallback = \"https://example.com/\"\n";
    let changed = collector::settings(port, &format!("{link}{entry}"));
    reload(&mut site, &adtrail, &changed);
    assert_eq!((go(), post().status), (302, 200));
    adtrail.await_read(2);
    adtrail.stop();
}

#[test]
fn an_endpoint_that_was_added_is_notified_of_later_decisions() {
    let kafka = Kafka::shared();
    let network = Network::start();
    network.answer("/ocean", 200, "{\"code\":0}");
    let url = network.url("/ocean");
    let base = format!(
        "[attribution]\ncorrection_horizon = \"off\"\n\
         [callbacks]\nsettle = \"0s\"\nallow_loopback = [\"localhost\"]\n{ONE_CAMPAIGN}"
    );
    let endpoint = format!(
        "[[callbacks.endpoint]]\nname = \"ocean\"\npreset = \"oceanengine\"\nurl = \"{url}\"\n\
         channels = [\"toutiao\"]\n"
    );
    let mut site = Site::new(kafka, "reload.endpoint", 1, &base).impatient();
    let adtrail = site.start();
    reload(&mut site, &adtrail, &format!("{base}{endpoint}"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now_ms = u64::try_from(now.as_millis()).unwrap();
    let ids = json!({"oaid": "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5"});
    let click = json!({
        "type": "click", "app": "app-x", "spreadid": 7, "click_id": "c-1", "time": now_ms - 60_000,
        "ids": ids, "params": {"callback": "token-1"},
    });
    let activation = json!({
        "type": "activation", "app": "app-x", "event_id": "a-1", "time": now_ms - 30_000, "ids": ids,
        "os": "android",
    });
    kafka.produce(&site.topics.clicks, [Message::new("app-x", click.to_string())]);
    kafka.produce(&site.topics.activations, [Message::new("app-x", activation.to_string())]);
    adtrail.await_metric("adtrail_callbacks_made", "endpoint=\"ocean\"", |made| made == 1.0);
    network.await_requests("/ocean", 1);
    adtrail.stop();
}
