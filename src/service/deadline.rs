//! The end of the process, whatever its threads do: one that waits until somebody reads the log waits for ever, and
//! so may all that have something to say.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder};
use std::time::Duration;

use anyhow::Context;
use ingest::Shutdown;

/// So long after the deadline, by which all ends by itself otherwise.
const GRACE: Duration = Duration::from_secs(5);

/// While it is there.
pub struct Watch(Arc<AtomicBool>);

/// Ends the process with 1 once the wish to stop is older than the deadline.
pub fn watch(shutdown: &Shutdown, deadline: Duration) -> anyhow::Result<Watch> {
    let has_ended = Arc::new(AtomicBool::new(false));
    let (shutdown, ended) = (shutdown.clone(), Arc::clone(&has_ended));
    let watch = move || {
        while !shutdown.is_requested() {
            if ended.load(Ordering::Relaxed) {
                return;
            }
            shutdown.sleep(Duration::from_secs(1));
        }
        thread::sleep(deadline + GRACE);
        if !ended.load(Ordering::Relaxed) {
            // Without a word: that may be what it waits for.
            signal_hook::low_level::exit(1);
        }
    };
    let thread = Builder::new().name("deadline".into()).spawn(watch);
    thread.context("no thread for the deadline")?;
    Ok(Watch(has_ended))
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
