//! Files that must not outlive a command that a signal ends, since then nothing is dropped; and those that are kept to
//! be resumed, which standard error names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, thread};

use anyhow::Context;
use parking_lot::{Mutex, MutexGuard};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::telemetry;

/// A store that is being written creates files in its folder while it is removed.
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

/// A file or folder that is removed, or kept and named, if SIGINT or SIGTERM ends the process before this is dropped.
#[derive(Debug)]
pub struct TempPath(PathBuf);

impl TempPath {
    /// A path that a signal removes.
    ///
    /// # Errors
    /// If signals cannot be handled.
    pub fn new(path: &Path) -> anyhow::Result<Self> {
        Self::register(path, AtSignal::Remove)
    }

    /// A partial file that stays after a signal, for `--resume`.
    ///
    /// # Errors
    /// If signals cannot be handled.
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
    /// Waits while a signal is handled, so that nothing goes on without its files.
    fn drop(&mut self) {
        registry().paths.remove(&self.0);
    }
}

/// How to continue with a partial file.
pub fn resume_advice(path: &Path) -> String {
    format!("what is written is in {}, --resume continues it", path.display())
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
                    telemetry::tell(format_args!("adtrail: interrupted; {advice}\n"));
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
