//! API tokens, from the command that creates them to the audit log of exports and refusals.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use testbed::adtrail::adtrail;
use testbed::http::{self, Reply};
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, SECOND_APP, Site};
use testbed::{check_exit, check_refused, free_port, run, run_ok};

fn settings() -> String {
    format!("{ONE_CAMPAIGN}{SECOND_APP}")
}

const EVENTS: &str = "/v1/apps/app-x/events.csv?from=2025-03-10&to=2025-03-10";

/// Runs `adtrail token new` in a folder.
fn new_token(dir: &Path, options: &[&str]) -> Output {
    run(adtrail().args(["token", "new"]).args(options).current_dir(dir), b"")
}

/// Returns the printed token and its settings entry.
#[track_caller]
fn token_and_entry(output: &Output) -> (String, String) {
    let stderr = check_exit(output, 0, &[]);
    let shown = String::from_utf8(output.stdout.clone()).unwrap();
    let (token, entry) = shown.split_once("\n\n").unwrap();
    let (id, secret) = token.strip_prefix("adt_").unwrap().rsplit_once('_').unwrap();
    assert!(!entry.contains(secret) && entry.contains(id), "{shown}");
    assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{token}");
    assert!(!stderr.contains(secret), "{stderr}");
    (token.to_owned(), entry.to_owned())
}

fn get(address: &str, path: &str, token: Option<&str>) -> Reply {
    let value = token.map(|token| format!("Bearer {token}"));
    let header = value.as_deref().map(|value| ("Authorization", value));
    http::request("GET", address, path, header.as_slice()).unwrap()
}

#[test]
fn printed_tokens_grant_access_and_exports_are_audited() {
    let kafka = Kafka::shared();
    let site = Site::new(kafka, "tokens.in", 1, &settings());
    let mut site = site.flag("--log-format").flag("json");
    let dir = site.path().to_owned();
    let config = site.config();
    let config = config.to_str().unwrap();
    let make = |options: &[&str]| {
        let output = new_token(&dir, &[&["--config", config], options].concat());
        let stderr = check_exit(&output, 0, &[]);
        assert_eq!(stderr.lines().count(), 1, "a warning: {stderr}");
        token_and_entry(&output)
    };
    let (x, entry_x) = make(&["--app", "app-x", "--id", "partner_x", "--expires", "2999-12-31"]);
    let (both, entry_both) = make(&["--app", "app-x", "--app", "app-y"]);
    let (all, entry_all) = make(&["--all-apps"]);
    site.change(&format!("{}\n{entry_x}\n{entry_both}\n{entry_all}", settings()));
    let checked = run_ok(&mut site.command(&["check-config"]), b"");
    assert!(String::from_utf8_lossy(&checked).contains(", 3 tokens"));
    let message = |app: &str, id: &str| {
        let line = format!(r#"{{"app":"{app}","event_id":"{id}","time":"2025-03-10T12:00:00Z"}}"#);
        Message::new(app, line).at(1_741_608_000_000)
    };
    kafka.produce(&site.topics.activations, [message("app-x", "a-1"), message("app-y", "a-2")]);
    let adtrail = site.start();
    adtrail.await_read(2);

    let get = |path: &str, token: Option<&str>| get(&adtrail.export, path, token);
    let target = format!("{EVENTS}&fields=event_id&type=activation&event_name=activation,hunter2");
    let read = get(&target, Some(&x));
    assert_eq!((read.status, &*read.text(), read.is_whole), (200, "event_id\na-1\n", true));
    let events_y = EVENTS.replace("app-x", "app-y");
    for (token, status_y) in [(&x, 404), (&both, 200), (&all, 200)] {
        assert_eq!(get(EVENTS, Some(token)).status, 200);
        assert_eq!(get(&events_y, Some(token)).status, status_y);
    }
    let apps = get("/v1/apps", Some(&x)).text();
    assert!(apps.contains("app-x") && !apps.contains("app-y"), "{apps}");
    let cut = &x[..x.len() - 1];
    let unknown = x.replace("partner_x", "partner_y");
    for token in [None, Some(cut), Some(&*unknown)] {
        let reply = get(EVENTS, token);
        assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")));
    }
    let refused = |reason: &str| {
        adtrail.metric_of("adtrail_export_refused_total", &format!("reason=\"{reason}\""))
    };
    let reasons = ["no_token", "bad_token", "app", "expired", "session", "origin", "downloads"];
    assert_eq!(reasons.map(refused), [1.0, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0].map(Some));

    let log = adtrail.stop();
    check_audit(&log);
    for token in [&x, &both, &all] {
        let secret = token.rsplit_once('_').unwrap().1;
        assert!(!log.contains(secret), "{log}");
    }
    let hashes = [entry_x, entry_both, entry_all].map(|entry| hash(&entry));
    assert!(!hashes.iter().any(|hash| log.contains(&**hash)) && !log.contains("hunter2"), "{log}");
}

/// Checks that each of the six exports and four refusals has an audit line, and the fields of the export with filters.
#[track_caller]
fn check_audit(log: &str) {
    let lines = log.lines().filter(|line| line.contains("adtrail::audit"));
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let (lines, refused): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|line| line["message"] == "an export has ended");
    let refused = refused.iter().map(|line| {
        ["message", "reason", "token", "app"].map(|name| line[name].as_str().unwrap_or_default())
    });
    let refusal = |reason, token, app| ["a request was refused", reason, token, app];
    let expected = [
        refusal("app", "partner_x", "app-y"),
        refusal("no_token", "none", "app-x"),
        refusal("bad_token", "none", "app-x"),
        refusal("bad_token", "none", "app-x"),
    ];
    assert_eq!(refused.collect::<Vec<_>>(), expected, "{log}");
    assert_eq!(lines.len(), 6, "one line for each export: {log}");
    // Exports that end at nearly the same time may be logged in either order.
    let first = lines.iter().find(|line| line["filters"] != "").unwrap();
    let expected = [
        ("token", "partner_x"),
        ("app", "app-x"),
        ("from", "2025-03-10T00:00:00.000Z"),
        ("to", "2025-03-11T00:00:00.000Z"),
        ("format", "csv"),
        ("filters", "event_name,type"),
        ("outcome", "complete"),
    ];
    expected.into_iter().for_each(|(name, value)| assert_eq!(first[name], value, "{first}"));
    assert_eq!((&first["rows"], &first["bytes"]), (&Value::from(1), &Value::from(13)), "{first}");
    assert!(first["seconds"].is_f64(), "{first}");
}

/// Returns the hash in a token's entry.
fn hash(entry: &str) -> String {
    entry.split_once("sha256 = \"").unwrap().1[..64].to_owned()
}

#[test]
fn a_public_listener_requires_tokens() {
    let mut site = Site::new(Kafka::shared(), "tokens.network", 1, &settings());
    let port = free_port();
    let listen = format!("export.listen=0.0.0.0:{port}");
    check_refused(
        &site.run(&["run", "--set", &listen]),
        2,
        &["export.listen", "adtrail token new"],
    );
    // A token can be created with settings that are invalid without it.
    let config = site.config();
    let options = ["--config", config.to_str().unwrap(), "--set", &listen, "--app", "app-x"];
    let output = new_token(site.path(), &options);
    check_exit(&output, 0, &["WARN", "export.listen"]);
    let (token, entry) = token_and_entry(&output);
    site.change(&format!("{}\n{entry}", settings()));
    let site = site.set("export.listen", &format!("0.0.0.0:{port}"));
    let adtrail = site.start();
    let address = format!("127.0.0.1:{port}");
    assert_eq!(get(&address, EVENTS, None).status, 401);
    assert_eq!(get(&address, EVENTS, Some(&token)).status, 200);
    adtrail.stop();
}

#[test]
fn new_tokens_are_checked_against_the_settings() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // Without settings there is a warning.
    let output = new_token(dir, &["--app", "app-x"]);
    check_exit(&output, 0, &["no such app is configured: app-x; known: none"]);
    fs::write(dir.join("adtrail.toml"), settings()).unwrap();
    let output = new_token(dir, &["--app", "app-z", "--app", "app-y"]);
    let warning = "no such app is configured: app-z; known: app-x, app-y";
    let stderr = check_exit(&output, 0, &[warning]);
    assert!(!stderr.contains(": app-y"), "{stderr}");

    let (_, entry) = token_and_entry(&new_token(dir, &["--all-apps", "--id", "mine"]));
    fs::write(dir.join("adtrail.toml"), format!("{}{entry}", settings())).unwrap();
    let check =
        |options: &[&str], parts: &[&str]| check_refused(&new_token(dir, options), 2, parts);
    check(&["--all-apps", "--id", "mine"], &["--id", "with this id already", "\"mine\""]);
    check(&["--all-apps", "--id", "My-Id"], &["--id", "a-z, 0-9", "\"My-Id\""]);
    check(&["--all-apps", "--expires", "soon"], &["--expires", "RFC 3339", "soon"]);
    check(&["--all-apps", "--app", "app-x"], &["--all-apps", "--app"]);
    check(&[], &["--app"]);
}
