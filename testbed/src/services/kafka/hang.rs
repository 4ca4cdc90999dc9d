//! A hung broker: its connections stay open, but it does not respond.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::Kafka;
use crate::kill;

impl Kafka {
    /// Suspends the broker until [`Kafka::resume`].
    pub fn pause(&self) {
        kill(self.pid(), "STOP");
    }

    pub fn resume(&self) {
        kill(self.pid(), "CONT");
    }

    /// Alternately suspends and resumes the broker for these durations, until the result is dropped.
    pub fn slow(&self, suspended: Duration, running: Duration) -> Slow {
        let (pid, is_dropped) = (self.pid(), Arc::new(AtomicBool::new(false)));
        let is_over = Arc::clone(&is_dropped);
        let thread = thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                kill(pid, "STOP");
                thread::sleep(suspended);
                kill(pid, "CONT");
                thread::sleep(running);
            }
        });
        Slow { is_dropped, thread: Some(thread) }
    }
}

/// A slow broker. Dropping this makes it fast again.
#[derive(Debug)]
pub struct Slow {
    is_dropped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.is_dropped.store(true, Ordering::Relaxed);
        // A panic of the thread was already reported.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
