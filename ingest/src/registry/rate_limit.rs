//! Limits concurrent requests. While the registry does not answer, lets only single probes through, so that it is not
//! overloaded when it recovers.

use std::time::Duration;

use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

/// Maximum number of schemas fetched concurrently. A registry answers in milliseconds, and each schema is fetched once.
const CONCURRENT_MAX: usize = 4;

pub struct RateLimit {
    permits: Semaphore,
    probe_interval: Duration,
    next_probe: Mutex<Instant>,
}

impl RateLimit {
    /// Creates a limit whose first probe needs no wait.
    pub fn new(probe_interval: Duration) -> Self {
        let next_probe = Mutex::new(Instant::now());
        Self { permits: Semaphore::new(CONCURRENT_MAX), probe_interval, next_probe }
    }

    /// Waits for a permit. While `is_answering` is false, grants one probe per interval.
    pub async fn acquire(&self, is_answering: impl Fn() -> bool) -> Option<SemaphorePermit<'_>> {
        loop {
            while is_answering() {
                // The semaphore is never closed, so this cannot fail.
                let permit = self.permits.acquire().await.ok();
                // The registry may have failed while this waited in the queue.
                if is_answering() {
                    return permit;
                }
            }
            let mut next_probe = self.next_probe.lock().await;
            // The probe of another task may have been answered meanwhile.
            if !is_answering() {
                sleep_until(*next_probe).await;
                *next_probe = Instant::now() + self.probe_interval;
                return self.permits.acquire().await.ok();
            }
        }
    }
}
