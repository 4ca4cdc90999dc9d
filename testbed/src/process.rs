//! Running commands, and checking how they end.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;

use crate::waiting::eventually;

/// Runs a command with this standard input.
pub fn run(command: &mut Command, stdin: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("{command:?} (scripts/install --tests installs it): {error}")
        });
    let mut input = child.stdin.take().expect("stdin is piped");
    thread::scope(|scope| {
        // Concurrent with reading: a child that writes before it has read all input would otherwise block for ever. A
        // child that ends early closes the pipe; its exit status is up to the caller.
        scope.spawn(move || input.write_all(stdin));
        child.wait_with_output().expect("the child can be waited for")
    })
}

/// Like [`run`], for a command that must succeed. Returns its standard output.
#[track_caller]
pub fn run_ok(command: &mut Command, stdin: &[u8]) -> Vec<u8> {
    let output = run(command, stdin);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {stderr}", output.status);
    output.stdout
}

/// Asserts that a command has ended with this code, and that these parts are on standard error, which is returned.
#[track_caller]
pub fn check_exit(output: &Output, code: i32, parts: &[&str]) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{part:?} is not in: {stderr}");
    }
    stderr
}

/// Like [`check_exit`], for a command that has nothing on standard output.
#[track_caller]
pub fn check_refused(output: &Output, code: i32, parts: &[&str]) {
    check_exit(output, code, parts);
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Waits until a child ends by itself.
#[track_caller]
pub fn await_exit(child: &mut Child) -> ExitStatus {
    eventually("the process ends", || {
        child.try_wait().expect("the child can be polled").ok_or("still running")
    })
}

/// Sends a signal, for example `"TERM"`, to a process.
pub fn kill(pid: u32, signal: &str) {
    run_ok(Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]), b"");
}

/// The words of a command as a line of shell.
pub fn shell_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| format!("'{}' ", word.to_str().expect("valid UTF-8"))).collect()
}

/// The output of a child process, written to an unnamed file. Unlike with a pipe that a thread reads, all output
/// that the child wrote before it responded is visible when its response arrives.
#[derive(Debug)]
pub struct Captured(File);

impl Captured {
    pub fn empty() -> Self {
        Self(tempfile::tempfile().expect("the temporary file is created"))
    }

    /// Returns the standard output or error for a child.
    pub fn sink(&self) -> Stdio {
        self.0.try_clone().expect("the file handle can be cloned").into()
    }

    /// Returns the output so far; all of it once the child has ended.
    pub fn text(&self) -> String {
        let length = self.0.metadata().expect("the file has a size").len();
        let mut bytes = vec![0; length as usize];
        // A positioned read, because the child shares the file offset.
        self.0.read_exact_at(&mut bytes, 0).expect("the file can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
