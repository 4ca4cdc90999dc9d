//! Reloads on SIGHUP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use anyhow::Context;
use ingest::Shutdown;
use signal_hook::consts::SIGHUP;
use signal_hook::flag;

use super::Reloader;
use crate::service::until_shutdown::SUPERVISION_INTERVAL;

/// The signals since the last reload.
pub struct Hangups(Arc<AtomicBool>);

impl Hangups {
    /// From now on a signal no longer ends the process.
    ///
    /// # Errors
    /// If the signal handler cannot be installed.
    pub fn catch() -> anyhow::Result<Self> {
        let is_pending = Arc::<AtomicBool>::default();
        flag::register(SIGHUP, Arc::clone(&is_pending))
            .context("cannot install the signal handler of reloads")?;
        Ok(Self(is_pending))
    }

    /// Starts a thread that reloads on each signal, also on one that has arrived since [`Hangups::catch`], until shutdown
    /// is requested.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn reload_on_each(
        self,
        reloader: Arc<Reloader>,
        shutdown: &Shutdown,
    ) -> anyhow::Result<JoinHandle<()>> {
        let shutdown = shutdown.clone();
        let thread = Builder::new().name("reload".into()).spawn(move || {
            while !shutdown.is_requested() {
                if self.0.swap(false, Ordering::Relaxed) {
                    // The log has the outcome.
                    let _ = reloader.reload();
                }
                shutdown.sleep(SUPERVISION_INTERVAL);
            }
        });
        thread.context("the thread of reloads cannot be started")
    }
}
