//! Temporary files of commands. If a signal ends a command, nothing is dropped, so they are removed here. Partial files
//! that can be resumed are kept, and named on standard error.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, thread};

use anyhow::Context;
use parking_lot::{Mutex, MutexGuard};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::telemetry;

/// A store that is being written creates files in its folder while the folder is removed.
const REMOVE_ATTEMPTS: usize = 100;

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { paths: BTreeMap::new(), is_listening: false });

struct Registry {
    paths: BTreeMap<PathBuf, AtSignal>,
    is_listening: bool,
}

#[derive(Clone, Copy)]
enum AtSignal {
    Remove,
    Keep,
}

/// Registers a file or folder. If SIGINT or SIGTERM ends the process before this is dropped, the path is removed, or
/// kept and named on standard error.
#[derive(Debug)]
pub struct TempPath(PathBuf);

impl TempPath {
    /// Registers a path that a signal removes.
    ///
    /// # Errors
    /// Fails if signals cannot be handled.
    pub fn new(path: &Path) -> anyhow::Result<Self> {
        Self::register(path, AtSignal::Remove)
    }

    /// Registers a partial file that stays after a signal, for `--resume`.
    ///
    /// # Errors
    /// Fails if signals cannot be handled.
    pub fn resumable(path: &Path) -> anyhow::Result<Self> {
        Self::register(path, AtSignal::Keep)
    }

    fn register(path: &Path, at_signal: AtSignal) -> anyhow::Result<Self> {
        let mut registry = registry();
        if !registry.is_listening {
            let context = "signals cannot be handled";
            let signals = Signals::new([SIGINT, SIGTERM]).context(context)?;
            let thread = thread::Builder::new().name("signals".into());
            thread.spawn(move || handle(signals)).context(context)?;
            registry.is_listening = true;
        }
        registry.paths.insert(path.to_owned(), at_signal);
        Ok(Self(path.to_owned()))
    }
}

impl Drop for TempPath {
    /// Waits while a signal is handled, so that nothing continues without its files.
    fn drop(&mut self) {
        registry().paths.remove(&self.0);
    }
}

/// Says where the partial file is and how to resume it.
pub fn resume_advice(path: &Path) -> String {
    format!("the partial file is {}; --resume continues it", path.display())
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock()
}

fn handle(mut signals: Signals) {
    for signal in signals.forever() {
        // Locked until the process ends.
        let registry = registry();
        for (path, at_signal) in &registry.paths {
            match at_signal {
                AtSignal::Remove => remove(path),
                AtSignal::Keep => {
                    telemetry::clear_bar();
                    let advice = resume_advice(path);
                    telemetry::write_stderr(format_args!("adtrail: interrupted; {advice}\n"));
                }
            }
        }
        let _ = emulate_default_handler(signal);
    }
}

fn remove(path: &Path) {
    let remove = if path.is_dir() { fs::remove_dir_all } else { fs::remove_file };
    for _ in 0..REMOVE_ATTEMPTS {
        if remove(path).is_ok() || !path.exists() {
            return;
        }
    }
}
