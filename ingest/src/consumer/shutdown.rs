//! A shutdown flag, shared between the signal handler and all threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longest sleep between two checks of the flag.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Default)]
pub struct Shutdown(Arc<AtomicBool>);

impl Shutdown {
    pub fn request(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns the flag itself, which a signal handler can set.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Sleeps; a shutdown request ends the sleep early.
    pub fn sleep(&self, duration: Duration) {
        let start = Instant::now();
        while !self.is_requested() {
            let remaining = duration.saturating_sub(start.elapsed());
            if remaining.is_zero() {
                return;
            }
            thread::sleep(remaining.min(CHECK_INTERVAL));
        }
    }
}
