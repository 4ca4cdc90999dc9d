//! The wish to stop, shared by whoever may have it and whoever must hear it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a wait takes at most to notice the wish.
const NOTICE: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Default)]
pub struct Shutdown(Arc<AtomicBool>);

impl Shutdown {
    pub fn request(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// That is set once there is the wish: what a signal handler can do.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Sleeps, but not past the request.
    pub fn sleep(&self, duration: Duration) {
        let start = Instant::now();
        while !self.is_requested() {
            let left = duration.saturating_sub(start.elapsed());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(NOTICE));
        }
    }
}
