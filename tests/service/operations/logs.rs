//! Levels of logs that change while the service runs, and the ids of requests.

use serde_json::Value;
use testbed::adtrail::Adtrail;
use testbed::http;
use testbed::kafka::Kafka;
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{check_exit, eventually, free_port};

use crate::collector;

const SUMMARY: &str = "/v1/apps/app-x/summary?from=2026-03-10&to=2026-03-10";

/// At the level `info`, and written before the answer.
const LINE: &str = "a request was answered";

const AT_START: &str = "info,h2=error\n";

/// Makes a request, and returns the number of its kind that are logged.
fn logged(adtrail: &Adtrail) -> usize {
    assert_eq!(adtrail.get(SUMMARY).unwrap().status, 200);
    adtrail.log().matches(LINE).count()
}

fn set(site: &Site, options: &[&str], expected: &str) {
    let output = site.run(&[&["log-level"], options].concat());
    check_exit(&output, 0, &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{options:?}");
}

#[test]
fn the_log_level_changes_while_the_service_runs() {
    let site = Site::new(Kafka::shared(), "logs.level", 1, ONE_CAMPAIGN);
    let adtrail = site.start();
    set(&site, &[], AT_START);
    assert_eq!(logged(&adtrail), 1);
    set(&site, &["warn"], "warn,h2=error,adtrail=warn,hbase_client=warn\n");
    assert_eq!(logged(&adtrail), 1);
    set(&site, &["warn,adtrail::audit=info"], "warn,adtrail::audit=info\n");
    assert_eq!(logged(&adtrail), 2);
    set(&site, &["error"], "error,h2=error,adtrail=error,hbase_client=error\n");
    let output = site.run(&["log-level", "debgu"]);
    check_exit(&output, 1, &["400", "level: expected off, error, warn", "\"debgu\""]);
    assert_eq!(logged(&adtrail), 2);
    set(&site, &["default"], AT_START);
    assert_eq!(logged(&adtrail), 3);
    set(&site, &["debug", "--for", "1h"], "info,h2=error,adtrail=debug,hbase_client=debug\n");
    // The last change counts, also for the reset.
    set(&site, &["error", "--for", "100ms"], "error,h2=error,adtrail=error,hbase_client=error\n");
    eventually("the level is reset", || {
        let level = adtrail.admin("/-/log-level").unwrap().text();
        if level == AT_START { Ok(()) } else { Err(level) }
    });
    assert_eq!(logged(&adtrail), 4);
    let log = adtrail.stop();
    // Each level above, and the reset.
    assert_eq!(log.matches("what is logged has changed").count(), 7, "{log}");
}

#[test]
fn the_level_at_start_is_that_of_the_environment() {
    let site = Site::new(Kafka::shared(), "logs.environment", 1, ONE_CAMPAIGN);
    let mut adtrail = site.spawn_with(&[("RUST_LOG", "error")]);
    adtrail.await_ready().unwrap();
    assert_eq!(logged(&adtrail), 0);
    set(&site, &["info"], "info,h2=error,adtrail=info,hbase_client=info\n");
    assert_eq!(logged(&adtrail), 1);
    set(&site, &["default"], "error\n");
    assert_eq!(logged(&adtrail), 1);
    adtrail.stop();
}

#[test]
fn requests_of_each_listener_have_an_id_in_response_and_log() {
    let port = free_port();
    let site = Site::new(Kafka::shared(), "logs.ids", 1, &collector::settings(port, ""));
    let site = site.flag("--log-format").flag("json");
    let adtrail = site.start();
    let collect = format!("127.0.0.1:{port}");
    for (address, path) in
        [(&adtrail.export, SUMMARY), (&adtrail.admin, "/livez"), (&collect, "/click/app-x/toutiao")]
    {
        let id = |headers: &[(&str, &str)]| {
            let reply = http::request("GET", address, path, headers).unwrap();
            reply.header("x-request-id").expect(path).to_owned()
        };
        assert_eq!(id(&[("X-Request-Id", "req-1")]), "req-1", "{path}");
        assert_ne!(id(&[("X-Request-Id", "req 1")]), "req 1", "{path}");
        assert_ne!(id(&[]), id(&[]), "{path}");
    }
    // Written on another thread.
    let of_reload = [("X-Request-Id", "req-2")];
    let reload = http::request("POST", &adtrail.admin, "/-/reload", &of_reload).unwrap();
    assert_eq!(reload.status, 200);
    let log = adtrail.stop();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    let (answered, others): (Vec<_>, Vec<_>) = lines.partition(|line| line["message"] == LINE);
    let reloaded = others.iter().find(|line| line["message"] == "settings reloaded");
    assert_eq!(reloaded.expect("a line")["span"]["request_id"], "req-2", "{log}");
    assert_eq!(answered.len(), 4, "{log}");
    assert_eq!(answered[0]["span"]["request_id"], "req-1", "{log}");
}
