//! A broker that hangs: its connections stand, and nothing is answered.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::super::run_ok;
use super::Kafka;

impl Kafka {
    /// Until [`Kafka::resume`].
    pub fn pause(&self) {
        signal("STOP", self.pid());
    }

    pub fn resume(&self) {
        signal("CONT", self.pid());
    }

    /// Hangs for so long, again and again, and goes on for so long in between.
    pub fn slow(&self, hangs: Duration, goes_on: Duration) -> Slow {
        let (pid, is_over) = (self.pid(), Arc::new(AtomicBool::new(false)));
        let until = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                signal("STOP", pid);
                thread::sleep(hangs);
                signal("CONT", pid);
                thread::sleep(goes_on);
            }
        });
        Slow { is_over, thread: Some(thread) }
    }

    fn pid(&self) -> u32 {
        self.running.as_ref().expect("kafka runs").pid()
    }
}

/// A broker that is slow until this is dropped.
#[derive(Debug)]
pub struct Slow {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // One that has panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn signal(name: &str, pid: u32) {
    run_ok(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]), b"");
}
