//! The end of the process, whatever its threads do: one that waits until somebody reads the log waits for ever, and
//! so may all that have something to say.

use std::io;
use std::thread::{self, Builder};
use std::time::Duration;

use anyhow::Context;
use ingest::Shutdown;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// So long after the deadline, by which all ends by itself otherwise.
const GRACE: Duration = Duration::from_secs(5);
/// How long no wish to stop may go unnoticed.
const NOTICE: Duration = Duration::from_secs(1);

/// From now on SIGINT and SIGTERM are wishes to stop, however many come. No thread has to run for it.
pub fn listen_for_signals(shutdown: &Shutdown) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, shutdown.flag())?;
    }
    Ok(())
}

/// Ends the process with 1 once the wish to stop is older than the deadline; nothing takes that back, as the last
/// that a process does is to say why it ends.
pub fn watch(shutdown: &Shutdown, deadline: Duration) -> anyhow::Result<()> {
    let shutdown = shutdown.clone();
    let watch = move || {
        while !shutdown.is_requested() {
            shutdown.sleep(NOTICE);
        }
        thread::sleep(deadline + GRACE);
        // Without a word: that may be what it waits for.
        low_level::exit(1);
    };
    let thread = Builder::new().name("deadline".into()).spawn(watch);
    thread.map(drop).context("no thread for the deadline")
}
