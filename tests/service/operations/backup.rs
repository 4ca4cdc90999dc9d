//! Backups of a running service, taken with the real command: each restores to the export at the time of the backup,
//! and a service resumes from there.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, thread};

use serde_json::Value;
use testbed::adtrail::Adtrail;
use testbed::exports::{Exports, by_command, check_equal};
use testbed::kafka::Kafka;
use testbed::site::{Site, Topics};
use testbed::traffic::{self, APPS, Record};
use testbed::{SetOnDrop, check_exit, check_refused, eventually, kill, run, run_ok, shell_line};

fn site(name: &str) -> Site {
    traffic::site(name, 2).set("ingest.batch_records_max", "40")
}

/// Returns a site without Kafka, whose service runs and never becomes ready.
fn without_kafka(name: &str) -> Site {
    Site::on(Topics::of(name), "127.0.0.1:1".into(), traffic::SETTINGS)
}

/// Checks that a command succeeds. Returns its one line of output.
#[track_caller]
fn line(output: &Output) -> Value {
    check_exit(output, 0, &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Restores the newest backup of a directory, or the one that the options name.
#[track_caller]
fn restore(site: &Site, dir: &Path, more: &[&str]) -> Value {
    line(&site.run(&[&["restore", dir.to_str().unwrap()], more].concat()))
}

/// Returns the numbers of the complete backups in a directory.
fn list(site: &Site, dir: &str) -> Vec<u64> {
    let lines = run_ok(&mut site.command(&["restore", dir, "--list"]), b"");
    let lines = String::from_utf8(lines).unwrap();
    lines.lines().map(|line| number(&serde_json::from_str(line).unwrap(), "backup")).collect()
}

#[track_caller]
fn back_up(site: &Site, dir: &str) -> Value {
    line(&site.run(&["backup", dir]))
}

fn number(line: &Value, field: &str) -> u64 {
    line[field].as_u64().unwrap_or_else(|| panic!("no {field}: {line}"))
}

/// Returns the next offsets by topic and partition that the line contains.
fn positions(line: &Value) -> BTreeMap<(String, i32), i64> {
    let mut positions = BTreeMap::new();
    for (topic, partitions) in line["positions"].as_object().unwrap() {
        for (partition, next_offset) in partitions.as_object().unwrap() {
            let topic_partition = (topic.clone(), partition.parse().unwrap());
            positions.insert(topic_partition, next_offset.as_i64().unwrap());
        }
    }
    positions
}

fn records_before(line: &Value) -> i64 {
    positions(line).values().sum()
}

/// Runs `adtrail replay` on exactly the records before the positions. Returns its output by app.
fn replayed(site: &Site, line: &Value) -> Exports {
    let positions = positions(line);
    let mut text = Vec::new();
    for topic in site.topics.all() {
        for record in Kafka::shared().consume_all(topic) {
            let end = positions.get(&(topic.to_owned(), record.partition)).copied().unwrap_or(0);
            if record.offset < end {
                text.extend(record.value.unwrap());
                text.push(b'\n');
            }
        }
    }
    APPS.map(|app| site.replay(app, &text))
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let bytes = entries.map(|entry| match entry.metadata().unwrap() {
        folder if folder.is_dir() => bytes_in(&entry.path()),
        file => file.len(),
    });
    bytes.sum()
}

/// Takes two backups while these records are produced repeatedly, the second one after further records are read.
/// Returns the lines of the backups and the number of records produced.
fn back_up_twice(site: &Site, adtrail: &Adtrail, records: &[Record]) -> ([Value; 2], u64) {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut written = 0;
            for portion in records.chunks(50).cycle() {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                traffic::produce(&site.topics, portion);
                written += portion.len() as u64;
            }
            written
        });
        let done = SetOnDrop(&is_done);
        let first = back_up(site, "backups");
        let read = adtrail.metric("adtrail_ingest_read_total").unwrap();
        adtrail.await_read_more_than(read as u64);
        let second = back_up(site, "backups");
        drop(done);
        ([first, second], load.join().unwrap())
    })
}

/// Checks that a restored backup exports what `replay` does for the records before its positions, and not the later
/// exports. Returns the restored site.
#[track_caller]
fn check_restored(site: &Site, dir: &Path, backup: &Value, later: &Exports) -> Site {
    let restored_site = site.beside();
    let restored = restore(&restored_site, dir, &["--backup", &backup["backup"].to_string()]);
    for field in ["backup", "time", "rows", "positions", "files", "bytes"] {
        assert_eq!(restored[field], backup[field], "{field}");
    }
    let rows = by_command(&restored_site);
    check_equal(&rows, &replayed(site, backup));
    assert!(rows != *later, "no events arrived after backup {}", backup["backup"]);
    restored_site
}

#[test]
fn a_backup_under_load_is_one_consistent_state() {
    let site = site("backup.load");
    let dir = site.path().join("backups");
    let records = traffic::redelivered(&traffic::records(5, 3000), 5);
    let (before, rest) = records.split_at(records.len() / 2);
    let (during, after) = rest.split_at(rest.len() - 300);
    traffic::produce(&site.topics, before);
    let adtrail = site.start();
    adtrail.await_some_read();
    let ([first, second], written) = back_up_twice(&site, &adtrail, during);
    traffic::produce(&site.topics, after);
    let written = before.len() as u64 + written + after.len() as u64;
    adtrail.await_read(written);
    let final_exports = by_command(&site);

    let [before_first, before_second] = [&first, &second].map(records_before);
    assert!(0 < before_first && before_first < before_second, "{first}\n{second}");
    assert!(before_second <= written as i64);
    assert_eq!(number(&first, "new_bytes"), number(&first, "bytes"));
    let new = number(&second, "new_bytes");
    let size = bytes_in(&dir);
    assert!(size < number(&first, "bytes") + new + 20_000, "{size}: {first}\n{second}");
    // Rows are personal data.
    assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);

    check_restored(&site, &dir, &second, &final_exports);
    // A service resumes from a backup.
    let restored = check_restored(&site, &dir, &first, &final_exports);
    let resumed = restored.start();
    resumed.await_caught_up();
    resumed.await_read(written - before_first as u64);
    check_equal(&by_command(&restored), &final_exports);
    resumed.stop();
    // Without --backup the newest is restored.
    assert_eq!(restore(&site.beside(), &dir, &[])["backup"], second["backup"]);
    assert_eq!(list(&site, "backups"), [1, 2]);
    // Without a compaction in between, a backup takes hardly any space: that of RocksDB's options of each column family
    // and of its list of files.
    adtrail.stop();
    let [third, fourth] = [(); 2].map(|()| back_up(&site, "backups"));
    assert!(number(&fourth, "new_bytes") < 200_000, "{third}\n{fourth}");
}

/// A service resumes from a copy of the directory, whether the store was closed or its process was killed.
#[test]
fn a_store_can_be_moved_by_copying_its_directory() {
    let site = site("backup.moved");
    let records = traffic::redelivered(&traffic::records(6, 600), 6);
    let (before, after) = records.split_at(records.len() / 2);
    traffic::produce(&site.topics, before);
    let adtrail = site.start();
    adtrail.await_read(before.len() as u64);
    let rows = by_command(&site);
    let copy_to = |other: &Site| {
        run_ok(Command::new("cp").arg("-a").arg(site.path().join("store")).arg(other.path()), b"");
    };
    adtrail.stop();
    assert!(!site.path().join("store/control.sock").exists());
    let stopped = site.beside();
    copy_to(&stopped);

    // A killed service leaves its socket behind.
    let adtrail = site.start();
    adtrail.kill9();
    assert!(site.path().join("store/control.sock").exists());
    let killed = site.beside();
    copy_to(&killed);
    check_equal(&by_command(&killed), &rows);
    // Without a service the command opens the store itself.
    let backup = back_up(&killed, "backups");
    assert_eq!(records_before(&backup), before.len() as i64);
    assert!(!killed.path().join("store/checkpoint").exists());

    traffic::produce(&site.topics, after);
    let copies = [&stopped, &killed].map(|other| {
        let adtrail = other.start();
        adtrail.await_read(after.len() as u64);
        let taken = back_up(other, "backups");
        assert_eq!(records_before(&taken), records.len() as i64);
        by_command(other)
    });
    let adtrail = site.start();
    adtrail.await_read(after.len() as u64);
    let rows = by_command(&site);
    copies.iter().for_each(|copy| check_equal(copy, &rows));
}

/// Starts a service. Returns it and its control socket.
fn start_service(site: &Site) -> (Adtrail, PathBuf) {
    let adtrail = site.spawn();
    let socket = site.path().join("store/control.sock");
    await_path(&socket, true);
    (adtrail, socket)
}

#[track_caller]
fn await_path(path: &Path, expected: bool) {
    eventually(&format!("{} exists: {expected}", path.display()), || {
        if path.exists() == expected { Ok(()) } else { Err("not yet") }
    });
}

#[test]
fn backups_are_taken_one_at_a_time_and_interrupted_ones_leave_nothing() {
    let site = without_kafka("backup.once");
    let (adtrail, socket) = start_service(&site);
    let checkpoint = site.path().join("store/checkpoint");
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    // A client that disconnects without copying anything.
    let mut client = UnixStream::connect(&socket).unwrap();
    client.write_all(b"backup\n").unwrap();
    let mut response = [0; 8];
    client.read_exact(&mut response).unwrap();
    assert_eq!(&response, b"created\n");
    assert!(checkpoint.join("CURRENT").exists());
    check_refused(&site.run(&["backup", "backups"]), 1, &["another backup is being taken"]);
    drop(client);
    await_path(&checkpoint, false);
    assert_eq!(back_up(&site, "backups")["backup"], 1);
    assert!(!checkpoint.exists());

    let (stuck, partial) = stuck_backup(&site, "killed");
    let refused = site.run(&["backup", "killed"]);
    check_refused(&refused, 1, &["another backup or restore is running there", "killed"]);
    check_refused(&site.run(&["backup", "others"]), 1, &["another backup is being taken"]);
    // A service started after a kill does not remove the checkpoint that a backup still reads.
    adtrail.kill9();
    let before = checkpoint.metadata().unwrap();
    let adtrail = site.spawn();
    adtrail.await_log("adtrail runs");
    assert_eq!(checkpoint.metadata().unwrap().modified().unwrap(), before.modified().unwrap());
    check_refused(&site.run(&["backup", "others"]), 1, &["running there", "checkpoint"]);
    end(stuck, "KILL");
    assert!(partial.exists());
    // An interrupted backup leaves nothing that prevents the next one.
    assert_eq!(back_up(&site, "killed")["backup"], 1);
    assert!(!partial.exists() && !checkpoint.exists());

    // A signal leaves nothing behind.
    let (stuck, partial) = stuck_backup(&site, "signalled");
    end(stuck, "TERM");
    assert!(!partial.exists());
    await_path(&checkpoint, false);
    assert_eq!(back_up(&site, "killed")["backup"], 2);
    let kept = line(&site.run(&["backup", "killed", "--keep", "2"]));
    assert_eq!(kept["backup"], 3);
    assert_eq!(list(&site, "killed"), [2, 3]);

    // A service that ends does not remove the checkpoint of a running backup.
    let (stuck, partial) = stuck_backup(&site, "continued");
    adtrail.stop();
    assert!(checkpoint.join("CURRENT").exists());
    end(stuck, "TERM");
    assert!(!partial.exists() && !checkpoint.exists());
}

/// Replaces itself with a command, whose standard error is a terminal with suspended output.
const ON_A_SUSPENDED_TERMINAL: &str = "
import os, sys, termios
terminal, stderr = os.openpty()
termios.tcflow(stderr, termios.TCOOFF)
os.set_inheritable(terminal, True)
os.dup2(stderr, 2)
os.execvp(sys.argv[1], sys.argv[1:])
";

/// Starts a backup to a new directory, which blocks when it shows the progress of its first file. Returns it and its
/// partial file.
fn stuck_backup(site: &Site, dir: &str) -> (Child, PathBuf) {
    let backup = site.command(&["backup", dir]);
    let mut command = Command::new("python3");
    command.args(["-c", ON_A_SUSPENDED_TERMINAL]).arg(backup.get_program());
    // Progress is shown only on terminals with a name.
    command.args(backup.get_args()).current_dir(site.path()).env("TERM", "xterm");
    let child = command.stdout(Stdio::null()).spawn().unwrap();
    let partial = site.path().join(dir).join("partial");
    await_path(&partial, true);
    (child, partial)
}

fn end(mut child: Child, signal: &str) {
    kill(child.id(), signal);
    assert!(!child.wait().unwrap().success());
}

/// The path is longer than a Unix socket address can be.
#[test]
fn a_store_with_a_long_path_is_backed_up_without_the_service() {
    let site = without_kafka("backup.long");
    let store = site.path().join("long/".repeat(40));
    let site = site.set("store.path", store.to_str().unwrap());
    let adtrail = site.spawn();
    adtrail.await_log("no backup or retry is possible while this process runs");
    check_refused(&site.run(&["backup", "backups"]), 1, &["accepts no backup requests", "in use"]);
    adtrail.stop();
    assert_eq!(back_up(&site, "backups")["backup"], 1);
}

#[test]
fn unusable_directories_and_full_disks_are_reported() {
    let site = without_kafka("backup.refused");
    check_refused(&site.run(&["backup", "backups"]), 1, &["no store in", "store"]);
    assert!(!site.path().join("backups").exists());
    let (adtrail, socket) = start_service(&site);
    check_refused(&on_a_full_disk(&site, &["backup", "full"]), 1, &["cannot be written", "full/"]);
    assert!(!site.path().join("store/checkpoint").exists());
    assert!(list(&site, "full").is_empty());
    check_refused(&site.run(&["restore", "full"]), 1, &["no complete backup", "full"]);
    assert_eq!(back_up(&site, "full")["backup"], 1);
    // Without the socket, as on a file system that does not support sockets.
    fs::remove_file(socket).unwrap();
    check_refused(&site.run(&["backup", "backups"]), 1, &["accepts no backup requests", "in use"]);
    adtrail.kill9();

    let overlapping = ["DIR", "must neither be inside the store"];
    check_refused(&site.run(&["backup", "."]), 2, &overlapping);
    check_refused(&site.run(&["backup", "store/backups"]), 2, &overlapping);
    check_refused(&site.run(&["backup", "backups", "--keep", "0"]), 2, &["--keep"]);
    check_refused(&site.run(&["backup"]), 2, &["DIR"]);
    assert_eq!(back_up(&site, "backups")["backup"], 1);
    let other = site.beside();
    let dir = site.path().join("backups");
    let dir = dir.to_str().unwrap();
    check_refused(&other.run(&["restore", "."]), 2, &overlapping);
    let nested = format!("store.path={dir}/files/store");
    check_refused(&other.run(&["restore", dir, "--set", &nested]), 2, &overlapping);
    let unknown = ["--backup", "9", "newest first: 1"];
    check_refused(&other.run(&["restore", dir, "--backup", "9"]), 2, &unknown);
    let eight = ["restore", dir, "--set", "store.partitions=8"];
    check_refused(&other.run(&eight), 1, &["store.partitions = 64", "8"]);
    let full = on_a_full_disk(&other, &["restore", dir]);
    check_refused(&full, 1, &["cannot be written", "store/"]);
    assert!(!other.path().join("store").exists());
    assert_eq!(restore(&other, Path::new(dir), &[])["backup"], 1);
}

/// Runs a command that cannot write files longer than 512 bytes.
fn on_a_full_disk(site: &Site, args: &[&str]) -> Output {
    let script = format!("trap '' XFSZ; ulimit -f 1; exec {}", shell_line(&site.command(args)));
    run(Command::new("sh").args(["-c", &script]).current_dir(site.path()), b"")
}
