//! Temporary files of commands. A signal ends the process without running destructors, so they are removed here.
//! Partial files that can be resumed are kept, and their paths are printed to standard error.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, thread};

use anyhow::Context;
use parking_lot::{Mutex, MutexGuard};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::telemetry;

/// Number of attempts to remove a path: a store that is being written creates files while its folder is removed.
const REMOVE_ATTEMPTS: usize = 100;

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { paths: BTreeMap::new(), is_listening: false });

struct Registry {
    paths: BTreeMap<PathBuf, OnSignal>,
    is_listening: bool,
}

#[derive(Clone, Copy)]
enum OnSignal {
    Remove,
    Keep,
}

/// Registers a file or folder. If SIGINT or SIGTERM ends the process before this is dropped, the path is removed, or
/// kept and printed to standard error.
#[derive(Debug)]
pub struct TempPath(PathBuf);

impl TempPath {
    /// Registers a path to remove on SIGINT or SIGTERM.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    pub fn new(path: &Path) -> anyhow::Result<Self> {
        Self::register(path, OnSignal::Remove)
    }

    /// Registers a partial file to keep on SIGINT or SIGTERM, for `--resume`.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    pub fn resumable(path: &Path) -> anyhow::Result<Self> {
        Self::register(path, OnSignal::Keep)
    }

    /// Runs the step that completes the file, after which the path is not temporary any more. A signal is handled
    /// before or after the step, so no advice to resume is printed for a complete file.
    pub fn complete(&self, step: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut registry = registry();
        step()?;
        registry.paths.remove(&self.0);
        Ok(())
    }

    fn register(path: &Path, on_signal: OnSignal) -> anyhow::Result<Self> {
        let mut registry = registry();
        if !registry.is_listening {
            let context = "cannot install signal handlers";
            let signals = Signals::new([SIGINT, SIGTERM]).context(context)?;
            let thread = thread::Builder::new().name("signals".into());
            thread.spawn(move || handle(signals)).context(context)?;
            registry.is_listening = true;
        }
        registry.paths.insert(path.to_owned(), on_signal);
        Ok(Self(path.to_owned()))
    }
}

impl Drop for TempPath {
    /// Blocks while a signal is handled, so that no code continues after its files are removed.
    fn drop(&mut self) {
        registry().paths.remove(&self.0);
    }
}

/// Returns a text with the path of the partial file and the way to resume it.
pub fn resume_hint(path: &Path) -> String {
    format!("the partial file is {}; --resume continues it", path.display())
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock()
}

fn handle(mut signals: Signals) {
    for signal in signals.forever() {
        // The lock is held until the process ends.
        let registry = registry();
        for (path, on_signal) in &registry.paths {
            match on_signal {
                OnSignal::Remove => remove(path),
                OnSignal::Keep => {
                    telemetry::clear_progress_bar();
                    let hint = resume_hint(path);
                    telemetry::write_stderr(format_args!("adtrail: interrupted; {hint}\n"));
                }
            }
        }
        let _ = emulate_default_handler(signal);
    }
}

fn remove(path: &Path) {
    let remove_path = if path.is_dir() { fs::remove_dir_all } else { fs::remove_file };
    for _ in 0..REMOVE_ATTEMPTS {
        if remove_path(path).is_ok() || !path.exists() {
            return;
        }
    }
}
