//! Waiting for a condition.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Ends a hang. Far longer than any step takes on a slow machine, so it measures nothing.
pub const DEADLINE: Duration = Duration::from_secs(120);

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

/// Sets a flag when dropped, also if the test panics, so that threads which wait for the flag end.
#[derive(Debug)]
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
