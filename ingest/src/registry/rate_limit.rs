//! Lets few requests through at a time, and very few while there is no answer: a registry that
//! comes back is not met by a crowd.

use std::time::Duration;

use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

/// Schemas fetched at once. A registry answers in milliseconds, and is asked once a schema.
const AT_ONCE: usize = 4;

pub struct Gate {
    permits: Semaphore,
    probe_interval: Duration,
    next_probe: Mutex<Instant>,
}

impl Gate {
    /// The first try after an answer failed to come may follow at once.
    pub fn new(probe_interval: Duration) -> Self {
        let next_probe = Mutex::new(Instant::now());
        Self { permits: Semaphore::new(AT_ONCE), probe_interval, next_probe }
    }

    /// Waits for a turn. `is_open` says whether the registry answers.
    pub async fn turn(&self, is_open: impl Fn() -> bool) -> Option<SemaphorePermit<'_>> {
        loop {
            while is_open() {
                // Never closed, so never an error.
                let permit = self.permits.acquire().await.ok();
                // In a long queue the answers may have ended meanwhile.
                if is_open() {
                    return permit;
                }
            }
            let mut next_probe = self.next_probe.lock().await;
            // And here another one's probe may have been answered.
            if !is_open() {
                sleep_until(*next_probe).await;
                *next_probe = Instant::now() + self.probe_interval;
                return self.permits.acquire().await.ok();
            }
        }
    }
}
