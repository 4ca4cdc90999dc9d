//! A watchdog that ends the process after its shutdown deadline: threads can block for ever in a write to a log pipe
//! that is not read.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, Builder};
use std::time::Duration;

use anyhow::Context;
use ingest::Shutdown;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// While true, SIGINT and SIGTERM end the process at once.
static IS_STARTING: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Makes signals end the process until [`listen_for_signals`]. They do so by default, except for the first process of a
/// container.
fn end_at_signals() -> io::Result<()> {
    IS_STARTING.store(true, Ordering::Relaxed);
    for signal in SIGNALS {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&IS_STARTING))?;
    }
    Ok(())
}

/// Makes SIGINT and SIGTERM request a shutdown from now on, however often they are sent. This needs no thread.
pub fn listen_for_signals(shutdown: &Shutdown) -> io::Result<()> {
    for signal in SIGNALS {
        flag::register(signal, shutdown.flag())?;
    }
    IS_STARTING.store(false, Ordering::Relaxed);
    Ok(())
}

/// Starts the watchdog, which ends the process with status 1 once the deadline and the grace period have passed since
/// the shutdown request. It also covers the last log line of a process, which may block. Signals end the process at
/// once until [`listen_for_signals`].
pub fn watch(shutdown: &Shutdown, deadline: Duration, grace: Duration) -> anyhow::Result<()> {
    end_at_signals().context("cannot install signal handlers")?;
    let shutdown = shutdown.clone();
    let watch = move || {
        while !shutdown.is_requested() {
            shutdown.sleep(CHECK_INTERVAL);
        }
        thread::sleep(deadline + grace);
        // No message, because writing it may block.
        low_level::exit(1);
    };
    let thread = Builder::new().name("deadline".into()).spawn(watch);
    thread.map(drop).context("the watchdog thread cannot be started")
}
