//! Helpers for all test support.

use std::fmt::Display;
use std::process::{Command, Stdio};
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

/// Runs a command that must succeed.
pub fn run_ok(command: &mut Command, _no_input: &[u8]) {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?} (is it installed?): {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {stderr}", output.status);
}
