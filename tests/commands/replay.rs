//! `adtrail replay`: events from files and from standard input, without Kafka.

use std::fs::{self, DirEntry};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::process::{Pid, Signal, kill_process};
use testbed::adtrail::adtrail;
use testbed::rows;
use testbed::site::{ONE_CAMPAIGN, SECOND_APP, Site, Topics};
use testbed::traffic;
use testbed::{check_exit, check_refused, eventually, run, run_ok, shell_line};

const CLICK: &str = r#"{"type":"click","app":"app-x","click_id":"c-1","spreadid":7,"time":1741608000000,"ids":{"oaid":"d-1"}}"#;
const ACTIVATION: &str = r#"{"type":"activation","app":"app-x","event_id":"a-1","time":1741608060000,"ids":{"oaid":"d-1"}}"#;
const EFFECT: &str = r#"{"type":"effect","app":"app-x","event_id":"e-1","name":"purchase","time":1741608070000,"ids":{"oaid":"d-1"},"revenue":9007199254740993.10}"#;
const OTHER: &str =
    r#"{"type":"activation","app":"app-y","event_id":"a-1","time":"2025-03-10T12:00:00Z"}"#;

/// The apps are not in the order of their pids.
fn settings() -> String {
    format!("{SECOND_APP}{ONE_CAMPAIGN}")
}

/// Returns a site without Kafka, which the command does not need.
fn site() -> Site {
    Site::on(Topics::of("replay"), "127.0.0.1:1".into(), &settings())
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    zstd::encode_all(text.as_bytes(), 0).unwrap()
}

/// Checks app, event id, status and channel of each row.
#[track_caller]
fn check_rows(csv: &[u8], expected: &[[&str; 4]]) {
    let rows = rows::parse(csv);
    let found: Vec<_> = rows
        .iter()
        .map(|row| ["app", "event_id", "status", "channel"].map(|name| &*row[name]))
        .collect();
    assert_eq!(found, expected);
}

const ALL: [[&str; 4]; 3] = [
    ["app-x", "a-1", "attributed", "toutiao"],
    ["app-x", "e-1", "attributed", "toutiao"],
    ["app-y", "a-1", "organic", ""],
];

fn all_events() -> String {
    [CLICK, ACTIVATION, EFFECT, OTHER].join("\n")
}

#[test]
fn rows_of_all_apps_are_sorted_by_pid_or_one_app_is_selected() {
    let site = site();
    let file = site.write("events.ndjson", all_events());
    let output = site.run(&["replay", &file]);
    assert_eq!(check_exit(&output, 0, &[]), "");
    check_rows(&output.stdout, &ALL);
    assert_eq!(rows::parse(&output.stdout)[1]["revenue"], "9007199254740993.10");
    let out = site.path().join("out.csv");
    let output = site.run(&["replay", "--app", "app-x", "--out", out.to_str().unwrap(), &file]);
    check_exit(&output, 0, &[]);
    assert!(output.stdout.is_empty());
    check_rows(&fs::read(&out).unwrap(), &ALL[..2]);
    // Without events there is only the header line.
    let output = site.run(&["replay", &site.write("empty.ndjson", b"")]);
    check_exit(&output, 0, &[]);
    check_rows(&output.stdout, &[]);
    assert!(output.stdout.starts_with(b"event_type,event_name,event_time,app,"));
}

#[test]
fn files_and_standard_input_may_be_mixed_split_and_compressed() {
    let site = site();
    let expected = site.run(&["replay", &site.write("whole.ndjson", all_events())]);
    check_rows(&expected.stdout, &ALL);
    let check_same = |args: &[&str], input: &[u8]| {
        let output = run(&mut site.command(&[&["replay"], args].concat()), input);
        assert_eq!(check_exit(&output, 0, &[]), "");
        assert_eq!(output.stdout, expected.stdout, "{args:?}");
    };
    let first = site.write("1.ndjson", format!("{ACTIVATION}\n{CLICK}\n{CLICK}\n"));
    let second = site.write("2.ndjson", format!("{EFFECT}\n{OTHER}\n{ACTIVATION}"));
    check_same(&[&first, &second], b"");
    check_same(&[&second, &first], b"");
    check_same(&["-"], all_events().as_bytes());
    check_same(&[&first, "-"], format!("{EFFECT}\n{OTHER}\n").as_bytes());
    // The format is detected by the bytes, not by the file name.
    check_same(&[&site.write("events.txt", gzip(&all_events()))], b"");
    check_same(&["-"], &zstd(&all_events()));
}

/// Batches of 5,000 events, which are divided among up to eight threads.
#[test]
fn any_number_of_workers_writes_the_same_rows() {
    let records = traffic::redelivered(&traffic::records(33, 6_000), 33);
    let records: Vec<_> = records.into_iter().filter(|record| !record.is_bad).collect();
    let events = traffic::file(&records);
    let rows_of = |workers: &str| {
        let site = Site::on(Topics::of("replay"), "127.0.0.1:1".into(), traffic::SETTINGS);
        let site = site.set("attribution.workers", workers);
        let output = site.run(&["replay", &site.write("events.ndjson", &events)]);
        check_exit(&output, 0, &[]);
        output.stdout
    };
    let expected = rows_of("1");
    assert!(rows::parse(&expected).len() > 500);
    for workers in ["2", "4", "8"] {
        assert!(rows_of(workers) == expected, "{workers} workers write other rows");
    }
}

#[test]
fn a_truncated_compressed_file_is_named_and_gives_no_rows() {
    let site = site();
    let whole = gzip(&all_events());
    let cut = &whole[..whole.len() - 1];
    let good = site.write("good.ndjson", all_events());
    let bad = site.write("bad.gz", cut);
    let problem = "cannot be read: ";
    check_refused(&site.run(&["replay", &good, &bad]), 1, &[&bad, problem]);
    check_refused(&run(&mut site.command(&["replay", "-"]), cut), 1, &[problem]);
}

/// Runs a command with its standard error on a terminal (using `script` of util-linux), and with the files `input` and
/// `out` as standard input and output. Returns the output of the terminal.
fn on_a_terminal(site: &Site, args: &[&str]) -> String {
    let line = shell_line(&site.command(args));
    let line = format!("stty cols 200; {line} <input >out");
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &line, "typescript"]).env("TERM", "xterm").current_dir(site.path());
    let shown = run(&mut terminal, b"").stdout;
    String::from_utf8(shown).unwrap()
}

#[test]
fn progress_is_shown_on_a_terminal_only() {
    let site = site();
    let text = format!("[]\n{}\n", all_events());
    let file = site.write("events.ndjson.zst", zstd(&text));
    let expected = site.run(&["replay", &file]);
    assert!(!check_exit(&expected, 1, &[]).contains("B/s"));

    site.write("input", &text);
    let shown = on_a_terminal(&site, &["replay", &file]);
    let size = format!("of {} B", fs::metadata(&file).unwrap().len());
    assert!(shown.contains(&size) && shown.contains("B/s"), "{shown:?}");
    assert_eq!(fs::read(site.path().join("out")).unwrap(), expected.stdout);
    // The bar is cleared before a log line is written, and drawn again after it.
    let clean = |line: &str| !line.contains("B/s");
    let warning = shown.split(['\r', '\n']).find(|line| line.contains("not_an_object")).unwrap();
    assert!(clean(warning), "{shown:?}");
    let last = shown.trim_end().rsplit(['\r', '\n']).next().unwrap();
    assert!(last.contains("skipped 1 line") && clean(last), "{shown:?}");

    // The size of standard input is unknown.
    let piped = on_a_terminal(&site, &["replay", "-"]);
    assert!(piped.contains("0 events") && !piped.contains(" of "), "{piped:?}");
}

/// Bad lines are counted, and logged with number and code up to a limit.
#[test]
fn bad_lines_are_logged_and_all_other_lines_attributed() {
    let site = site();
    let unknown =
        r#"{"type":"activation","app":"app-q","event_id":"secret-1","time":1773144000001}"#;
    let text = format!("{unknown}\n{}\n{}", all_events(), "[]\n".repeat(5000));
    let file = site.write("events.ndjson", &text);
    let output = site.run(&["replay", &file]);
    let [first, sixth] = ["1: unknown_app", "6: not_an_object"].map(|at| format!("{file}:{at}"));
    let log = check_exit(&output, 1, &[&first, &sixth, "skipped 5001 lines"]);
    check_rows(&output.stdout, &ALL);
    assert!(!log.contains("secret-1") && log.lines().count() < 100, "{log}");
}

#[test]
fn unreadable_and_unwritable_files_are_named() {
    let site = site();
    let good = site.write("events.ndjson", CLICK);
    let absent = site.path().join("absent.ndjson");
    let absent = absent.to_str().unwrap();
    check_refused(&site.run(&["replay", &good, absent]), 1, &[absent, "No such file"]);
    let folder = site.path().to_str().unwrap();
    check_refused(&site.run(&["replay", folder]), 1, &[folder, "Is a directory"]);
    let nowhere = format!("{absent}/out.csv");
    check_refused(&site.run(&["replay", "--out", &nowhere, &good]), 1, &[&nowhere]);
    check_refused(&site.run(&["replay", "--out", &nowhere, absent]), 1, &[&nowhere]);
    check_refused(&site.run(&["replay", "--app", "app-q", &good]), 2, &["--app", "app-q"]);
    check_refused(&site.run(&["replay"]), 2, &["EVENTS.ndjson"]);
}

#[test]
fn input_files_are_never_overwritten() {
    let site = site();
    let events = site.write("events.ndjson", CLICK);
    // The settings file that is found in the working directory.
    let folder = site.path().join("folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("adtrail.toml"), settings()).unwrap();
    std::os::unix::fs::symlink(&folder, folder.join("link")).unwrap();
    fs::hard_link(&events, folder.join("link.csv")).unwrap();
    for args in [
        &["--out", &events][..],
        &["--out", "link.csv"],
        &["--out", "adtrail.toml"],
        &["--out", "link/adtrail.toml"],
        &["--diff", "adtrail.toml", "--out", "rows.csv", "--totals", &events],
        // Both outputs are one file, which does not exist yet.
        &["--diff", "adtrail.toml", "--out", "rows.csv", "--totals", "link/rows.csv"],
    ] {
        let mut command = adtrail();
        let output = run(command.current_dir(&folder).args(["replay", &events]).args(args), b"");
        check_refused(&output, 2, &["must not be the same file as"]);
    }
    assert_eq!(fs::read(&events).unwrap(), CLICK.as_bytes());
    assert_eq!(fs::read_to_string(folder.join("adtrail.toml")).unwrap(), settings());
}

#[test]
fn a_signal_leaves_nothing_behind() {
    let site = site();
    let [temporary, rows] = ["temporary", "rows"].map(|name| site.path().join(name));
    for folder in [&temporary, &rows] {
        fs::create_dir(folder).unwrap();
    }
    let is_empty = |folder: &Path| fs::read_dir(folder).unwrap().next().is_none();
    for signal in [Signal::TERM, Signal::INT] {
        let mut command = adtrail();
        command.arg("replay").arg("--config").arg(site.config());
        command.arg("--out").arg(rows.join("rows.csv")).arg("-");
        command.env("TMPDIR", &temporary).stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "{CLICK}").unwrap();
        // The command still reads, and has a store and a partial file.
        let store = || fs::read_dir(&temporary).unwrap().flatten().next();
        eventually("the store and the partial file exist", || {
            let has_store = |folder: DirEntry| folder.path().join("store/CURRENT").exists();
            let both = store().is_some_and(has_store) && !is_empty(&rows);
            both.then_some(()).ok_or("not yet")
        });
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
        assert!(is_empty(&temporary) && is_empty(&rows), "{signal:?}");
    }
}

#[test]
fn a_closed_standard_error_does_not_stop_the_replay() {
    let site = site();
    let events = site.write("events.ndjson", format!("no event\n{ACTIVATION}\n"));
    let out = site.path().join("rows.csv");
    let mut command = adtrail();
    command.args(["replay", "--config"]).arg(site.path().join("adtrail.toml"));
    command.arg("--out").arg(&out).arg(&events);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    // The exit code is that of bad lines, not of an abort.
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read_to_string(out).unwrap().lines().count(), 2);
}

/// Runs the commands of the page, except `make` and with another output folder.
#[test]
fn the_commands_of_the_replay_page_work() {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/replay.md")).unwrap();
    let (_, rest) = page.split_once("```sh\nmake build").unwrap();
    let (script, _) = rest.split_once("```").unwrap();
    let (_, script) = script.split_once('\n').unwrap();
    let out = format!("{}/", folder.path().display());
    let mut shell = Command::new("sh");
    shell.args(["-euc", &script.replace("/tmp/", &out)]).current_dir(root);
    let binary = Path::new(adtrail().get_program()).parent().unwrap().to_owned();
    let paths = std::env::var_os("PATH").unwrap();
    let paths = std::iter::once(binary).chain(std::env::split_paths(&paths));
    shell.env("PATH", std::env::join_paths(paths).unwrap());
    for (name, _) in adtrail().get_envs() {
        shell.env_remove(name);
    }
    let printed = String::from_utf8(run_ok(&mut shell, b"")).unwrap();
    assert!(printed.contains("install, organic"), "{printed}");
    let rows = rows::parse(&fs::read(folder.path().join("rows.csv")).unwrap());
    assert_eq!(rows.len(), 11);
    let differences = rows::parse(&fs::read(folder.path().join("differences.csv")).unwrap());
    let changed: Vec<_> =
        differences.iter().map(|row| (&*row["event_id"], &*row["new_status"])).collect();
    assert_eq!(changed, [("why-organic", "attributed")]);
}

#[test]
fn the_settings_of_the_readme_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    let page = include_str!("../../README.md");
    let (_, rest) = page.split_once("<<'EOF'\n").unwrap();
    let (settings, _) = rest.split_once("EOF\n").unwrap();
    fs::write(folder.path().join("adtrail.toml"), settings).unwrap();
    run_ok(adtrail().arg("check-config").current_dir(folder.path()), b"");
}
