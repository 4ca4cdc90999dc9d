//! Helpers for all test support.

use std::fmt::Display;
use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Timeout for hangs: far longer than any step takes on a slow machine.
pub const DEADLINE: Duration = Duration::from_secs(300);

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Calls `attempt` until it succeeds, and returns its value. Runs in its own thread and runtime, so that synchronous
/// and asynchronous code can call it.
///
/// # Panics
/// Panics with the last failure at the deadline.
#[track_caller]
pub fn eventually<T, E, F>(what: &str, mut attempt: impl FnMut() -> F + Send) -> T
where
    F: Future<Output = Result<T, E>>,
    T: Send,
    E: Display,
{
    let outcome = thread::scope(|scope| {
        let polling = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("the runtime starts");
            let started = Instant::now();
            loop {
                match runtime.block_on(attempt()) {
                    Ok(value) => return Ok(value),
                    Err(failure) if started.elapsed() > DEADLINE => return Err(failure.to_string()),
                    Err(_) => thread::sleep(POLL_INTERVAL),
                }
            }
        });
        polling.join().expect("the attempt does not panic")
    });
    outcome.unwrap_or_else(|failure| panic!("{what}: timed out after {DEADLINE:?}: {failure}"))
}

/// Returns a free port, never the same twice. It is below the range from which the system assigns ports to outgoing
/// connections, so that none of them takes it.
pub fn free_port() -> u16 {
    const FIRST: u16 = 10_000;
    const COUNT: u16 = 20_000;
    static DRAWN: AtomicU16 = AtomicU16::new(0);
    // Concurrent test processes start at different ports.
    let start = std::process::id().wrapping_mul(127) % u32::from(COUNT);
    loop {
        let drawn = DRAWN.fetch_add(1, Ordering::Relaxed);
        assert!(drawn < COUNT, "no free port between {FIRST} and {}", FIRST + COUNT);
        let port = FIRST + ((start + u32::from(drawn)) % u32::from(COUNT)) as u16;
        if claim(port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Reserves a port among test processes until this process ends, by binding the UDP port of the same number.
fn claim(port: u16) -> bool {
    UdpSocket::bind(("127.0.0.1", port)).map(std::mem::forget).is_ok()
}

/// Returns the cache folder for downloads, which the Makefile uses too.
pub fn cache_dir() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).unwrap_or_else(|| {
        PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache")
    });
    base.join("adtrail")
}

/// Runs a command that must succeed.
pub fn run_ok(command: &mut Command, _no_input: &[u8]) {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?} (is it installed?): {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {stderr}", output.status);
}
