//! `adtrail conformance`: runs the suite on adtrail and on broken engines.

use std::fs;
use std::path::Path;
use std::process::Output;

use tempfile::TempDir;
use testbed::adtrail::{adtrail, binary};
use testbed::{check_exit, check_refused};

fn conformance(args: &[&str]) -> Output {
    testbed::run(adtrail().arg("conformance").args(args), b"")
}

/// Checks the exit code. Returns the lines on standard output.
#[track_caller]
fn check(output: &Output, code: i32) -> Vec<String> {
    check_exit(output, code, &[]);
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn adtrail_conforms() {
    let lines = check(&conformance(&[]), 0);
    let summary = lines.last().expect("the output has a summary");
    let cases: usize = summary.split(' ').next().and_then(|count| count.parse().ok()).unwrap();
    assert!(cases >= 611, "{summary}");
    assert_eq!(*summary, format!("{cases} cases in 4 orders each: {cases} passed, 0 failed"));
}

/// Each case cites a section of the contract, a case of its table, or a page.
#[test]
fn cited_sections_cases_and_pages_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let contract = fs::read_to_string(root.join("docs/contract.md")).unwrap();
    let exists = |cited: &str| {
        let number = cited.split([' ', ',']).next().unwrap();
        match cited.strip_prefix("case ") {
            Some(case) => contract.contains(&format!("\n| {case} | ")),
            None if number.parse::<u8>().is_ok() => contract.contains(&format!("\n## {number}. ")),
            None if cited.ends_with(".md") => root.join("docs").join(cited).is_file(),
            None => contract.contains(&format!("\n## {cited}\n")),
        }
    };
    let folders =
        fs::read_dir(root.join("conformance")).unwrap().map(|entry| entry.unwrap().path());
    let mut cited = 0;
    for folder in folders.filter(|path| path.is_dir()) {
        for path in folder.read_dir().unwrap().map(|entry| entry.unwrap().path()) {
            let text = fs::read_to_string(&path).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("contract = \"")).unwrap();
            for part in line.trim_end_matches('"').split("; ") {
                assert!(exists(part), "{part:?} of {}", path.display());
                cited += 1;
            }
        }
    }
    assert!(cited >= 611, "{cited}");
    assert!(!exists("9") && !exists("case 3") && !exists("INTERFACES"));
}

/// An engine of a few lines of shell. `$2` is the file of settings, `$4` that of rows, `$5` that of events.
struct Script {
    dir: TempDir,
}

impl Script {
    /// Creates an engine from lines of shell, which may call adtrail's engine as `replay "$@"`.
    fn new(lines: &str) -> Self {
        let dir = TempDir::with_prefix("adtrail-engine-").unwrap();
        let binary = binary();
        let binary = binary.display();
        let text = format!("replay() {{ '{binary}' replay \"$@\"; }}\n{lines}\n");
        fs::write(dir.path().join("engine"), text).unwrap();
        Self { dir }
    }

    fn run(&self, args: &[&str]) -> Output {
        let engine = format!("sh '{}'", self.dir.path().join("engine").display());
        conformance(&[&["--engine", &engine], args].concat())
    }
}

const EFFECT: &str = "6-effects/carries-organic";
const CHAIN: &str = "6-effects/case-37-effect-before-activation-arrives";

/// Checks that the script fails this case, with these parts in its line.
#[track_caller]
fn check_caught(script: &str, case: &str, parts: &[&str]) {
    check_caught_with_timeout("60", script, case, parts);
}

#[track_caller]
fn check_caught_with_timeout(timeout_seconds: &str, script: &str, case: &str, parts: &[&str]) {
    let args = ["--timeout", timeout_seconds, "--case", case];
    let lines = check(&Script::new(script).run(&args), 1);
    let [line, summary] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.starts_with(&format!("FAIL {case}: ")), "{line}");
    parts.iter().for_each(|part| assert!(line.contains(part), "{part} is not in {line}"));
    assert_eq!(summary, "1 case in 4 orders each: 0 passed, 1 failed");
}

#[test]
fn an_engine_that_conforms_passes() {
    let lines = check(&Script::new(r#"replay "$@""#).run(&["--case", "8-conservation", EFFECT]), 0);
    assert!(lines[0].ends_with("0 failed") && lines.len() == 1, "{lines:#?}");
}

#[test]
fn broken_engines_are_caught() {
    let effect = |script: &str, parts: &[&str]| check_caught(script, EFFECT, parts);
    let dropped = ["rows: expected 2, found 1", "e: expected one row, found 0"];
    effect(r#"replay "$@" && sed -i '$d' "$4""#, &dropped);
    let changed = [r#"a: status: expected "organic", found "attributed""#];
    effect(r#"replay "$@" && sed -i 's/,organic,/,attributed,/' "$4""#, &changed);
    effect(r#"printf 'a,b\n1\n' > "$4""#, &["not CSV"]);
    effect("echo no >&2; exit 3", &["exit status: 3, with output: no"]);
    effect("true", &["no file at --out", "without output"]);
    effect(r#"echo "$ADTRAIL_CONFORMANCE_CASE"; exit 1"#, &[EFFECT]);
    // An engine that ignores clicks after the first activation depends on the order of arrival.
    let order_dependent = r#"sed -n '/"activation"/{p;q};p' "$5" > "$5.seen"
        replay "$1" "$2" "$3" "$4" "$5.seen""#;
    let parts = ["a: click_id: expected \"c1\", found \"\"", "[given, given-twice]"];
    check_caught(order_dependent, CHAIN, &parts);
    // A difference in a column that no case names.
    let script = r#"replay "$@" && sed -i "s/,pid,/,$ADTRAIL_CONFORMANCE_ORDER,/" "$4""#;
    effect(script, &["[reversed] line 1 differs from that of an earlier order"]);
}

/// A background process hangs in one of the orders, and the engine itself in the others.
#[test]
fn an_engine_that_hangs_is_killed() {
    let script = r#"case "$ADTRAIL_CONFORMANCE_ORDER" in
        reversed) (sleep 600; echo late) & wait ;;
        *) echo waiting; sleep 600 ;;
        esac"#;
    let parts = [
        "[reversed] timed out after 1s, without output",
        "[given, given-twice, reversed-then-given] timed out after 1s, with output: waiting",
    ];
    check_caught_with_timeout("1", script, EFFECT, &parts);
}

#[test]
fn settings_in_the_callers_environment_are_ignored() {
    let mut command = adtrail();
    command.env("ADTRAIL__ATTRIBUTION__CLICK_WINDOW", "1s");
    let script = Script::new(r#"replay "$@""#);
    let engine = format!("sh '{}'", script.dir.path().join("engine").display());
    command.args(["conformance", "--engine", &engine, "--case", "3-candidates/click-1-ms-before"]);
    check(&testbed::run(command.args(["3-candidates/named-click-7-d"]), b""), 0);
    let mut builtin = adtrail();
    builtin.env("ADTRAIL__ATTRIBUTION__CLICK_WINDOW", "1s");
    builtin.args(["conformance", "--case", "3-candidates/named-click-7-d"]);
    check(&testbed::run(&mut builtin, b""), 0);
}

#[test]
fn cases_of_another_folder_are_run() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path().join("mine");
    fs::create_dir(&folder).unwrap();
    let case = |status: &str| {
        let event = r#"{"type":"activation","app":"own","event_id":"a","time":1773144000001}"#;
        format!(
            "why = 'w'\ncontract = '5'\nevents = '''\n{event}\n'''\nrows = 1\n\
             [[expect]]\nevent_id = 'a'\nstatus = '{status}'\npid = '9'\n"
        )
    };
    fs::write(folder.join("good.toml"), case("organic")).unwrap();
    fs::write(dir.path().join("catalogue.toml"), "[[apps]]\npid = 9\nkey = \"own\"\n").unwrap();
    let path = dir.path().to_str().unwrap();
    let summary = "1 case in 4 orders each: 1 passed, 0 failed";
    assert_eq!(check(&conformance(&["--dir", path]), 0), [summary]);
    fs::write(folder.join("bad.toml"), case("orphan")).unwrap();
    let lines = check(&conformance(&["--dir", path]), 1);
    assert_eq!(
        lines,
        [
            r#"FAIL mine/bad: a: status: expected "orphan", found "organic""#,
            "2 cases in 4 orders each: 1 passed, 1 failed"
        ]
    );
    fs::write(folder.join("bad.toml"), "why = 'w'\nrow = 1\n").unwrap();
    check_wrong(&["--dir", path], &["mine/bad.toml", "line 2", "row"]);
}

#[track_caller]
fn check_wrong(args: &[&str], parts: &[&str]) {
    check_refused(&conformance(args), 2, parts);
}

#[test]
fn invalid_options_exit_with_2() {
    check_wrong(&["--case", "5-winner/case-6-last-click"], &["5-winner/case-06-last-click"]);
    check_wrong(&["--engine", " "], &["--engine", "expected a command"]);
    check_wrong(&["--timeout", "0"], &["--timeout"]);
    check_wrong(&["--nonsense"], &["--nonsense"]);
    let empty = TempDir::new().unwrap();
    let empty = empty.path().to_str().unwrap();
    check_wrong(&["--dir", empty], &["no cases found"]);
    check_wrong(&["--dir", &format!("{empty}/absent")], &["absent", "cannot be read"]);
}
