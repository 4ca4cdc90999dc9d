//! What adtrail refuses to run on or to answer, each time with what is wrong and where: stores,
//! topics, ports, settings, options and requests.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use testbed::adtrail::adtrail;
use testbed::kafka::{Kafka, Message};
use testbed::site::{Site, Topics};

const SETTINGS: &str = r#"
[[apps]]
pid = 1
key = "app-x"
"#;

/// The exit status, and the parts of what is said; nothing is on standard output.
#[track_caller]
fn check(output: &Output, code: i32, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(!said.contains("panicked"), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}

/// `adtrail run` beside whatever listens already.
const RUN: [&str; 5] =
    ["run", "--set", "export.listen=127.0.0.1:0", "--set", "admin.listen=127.0.0.1:0"];

fn run_with(site: &Site, settings: &[&str]) -> Output {
    let more = settings.iter().flat_map(|setting| ["--set", setting]);
    site.run(&RUN.into_iter().chain(more).collect::<Vec<_>>())
}

#[test]
fn a_store_that_is_not_its_own() {
    let site = Site::new(Kafka::shared(), "refusals.store", 1, SETTINGS);
    let store = site.path().join("store");
    let store = store.to_str().unwrap();
    let download = ["download", "--app", "app-x", "--from", "2025-03-10", "--to", "2025-03-10"];
    check(&site.run(&download), 1, &["there is no store", store]);
    let adtrail = site.start();
    check(&run_with(&site, &[]), 1, &["in use", store]);
    // Whoever was there first is not disturbed.
    assert_eq!(adtrail.admin("/readyz").unwrap().status, 200);
    assert!(site.run(&download).status.success());
    let taken = format!("export.listen={}", adtrail.export);
    let (name, address) = taken.split_once('=').unwrap();
    check(&site.run(&["run", "--set", &taken]), 1, &[name, address, "in use"]);
    assert!(adtrail.terminate().0.success());

    let parts = ["store.partitions", "64", "8", store];
    check(&run_with(&site, &["store.partitions=8"]), 1, &parts);
    let mut other = download.to_vec();
    other.extend(["--set", "store.partitions=8"]);
    check(&site.run(&other), 1, &parts);

    let foreign = site.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.txt"), "years of work").unwrap();
    let path = foreign.to_str().unwrap();
    check(&run_with(&site, &[&format!("store.path={path}")]), 1, &["no adtrail store", path]);
    let left: Vec<_> = foreign.read_dir().unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["thesis.txt"]);
    let path = foreign.join("thesis.txt");
    let path = path.to_str().unwrap();
    check(&run_with(&site, &[&format!("store.path={path}")]), 1, &[path]);

    // It was none of all this that kept it from running.
    assert!(site.start().terminate().0.success());
}

/// Run by a user whom the store does not let write, who need not be the one who runs the test.
#[test]
fn a_store_that_is_read_only() {
    let site = Site::new(Kafka::shared(), "refusals.read_only", 1, SETTINGS);
    assert!(site.start().terminate().0.success());
    let store = site.path().join("store");
    let refused = |path: &Path| {
        let path = format!("store.path={}", path.display());
        testbed::run(unprivileged(&mut site.command(&RUN)).args(["--set", &path]), b"")
    };
    set_mode(site.path(), 0o755);
    for file in store.read_dir().unwrap() {
        set_mode(&file.unwrap().path(), 0o444);
    }
    set_mode(&store, 0o555);
    check(
        &refused(&store),
        1,
        &["can not be written", store.to_str().unwrap(), "ermission denied"],
    );
    let new = store.join("new");
    check(&refused(&new), 1, &["can not be written", new.to_str().unwrap(), "ermission denied"]);
    set_mode(&store, 0o755);
    for file in store.read_dir().unwrap() {
        set_mode(&file.unwrap().path(), 0o644);
    }
    assert!(site.start().terminate().0.success());
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The same command by somebody who may not write everywhere.
fn unprivileged(command: &mut Command) -> Command {
    let is_root = testbed::run_ok(Command::new("id").arg("-u"), b"") == b"0\n";
    let mut lesser = if is_root {
        // The binary and its folder may be closed to others: a copy is not. Another process makes
        // it, as what this one writes can not be run while a thread of it starts something else.
        let dir = command.get_current_dir().unwrap();
        let copy = dir.join("adtrail");
        testbed::run_ok(Command::new("cp").arg(command.get_program()).arg(&copy), b"");
        set_mode(&copy, 0o755);
        let mut lesser = Command::new("setpriv");
        lesser.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy);
        lesser
    } else {
        Command::new(command.get_program())
    };
    lesser.args(command.get_args()).current_dir(command.get_current_dir().unwrap());
    lesser
}

#[test]
fn a_topic_that_is_not_there() {
    let kafka = Kafka::shared();
    let site = Site::on(Topics::of("refusals.absent"), kafka.brokers(), SETTINGS);
    kafka.create_topic(&site.topics.clicks, 1, &[]);
    let (status, log) = site.spawn().wait();
    assert_eq!(status.code(), Some(1), "{log}");
    for part in ["does not exist", "kafka.activations", "refusals.absent.activations"] {
        assert!(log.contains(part), "{part:?} is not in: {log}");
    }
}

#[test]
fn a_topic_that_was_made_anew() {
    let kafka = Kafka::shared();
    let site = Site::new(kafka, "refusals.anew", 2, SETTINGS).set("store.retention", "off");
    let line = r#"{"app":"app-x","time":"2025-03-10T12:00:00Z"}"#;
    let messages = [0, 1].map(|partition| Message {
        partition: Some(partition),
        ..Message::new("app-x", line).at(1_741_608_000_000)
    });
    kafka.produce(&site.topics.activations, messages);
    let adtrail = site.start();
    adtrail.await_read(2);
    assert!(adtrail.terminate().0.success());
    // The same store on other topics of the same names would skip what these begin with.
    let other = Kafka::start();
    for topic in site.topics.all() {
        other.create_topic(topic, 2, &[]);
    }
    let output = run_with(&site, &[&format!("kafka.brokers={}", other.brokers())]);
    let topic = &*site.topics.activations;
    check(&output, 1, &["stored position is not in the topic", "offset 1", "store.path", topic]);
}

#[test]
fn requests_are_answered_with_what_is_allowed() {
    let site = Site::new(Kafka::shared(), "refusals.requests", 1, SETTINGS);
    let adtrail = site.start();
    let check = |path: &str, status: u16, kind: &str, parameter: Option<&str>, parts: &[&str]| {
        let reply = adtrail.get(path).unwrap();
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{path}");
        let problem: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(problem["type"], format!("/problems/{kind}"), "{path}: {problem}");
        assert_eq!(problem["status"], status, "{path}: {problem}");
        assert_eq!(problem["parameter"].as_str(), parameter, "{path}: {problem}");
        for part in parts {
            assert!(problem.to_string().contains(part), "{part:?} is not in {problem}");
        }
    };
    let csv = "/v1/apps/app-x/events.csv";
    let day = "from=2025-03-10&to=2025-03-10";
    let wrong = "bad-parameter";
    check(
        &format!("{csv}?{day}&timezone=Asia/Shangai"),
        400,
        wrong,
        Some("timezone"),
        &["Asia/Shanghai"],
    );
    check(
        &format!("{csv}?from=2025-03-11&to=2025-03-10T12:00"),
        400,
        wrong,
        Some("to"),
        &["not before from = ", "2025-03-11", "2025-03-10T12:00"],
    );
    check(
        &format!("{csv}?{day}&fields=event_id,chanel"),
        400,
        wrong,
        Some("fields"),
        &["chanel", "channel"],
    );
    check(&format!("{csv}?{day}&type=click"), 400, wrong, Some("type"), &["activation", "effect"]);
    check(&format!("{csv}?from=10.3.2025&to=2025-03-10"), 400, wrong, Some("from"), &["RFC 3339"]);
    check(&format!("{csv}?to=2025-03-10"), 400, "missing-parameter", Some("from"), &["2026-03-10"]);
    check(&format!("{csv}?{day}&form=x"), 400, "unknown-parameter", Some("form"), &["from"]);
    check(&format!("{csv}?{day}&from=2025-03-10"), 400, "repeated-parameter", Some("from"), &[]);
    check(&format!("/v1/apps/app-q/events.csv?{day}"), 404, "unknown-app", None, &["app-q"]);
    // What other apps there are is nobody's business who does not know them.
    let unknown = adtrail.get(&format!("/v1/apps/app-q/events.csv?{day}")).unwrap().text();
    assert!(!unknown.contains("app-x"), "{unknown}");
    check("/v1/nothing", 404, "not-found", None, &["/v1/nothing"]);
    let reply = testbed::http::request("POST", &adtrail.export, csv, &[]).unwrap();
    assert_eq!(reply.status, 405, "{}", reply.text());
}

#[test]
fn options_are_refused_by_name() {
    let site = Site::new(Kafka::shared(), "refusals.options", 1, SETTINGS);
    assert!(site.start().terminate().0.success());
    let download = |app, from, to, more: &[&str]| {
        let mut args = vec!["download", "--app", app, "--from", from, "--to", to];
        args.extend(more);
        site.run(&args)
    };
    let day = "2025-03-10";
    check(&download("app-q", day, day, &[]), 2, &["--app", "\"app-q\"; known: app-x"]);
    check(
        &download("app-x", day, day, &["--timezone", "Asia/Shangai"]),
        2,
        &["--timezone", "Asia/Shanghai"],
    );
    check(
        &download("app-x", "2025-03-11", "2025-03-10T12:00", &[]),
        2,
        &["--to", "not before from = \"2025-03-11\"", "\"2025-03-10T12:00\""],
    );
    check(&download("app-x", "soon", day, &[]), 2, &["--from", "soon", "RFC 3339"]);
    check(
        &download("app-x", day, day, &["--fields", "chanel"]),
        2,
        &["--fields", "chanel", "channel"],
    );
    check(
        &download("app-x", day, day, &["--type", "click"]),
        2,
        &["--type", "click", "activation"],
    );
    check(&site.run(&["download", "--app", "app-x", "--from", day]), 2, &["--to"]);
    check(&download("app-x", day, day, &["--out", "/nowhere/out.csv"]), 1, &["/nowhere/out.csv"]);
    let in_store = ["--out", "store/CURRENT"];
    check(&download("app-x", day, day, &in_store), 2, &["--out", "outside of the store"]);
    check(&site.run(&["undo"]), 2, &["undo"]);
    let out = site.path().join("out.csv");
    let output =
        download("app-x", day, day, &["--out", out.to_str().unwrap(), "--fields", "pid,app"]);
    check(&output, 0, &[]);
    assert_eq!(fs::read_to_string(out).unwrap(), "pid,app\n");
}

#[test]
fn settings_that_are_hardly_meant_are_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("adtrail.toml");
    let text = format!("[attribution]\nclick_probabilistic_window = \"25h\"\n{SETTINGS}");
    fs::write(&file, text).unwrap();
    let output = testbed::run(adtrail().arg("check-config").arg("--config").arg(&file), b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("valid"));
    let warning = format!("{}:2: attribution.click_probabilistic_window: taken as", file.display());
    assert!(said.contains("WARN") && said.contains(&warning), "{said}");
}

#[test]
fn a_standard_output_that_is_full_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("adtrail.toml");
    fs::write(&file, SETTINGS).unwrap();
    let mut checking = adtrail();
    checking.arg("check-config").arg("--config").arg(&file);
    checking.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    check(&checking.output().unwrap(), 1, &["standard output can not be written"]);
}

#[test]
fn settings_that_librdkafka_alone_knows_are_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("adtrail.toml");
    let text = "[kafka.librdkafka]\nsasl.pasword = \"hunter2\"\nfetch.min.bytes = \"x\"\n";
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let at = |line: u32| format!("{file}:{line}: ");
    let parts = [&*at(2), "librdkafka.sasl.pasword", "sasl.password", &at(3), "min.bytes"];
    for command in ["check-config", "run"] {
        let mut adtrail = adtrail();
        adtrail.args([command, "--config", file]).current_dir(&dir);
        let output = testbed::run(&mut adtrail, b"");
        check(&output, 2, &parts);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("hunter2"));
    }
    assert!(!dir.path().join("adtrail-data").exists());
}

#[test]
fn settings_are_refused_by_file_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("adtrail.toml");
    let file = file.to_str().unwrap();
    let check_config = |text: &str, environment: &[(&str, &str)], more: &[&str]| {
        fs::write(file, text).unwrap();
        let mut command = adtrail();
        command.args(["check-config", "--config", file]).args(more);
        testbed::run(command.envs(environment.iter().copied()).current_dir(&dir), b"")
    };
    let at = |line: u32| format!("{file}:{line}: ");

    let good = check_config(SETTINGS, &[], &[]);
    assert_eq!(good.status.code(), Some(0));
    let said = String::from_utf8_lossy(&good.stdout);
    assert!(said.contains("valid: 1 app, 0 channels, 0 campaigns"), "{said}");

    let text = "[kafka]\nbrokerz = \"a:1\"\n[store]\npartitions = 0\n[attribution]\nclick_window = \"7\"\n";
    let parts =
        [&*at(2), "kafka.brokerz", "brokers", &at(4), "store.partitions", &at(6), "click_window"];
    check(&check_config(text, &[], &[]), 2, &parts);
    check(&check_config("[kafka\n", &[], &[]), 2, &[&at(1), "not TOML"]);
    check(
        &check_config("", &[("ADTRAIL__STORE__PARTITIONS", "many")], &[]),
        2,
        &["ADTRAIL__STORE__PARTITIONS", "store.partitions", "many"],
    );
    let mut command = adtrail();
    command.arg("check-config").env("ADTRAIL__STORE__PATH", OsStr::from_bytes(b"a\xff"));
    let output = testbed::run(command.current_dir(&dir), b"");
    check(&output, 2, &["environment variable ADTRAIL__STORE__PATH: not UTF-8"]);
    check(
        &check_config("", &[], &["--set", "export.listen=0.0.0.0:80"]),
        2,
        &["flag", "export.listen", "loopback", "0.0.0.0:80"],
    );
    check(&check_config("", &[], &["--set", "export.listen"]), 2, &["--set", "KEY=VALUE"]);
    // A file that was named has to be there; `run` says the same as `check-config`.
    let mut absent = adtrail();
    let path = dir.path().join("absent.toml");
    absent.args(["run", "--config", path.to_str().unwrap()]);
    check(&testbed::run(&mut absent, b""), 2, &[path.to_str().unwrap(), "cannot be read"]);
    fs::write(file, text).unwrap();
    let mut run = adtrail();
    check(&testbed::run(run.args(["run", "--config", file]), b""), 2, &parts);
    // Without an app there is nothing to run for, and that is said before anything is made.
    fs::write(file, "").unwrap();
    let mut run = adtrail();
    run.args(["run", "--config", file]).current_dir(&dir);
    check(&testbed::run(&mut run, b""), 2, &["[[apps]]"]);
    assert!(!dir.path().join("adtrail-data").exists());
    // In the wrong folder there is no file either, and whoever has one elsewhere can name it.
    fs::remove_file(file).unwrap();
    let events = dir.path().join("events.ndjson");
    fs::write(&events, "").unwrap();
    let events = events.to_str().unwrap();
    for args in [
        &["run"][..],
        &["replay", events],
        &["explain", "--app", "app-x", "--activation", "a", events],
        &["download", "--app", "app-x", "--from", "2025-03-10", "--to", "2025-03-10"],
    ] {
        let mut command = adtrail();
        let output = testbed::run(command.args(args).current_dir(&dir), b"");
        check(&output, 2, &["no adtrail.toml in this folder", "--config"]);
    }
    let output = testbed::run(adtrail().arg("check-config").current_dir(&dir), b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("--config"), "{said}");
}
