//! The test bed: starts the real programs that integration tests and benches run against. Each test starts what it
//! needs, and stops it at its end. No test is skipped if a program is missing: `scripts/install --tests` installs
//! them all.
//!
//! It uses adtrail only as a program, and none of its crates. Start at [`site::Site`], an installation of adtrail
//! on a [`kafka::Kafka`].
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "test support fails loudly, as clippy.toml allows in tests"
)]

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub mod adtrail;
pub mod avro;
pub mod disk;
pub mod exports;
pub mod faults;
pub mod http;
pub mod rows;
mod services;
pub mod site;
pub mod traffic;

pub use services::{hbase, kafka, prometheus, registry, shared};

/// Ends a hang. Far longer than any step takes on a slow machine, so it measures nothing.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Chooses the amount of random or repeated work of a test: `short` in `make test`, `long` with
/// `ADTRAIL_TEST_LONG`, which `make guarantees` and `make long-test` set.
pub fn length<T>(short: T, long: T) -> T {
    match std::env::var_os("ADTRAIL_TEST_LONG").is_some() {
        true => long,
        false => short,
    }
}

/// The value of an environment variable, or `otherwise` where it is not set.
#[must_use]
pub fn from_env<T: FromStr>(name: &str, otherwise: T) -> T {
    let value = std::env::var(name).ok().map(|text| text.parse().ok());
    value.map_or(otherwise, |value| value.unwrap_or_else(|| panic!("{name} has no such value")))
}

const POLL_EVERY: Duration = Duration::from_millis(20);

/// Calls `attempt` until it succeeds, and returns its value.
///
/// # Panics
/// Panics with the last failure at the deadline.
#[track_caller]
pub fn eventually<T, E: Display>(what: &str, mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let started = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(failure) if started.elapsed() > DEADLINE => {
                panic!("{what}: timed out after {DEADLINE:?}: {failure}")
            }
            Err(_) => thread::sleep(POLL_EVERY),
        }
    }
}

/// Returns a free port, never the same twice. It is below the range from which the system assigns ports to outgoing
/// connections, so that none of them takes it.
pub fn free_port() -> u16 {
    const FIRST: u16 = 10_000;
    const COUNT: u16 = 20_000;
    static DRAWN: AtomicU16 = AtomicU16::new(0);
    // Concurrent test processes start at different ports.
    let start = (std::process::id().wrapping_mul(127) % u32::from(COUNT)) as u16;
    loop {
        let drawn = DRAWN.fetch_add(1, Ordering::Relaxed);
        assert!(drawn < COUNT, "no free port between {FIRST} and {}", FIRST + COUNT);
        let port =
            FIRST + (u32::from(start) + u32::from(drawn)).rem_euclid(u32::from(COUNT)) as u16;
        if claim(port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Reserves a port among test processes until this process ends, by binding the UDP port of the same number.
fn claim(port: u16) -> bool {
    UdpSocket::bind(("127.0.0.1", port)).map(std::mem::forget).is_ok()
}

/// The cache for downloads, shared with the Makefile.
pub fn cache_dir() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).unwrap_or_else(|| {
        PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache")
    });
    base.join("adtrail")
}

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

/// Asserts that a command has failed with this code, that these parts are on standard error, and nothing is on standard
/// output.
#[track_caller]
pub fn check_refused(output: &Output, code: i32, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(!said.contains("panicked"), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}

/// The output of a child process, written to an unnamed file. Unlike with a pipe that a thread reads, all output
/// that the child wrote before it responded is visible when its response arrives.
#[derive(Debug)]
pub struct Captured(File);

impl Captured {
    pub fn empty() -> Self {
        Self(tempfile::tempfile().expect("a temporary file"))
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
