//! The test bed: the real programs that integration tests and benches run against, each started by the
//! test that needs it and gone with it. Nothing here is skipped because a program is missing:
//! `scripts/install --tests` brings them all.
//!
//! It knows adtrail as its users do, as a program, and none of its crates. Start at [`site::Site`], a place
//! where adtrail runs on a [`kafka::Kafka`].
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "what clippy.toml lets tests do, this does too: it fails loudly"
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
mod child_guard;
mod class_data;
pub mod disk;
pub mod exports;
pub mod faults;
pub mod hbase;
pub mod http;
pub mod kafka;
mod maven;
pub mod prometheus;
pub mod registry;
pub mod rows;
pub mod shared;
pub mod site;
pub mod traffic;

/// Far longer than anything takes on a slow machine: it ends a hang, it measures nothing.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// How much of something random or repeated a test does: the short form in `make test`, the long one where
/// `ADTRAIL_TEST_LONG` is set, as `make guarantees` and `make long-test` do.
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

/// What `attempt` gives once it succeeds.
///
/// # Panics
/// With the last failure, at the deadline.
#[track_caller]
pub fn eventually<T, E: Display>(what: &str, mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let started = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(failure) if started.elapsed() > DEADLINE => {
                panic!("{what}: not within {DEADLINE:?}: {failure}")
            }
            Err(_) => thread::sleep(POLL_EVERY),
        }
    }
}

/// A port that nothing listens on, never given twice. It lies below the range from which the
/// system draws the ports of outgoing connections, so that none of these takes it meanwhile.
pub fn free_port() -> u16 {
    const FIRST: u16 = 10_000;
    const COUNT: u16 = 20_000;
    static DRAWN: AtomicU16 = AtomicU16::new(0);
    // Test binaries that run side by side start at different places.
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

/// Whether a port is this process's until it ends, among all that ask: the port of the same number for datagrams,
/// which nobody uses, is the sign.
fn claim(port: u16) -> bool {
    UdpSocket::bind(("127.0.0.1", port)).map(std::mem::forget).is_ok()
}

/// Where what was fetched once is kept: the folder that the Makefile uses too.
pub fn cache_dir() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).unwrap_or_else(|| {
        PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache")
    });
    base.join("adtrail")
}

/// Runs a command to its end, feeding it `stdin`.
pub fn run(command: &mut Command, stdin: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?} (scripts/install --tests brings it): {error}"));
    let mut input = child.stdin.take().expect("stdin is piped");
    thread::scope(|scope| {
        // Beside reading: a child that answers while it reads would else wait for us for ever.
        // One that ends early closes the pipe; what it then says is the caller's to judge.
        scope.spawn(move || input.write_all(stdin));
        child.wait_with_output().expect("the child can be waited for")
    })
}

/// As [`run`], for a command that must succeed: its standard output.
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

/// Everything a child writes to a file without a name. What it wrote before it answered is there when its answer
/// comes, as it would not be if a thread read it from a pipe.
#[derive(Debug)]
pub struct Captured(File);

impl Captured {
    pub fn empty() -> Self {
        Self(tempfile::tempfile().expect("a temporary file"))
    }

    /// What the child gets as its standard output or error.
    pub fn sink(&self) -> Stdio {
        self.0.try_clone().expect("the file can be opened once more").into()
    }

    /// So far; all of it once the child has ended.
    pub fn text(&self) -> String {
        let length = self.0.metadata().expect("the file has a size").len();
        let mut bytes = vec![0; length as usize];
        // At a place: the child writes where the file's own position is.
        self.0.read_exact_at(&mut bytes, 0).expect("the file can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
