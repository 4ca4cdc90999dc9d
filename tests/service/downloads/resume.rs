//! Interrupted and resumed downloads: the result is the export, byte for byte.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{check_exit, check_refused, length, run, run_ok, shell_line};

/// 2026-03-10T00:00:00Z.
const DAY: u64 = 1_773_100_800_000;
/// Rows of about 8 KB each: more than one write.
const ROWS: u64 = 6_000;

fn activation(n: u64) -> Message {
    // Quotes, line breaks and multi-byte characters, which an interruption may split.
    let text = "\u{5e7f}\u{544a} \"x\",\r\n".repeat(500);
    let event = json!({
        "app": "app-x", "event_id": format!("a-{n}"), "time": DAY + 1_000 * n,
        "ids": {"oaid": format!("{n:08x}-1111-4222-8333-444444444444")}, "props": {"text": text},
        "ua": "one, \"two\"\r\n three",
    });
    Message::new("app-x", event.to_string()).at(DAY as i64)
}

/// A store with rows, and their complete export.
struct Filled {
    site: Site,
    whole: Vec<u8>,
}

impl Filled {
    fn new(name: &str, rows: u64) -> Self {
        let kafka = Kafka::shared();
        let site = Site::new(kafka, name, 1, ONE_CAMPAIGN);
        kafka.produce(&site.topics.activations, (0..rows).map(activation));
        let mut filled = Self { site, whole: vec![] };
        filled.run_service(rows);
        filled
    }

    /// Runs the service until it has read this many records.
    fn run_service(&mut self, records: u64) {
        let adtrail = self.site.start();
        adtrail.await_read(records);
        adtrail.stop();
        self.whole = self.site.download("app-x", "2026-03-10", "2026-03-10", &[]);
    }

    fn file(&self, name: &str) -> Files {
        Files { file: self.site.path().join(name) }
    }

    fn command(&self, files: &Files, more: &[&str]) -> Command {
        let day = ["--from", "2026-03-10", "--to", "2026-03-10"];
        let mut command = self.site.command(&[&["download", "--app", "app-x"][..], &day].concat());
        command.arg("--out").arg(&files.file).args(more);
        command
    }

    /// Returns the exit status and standard error.
    fn download(&self, files: &Files, more: &[&str]) -> (ExitStatus, String) {
        let output = run(&mut self.command(files, more), b"");
        assert!(output.stdout.is_empty());
        (output.status, String::from_utf8(output.stderr).unwrap())
    }

    /// Resumes the download and checks that the file is the export. Returns standard error.
    #[track_caller]
    fn check_resumed(&self, files: &Files) -> String {
        let (status, stderr) = self.download(files, &["--resume"]);
        assert!(status.success(), "{stderr}");
        self.check_whole(files, &stderr);
        stderr
    }

    #[track_caller]
    fn check_whole(&self, files: &Files, stderr: &str) {
        assert!(fs::read(&files.file).unwrap() == self.whole, "{stderr}");
        assert!(!files.part().exists() && !files.query().exists());
        let sum = run_ok(&mut Command::new("sha256sum"), &self.whole);
        let sum = String::from_utf8(sum).unwrap()[..64].to_owned();
        let bytes = self.whole.len();
        let last = stderr.lines().last().unwrap();
        assert!(last.ends_with(&format!(" rows, {bytes} bytes, sha256 {sum}")), "{stderr}");
    }
}

struct Files {
    file: PathBuf,
}

impl Files {
    fn part(&self) -> PathBuf {
        self.file.with_extension("csv.part")
    }

    fn query(&self) -> PathBuf {
        self.file.with_extension("csv.part.query")
    }

    /// Writes a partial file and its query, as an interrupted download leaves them.
    fn cut(&self, whole: &[u8], bytes: usize, query: &[u8]) {
        fs::write(self.part(), &whole[..bytes]).unwrap();
        fs::write(self.query(), query).unwrap();
    }
}

/// Starts a download and sends it a signal once it has written `bytes`. Returns whether the signal interrupted it.
fn end(
    mut command: Command,
    files: &Files,
    bytes: u64,
    signal: Signal,
) -> (bool, ExitStatus, String) {
    let child: Child = command.stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    while !files.file.exists() {
        if files.part().metadata().is_ok_and(|part| part.len() > bytes) {
            kill_process(pid, signal).unwrap();
            break;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    // A signal after the last byte may end the command once the file is complete.
    let is_midway = !output.status.success() && !files.file.exists();
    (is_midway, output.status, stderr)
}

#[test]
fn a_killed_download_is_resumed() {
    let filled = Filled::new("download.killed", ROWS);
    let files = filled.file("rows.csv");
    let (mut killed, mut tried) = (0, 0);
    while killed < length(2, 8) {
        tried += 1;
        assert!(tried < 200, "no kill came midway");
        let bytes = fastrand::u64(0..filled.whole.len() as u64);
        let (is_midway, status, _) = end(filled.command(&files, &[]), &files, bytes, Signal::KILL);
        if !is_midway {
            fs::remove_file(&files.file).unwrap();
            continue;
        }
        assert_eq!(status.signal(), Some(9));
        // Kills it again while it resumes.
        if killed % 2 == 1 {
            let resume = filled.command(&files, &["--resume"]);
            end(resume, &files, bytes + 1_000_000, Signal::KILL);
        }
        filled.check_resumed(&files);
        fs::remove_file(&files.file).unwrap();
        killed += 1;
    }
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15)] {
        loop {
            let (is_midway, status, stderr) = end(filled.command(&files, &[]), &files, 0, signal);
            if is_midway {
                assert_eq!(status.signal(), Some(number), "{stderr}");
                let part = files.part();
                let expected =
                    format!("adtrail: interrupted; the partial file is {}", part.display());
                assert!(stderr.contains(&expected) && stderr.contains("--resume"), "{stderr}");
                break;
            }
            fs::remove_file(&files.file).unwrap();
        }
        filled.check_resumed(&files);
        fs::remove_file(&files.file).unwrap();
    }
}

/// Limits the size of files: a signal ends the command at exactly this byte.
fn limited(command: &Command, bytes: usize, more: &[&str]) -> Command {
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--fsize={bytes}")).args(more).arg(command.get_program());
    limited.args(command.get_args()).current_dir(command.get_current_dir().unwrap());
    limited
}

#[test]
fn a_file_is_resumed_from_any_position() {
    let filled = Filled::new("download.cut", 400);
    let (whole, files) = (&filled.whole, filled.file("rows.csv"));
    let middle = whole.len() / 2;
    // Positions of a multi-byte character and of a line break, both in a quoted cell.
    let character =
        middle + whole[middle..].windows(3).position(|part| part == "\u{5e7f}".as_bytes()).unwrap();
    let line = middle + whole[middle..].windows(2).position(|part| part == b"\r\n").unwrap();
    for bytes in [middle, character + 1, character + 2, line + 1, whole.len() - 1] {
        let output = run(&mut limited(&filled.command(&files, &[]), bytes, &[]), b"");
        assert!(!output.status.success());
        assert!(fs::read(files.part()).unwrap() == whole[..bytes], "{bytes}");
        filled.check_resumed(&files);
        fs::remove_file(&files.file).unwrap();
    }
    // As on a full disk.
    let full = limited(&filled.command(&files, &[]), middle, &["env", "--ignore-signal=XFSZ"]);
    let output = run(&mut { full }, b"");
    check_exit(&output, 1, &["the rows cannot be written: ", "--resume"]);
    let query = fs::read(files.query()).unwrap();
    filled.check_resumed(&files);
    for bytes in [0, 1, 100, whole.len()] {
        files.cut(whole, bytes, &query);
        filled.check_resumed(&files);
    }
    // A partial file that is longer than the export.
    files.cut(&[whole, &b"x"[..]].concat(), whole.len() + 1, &query);
    let stderr = filled.check_resumed(&files);
    assert!(
        stderr.contains(": 1 bytes follow the end of this export: rows were corrected"),
        "{stderr}"
    );
    // Damage in the middle, also by zeros, as after a power failure.
    let line = 1 + whole[..middle].iter().filter(|byte| **byte == b'\n').count();
    let damaged = |with: &[u8]| [&whole[..middle], with, &whole[middle + with.len()..]].concat();
    for damage in [&[whole[middle] ^ 1][..], &[0; 4_096]] {
        files.cut(&damaged(damage), middle + damage.len(), &query);
        let stderr = filled.check_resumed(&files);
        assert!(
            stderr.contains(&format!(": line {line} differs from this export: rows")),
            "{stderr}"
        );
    }
    fs::remove_file(&files.file).unwrap();
    filled.check_resumed(&files);
    // Without --resume the partial file of another download is overwritten.
    files.cut(b"other", 5, b"{}");
    let (status, stderr) = filled.download(&files, &[]);
    assert!(status.success(), "{stderr}");
    filled.check_whole(&files, &stderr);
    check_foreign_files(&filled, &files, &query);
    check_pipes(&filled);
    check_bar(&filled);
}

/// Checks partial files that belong to another download or another program.
fn check_foreign_files(filled: &Filled, files: &Files, query: &[u8]) {
    let whole = &filled.whole;
    let refused = |more: &[&str], parts: &[&str]| {
        let before = [&files.file, &files.part()].map(|path| fs::read(path).ok());
        let mut resume = filled.command(files, &[&["--resume"], more].concat());
        check_refused(&run(&mut resume, b""), 2, parts);
        assert!([&files.file, &files.part()].map(|path| fs::read(path).ok()) == before);
    };
    files.cut(whole, 1_000, query);
    refused(
        &["--type", "effect"],
        &["belongs to another export", "type is none, but \"effect\" is requested"],
    );
    refused(
        &["--status", "organic", "--timezone", "Asia/Shanghai"],
        &["status is", "timezone is", "from is"],
    );
    refused(&["--fields", "event_id"], &["fields is none, but \"event_id\" is requested"]);
    refused(&["--format", "ndjson"], &["format is \"csv\", but \"ndjson\" is requested"]);
    fs::remove_file(files.query()).unwrap();
    let unknown = "rows.csv.part.query is missing or truncated; without --resume";
    refused(&["--fields", "event_id"], &["line 1 differs from this export, and ", unknown]);
    files.cut(whole, 1_000, b"{\"app\": \"app-x");
    refused(&["--fields", "event_id"], &[unknown]);
    fs::remove_file(files.query()).unwrap();
    filled.check_resumed(files);
    // A complete file is not changed.
    let before = files.file.metadata().unwrap();
    assert!(filled.check_resumed(files).contains("already complete"));
    let after = files.file.metadata().unwrap();
    assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
    // An incomplete target, as curl leaves it.
    fs::write(&files.file, &whole[..whole.len() / 3]).unwrap();
    filled.check_resumed(files);
    fs::write(&files.file, [&whole[..5_000], b"x"].concat()).unwrap();
    refused(&[], &["rows.csv: line 3 differs from this export; without --resume"]);
    fs::write(&files.file, [whole, &b"more"[..]].concat()).unwrap();
    refused(&[], &["rows.csv: 4 bytes follow the end of this export; without"]);
    let locked = fs::File::create(files.part()).unwrap();
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let output = run(&mut filled.command(files, &[]), b"");
    check_refused(&output, 1, &["another download is writing it: "]);
}

fn check_pipes(filled: &Filled) {
    let null = Files { file: Path::new("/dev/null").to_owned() };
    let output = run(&mut filled.command(&null, &["--resume"]), b"");
    check_refused(&output, 2, &["--resume: expected a regular file"]);
    let (status, stderr) = filled.download(&null, &[]);
    assert!(status.success() && stderr.contains("/dev/null: 400 rows, "), "{stderr}");
    let download = ["download", "--app", "app-x", "--from", "2026-03-10", "--to", "2026-03-10"];
    check_refused(&filled.site.run(&[&download[..], &["--resume"]].concat()), 2, &["--out"]);
    let whole = shell_line(&filled.site.command(&download));
    let pipe = format!("set -o pipefail; {whole} | head -c 10");
    let output = run(Command::new("bash").args(["-c", &pipe]), b"");
    check_exit(&output, 1, &["Broken pipe"]);
    assert_eq!(output.stdout.len(), 10);
}

/// Checks that the progress bar is shown only on a terminal.
fn check_bar(filled: &Filled) {
    let files = filled.file("seen.csv");
    let line = shell_line(&filled.command(&files, &[]));
    let mut script = Command::new("script");
    script.args(["-qec", &format!("stty cols 120; {line}"), "/dev/null"]);
    let shown = run_ok(script.env("TERM", "xterm").current_dir(filled.site.path()), b"");
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains(" of 400 rows, ") && shown.contains("/s, "), "{shown:?}");
    let last = shown.lines().last().unwrap();
    assert!(last.contains("400 rows, ") && last.contains("sha256 "), "{shown:?}");
    fs::remove_file(&files.file).unwrap();
    let (_, stderr) = filled.download(&files, &[]);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

/// A late click changes rows that are already written: the file becomes the new snapshot from its beginning.
#[test]
fn a_resumed_file_is_one_snapshot_although_rows_were_corrected() {
    let mut filled = Filled::new("download.corrected", 400);
    let files = filled.file("rows.csv");
    let before = filled.whole.clone();
    let cut = before.len() / 2;
    run(&mut limited(&filled.command(&files, &[]), cut, &[]), b"");
    assert!(fs::read(files.part()).unwrap() == before[..cut]);
    // One click corrects a row in the partial file, the other one a row after it.
    let click = |n: u64| {
        let event = json!({
            "app": "app-x", "click_id": format!("c-{n}"), "spreadid": 7, "time": DAY + 1_000 * n - 500,
            "ids": {"oaid": format!("{n:08x}-1111-4222-8333-444444444444")},
        });
        Message::new("app-x", event.to_string()).at(DAY as i64)
    };
    Kafka::shared().produce(&filled.site.topics.clicks, [click(50), click(390)]);
    filled.run_service(2);
    assert!(filled.whole != before);
    let stderr = filled.check_resumed(&files);
    assert!(stderr.contains("differs from this export: rows were corrected since"), "{stderr}");
}
