//! The end of the process, whatever its threads do: one that waits until somebody reads the log waits for ever, and
//! so may all that have something to say.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, Builder};
use std::time::Duration;

use anyhow::Context;
use ingest::Shutdown;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// How long no wish to stop may go unnoticed.
const NOTICE: Duration = Duration::from_secs(1);

const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// Until signals are listened for, one ends the process.
static IS_OPENING: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Ends the process at a signal until [`listen_for_signals`]. So it does by itself, but for the first process of a
/// container, for which the default is to pass it over.
fn end_at_signals() -> io::Result<()> {
    IS_OPENING.store(true, Ordering::Relaxed);
    for signal in SIGNALS {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&IS_OPENING))?;
    }
    Ok(())
}

/// From now on SIGINT and SIGTERM are wishes to stop, however many come. No thread has to run for it.
pub fn listen_for_signals(shutdown: &Shutdown) -> io::Result<()> {
    for signal in SIGNALS {
        flag::register(signal, shutdown.flag())?;
    }
    IS_OPENING.store(false, Ordering::Relaxed);
    Ok(())
}

/// Ends the process with 1 once the wish to stop is older than the deadline and the grace, in which all ends by
/// itself otherwise; nothing takes that back, as the last that a process does is to say why it ends. Until signals are listened for, one ends it at once.
pub fn watch(shutdown: &Shutdown, deadline: Duration, grace: Duration) -> anyhow::Result<()> {
    end_at_signals().context("signals can not be listened for")?;
    let shutdown = shutdown.clone();
    let watch = move || {
        while !shutdown.is_requested() {
            shutdown.sleep(NOTICE);
        }
        thread::sleep(deadline + grace);
        // Without a word: that may be what it waits for.
        low_level::exit(1);
    };
    let thread = Builder::new().name("deadline".into()).spawn(watch);
    thread.map(drop).context("no thread for the deadline")
}
