//! Refusals to run, with messages that name the problem and its location: a store in use, a port in use, invalid
//! settings and options.

use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use testbed::adtrail::adtrail;
use testbed::kafka::Kafka;
use testbed::site::{ONE_CAMPAIGN, Site, Topics};
use testbed::{check_exit, check_refused, run};

#[test]
fn a_second_process_on_one_store_or_port_is_refused() {
    let site = Site::new(Kafka::shared(), "refusals.store", 1, ONE_CAMPAIGN);
    let adtrail = site.start();
    let other_ports =
        ["run", "--set", "export.listen=127.0.0.1:0", "--set", "admin.listen=127.0.0.1:0"];
    let store = site.path().join("store");
    check_refused(&site.run(&other_ports), 1, &["in use", store.to_str().unwrap()]);
    let port = format!("export.listen={}", adtrail.export);
    let parts = ["export.listen", &adtrail.export, "in use"];
    check_refused(&site.run(&["run", "--set", &port]), 1, &parts);
    // The first process is not affected.
    assert_eq!(adtrail.admin("/readyz").unwrap().status, 200);
    adtrail.stop();
}

#[test]
fn a_limit_of_open_files_is_raised_and_named_if_too_low() {
    let topics = Topics::of("refusals.open-files");
    let site = Site::on(topics, "127.0.0.1:1".to_owned(), ONE_CAMPAIGN);
    // Ends the service before it needs a broker.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("export.listen={}", other.local_addr().unwrap());
    let run_within = |limits: &str| {
        let command = site.command(&["run", "--set", &port]);
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={limits}")).arg(command.get_program());
        run(limited.args(command.get_args()).current_dir(site.path()), b"")
    };
    let low = run_within("256:1500");
    check_refused(&low, 1, &["limit=1500 needed=2048", "LimitNOFILE=", "in use"]);
    let enough = run_within("256:2048");
    check_refused(&enough, 1, &["in use"]);
    assert!(!String::from_utf8_lossy(&enough.stderr).contains("open files"), "{enough:?}");
}

/// A collector has neither table files nor connections of exports.
#[test]
fn a_collector_needs_fewer_open_files() {
    let topics = Topics::of("refusals.open-files-collect");
    // Ends the collector before it needs a broker.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let collect = format!("[collect]\nlisten = \"{}\"\n", other.local_addr().unwrap());
    let site = Site::on(topics, "127.0.0.1:1".to_owned(), &format!("{collect}{ONE_CAMPAIGN}"));
    let run_within = |limit: &str| {
        let command = site.command(&["collect"]);
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={limit}")).arg(command.get_program());
        run(limited.args(command.get_args()).current_dir(site.path()), b"")
    };
    check_refused(&run_within("2559"), 1, &["limit=2559 needed=2560", "in use"]);
    let enough = run_within("2560");
    check_refused(&enough, 1, &["in use"]);
    assert!(!String::from_utf8_lossy(&enough.stderr).contains("open files"), "{enough:?}");
}

#[test]
fn invalid_download_options_are_named() {
    let site = Site::new(Kafka::shared(), "refusals.options", 1, ONE_CAMPAIGN);
    site.start().stop();
    let download = |app, from, to, more: &[&str]| {
        let args = ["download", "--app", app, "--from", from, "--to", to];
        site.run(&[&args[..], more].concat())
    };
    let day = "2025-03-10";
    let check = |more: &[&str], code, parts: &[&str]| {
        check_refused(&download("app-x", day, day, more), code, parts);
    };
    check_refused(&download("app-q", day, day, &[]), 2, &["--app", "\"app-q\"; known: app-x"]);
    check_refused(&download("app-x", "soon", day, &[]), 2, &["--from", "soon", "RFC 3339"]);
    let backwards = download("app-x", "2025-03-11", "2025-03-10T12:00", &[]);
    check_refused(&backwards, 2, &["--to", "not before from = \"2025-03-11\""]);
    check(&["--timezone", "Asia/Shangai"], 2, &["--timezone", "Asia/Shanghai"]);
    check(&["--timezone", "UTC+8"], 2, &["--timezone", "for UTC+8 write +08:00"]);
    check(&["--fields", "chanel"], 2, &["--fields", "chanel", "channel"]);
    check(&["--type", "click"], 2, &["--type", "click", "activation"]);
    check(&["--out", "/nowhere/out.csv"], 1, &["/nowhere/out.csv"]);
    check(&["--out", "store/CURRENT"], 2, &["--out", "outside of the store"]);
    check_refused(&site.run(&["download", "--app", "app-x", "--from", day]), 2, &["--to"]);
    check_refused(&site.run(&["undo"]), 2, &["undo"]);
    let out = site.path().join("out.csv");
    // An offset that begins like an option.
    let zone = ["--timezone", "-05:30"];
    check(
        &[&zone[..], &["--out", out.to_str().unwrap(), "--fields", "pid,app"][..]].concat(),
        0,
        &[],
    );
    assert_eq!(fs::read_to_string(out).unwrap(), "pid,app\n");
}

#[test]
fn a_full_standard_output_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("adtrail.toml");
    fs::write(&file, ONE_CAMPAIGN).unwrap();
    let mut checking = adtrail();
    checking.arg("check-config").arg("--config").arg(&file);
    checking.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    check_refused(&checking.output().unwrap(), 1, &["standard output cannot be written"]);
}

#[test]
fn invalid_librdkafka_settings_are_refused_before_the_store_is_created() {
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
        let output = run(&mut adtrail, b"");
        check_refused(&output, 2, &parts);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("hunter2"));
    }
    assert!(!dir.path().join("adtrail-data").exists());
}

#[test]
fn invalid_settings_are_reported_with_file_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("adtrail.toml");
    let file = file.to_str().unwrap();
    let run_here = |args: &[&str]| run(adtrail().args(args).current_dir(&dir), b"");
    let suspicious = "[attribution]\nclick_probabilistic_window = \"25h\"\n";
    fs::write(file, format!("{suspicious}{ONE_CAMPAIGN}")).unwrap();
    let valid = run_here(&["check-config", "--config", file]);
    check_exit(&valid, 0, &["WARN", "attribution.click_probabilistic_window"]);
    let shown = String::from_utf8_lossy(&valid.stdout);
    assert!(shown.contains("valid: 1 app, 1 channel, 1 campaign"), "{shown}");
    let workers = "attribution.workers=3";
    let valid = run_here(&["check-config", "--config", file, "--set", workers]);
    assert!(String::from_utf8_lossy(&valid.stdout).ends_with(", 3 workers\n"));

    fs::write(file, "[kafka]\nbrokerz = \"a:1\"\n[store]\npartitions = 0\n").unwrap();
    let at = |line: u32| format!("{file}:{line}: ");
    let parts = [&*at(2), "kafka.brokerz", "brokers", &at(4), "store.partitions"];
    for command in ["check-config", "run"] {
        check_refused(&run_here(&[command, "--config", file]), 2, &parts);
    }
    fs::write(file, "").unwrap();
    let set = |setting| run_here(&["check-config", "--config", file, "--set", setting]);
    check_refused(&set("export.listen=0.0.0.0:80"), 2, &["flag", "export.listen", "0.0.0.0:80"]);
    check_refused(&set("export.listen"), 2, &["--set", "KEY=VALUE"]);
    let mut command = adtrail();
    command.arg("check-config").env("ADTRAIL__STORE__PATH", OsStr::from_bytes(b"a\xff"));
    let output = run(command.current_dir(&dir), b"");
    check_refused(&output, 2, &["environment variable ADTRAIL__STORE__PATH: not UTF-8"]);
    // Without an app nothing starts, and no store is created.
    check_refused(&run_here(&["run", "--config", file]), 2, &["[[apps]]"]);
    assert!(!dir.path().join("adtrail-data").exists());
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
        check_refused(&run_here(args), 2, &["no adtrail.toml in this folder", "--config"]);
    }
    check_exit(&run_here(&["check-config"]), 0, &["--config"]);
}
