//! What is on a disk only while a command runs. A signal that ends the command takes it along:
//! then nothing is dropped.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// A folder into which a store is written must be tried more than once.
const ATTEMPTS: usize = 100;

static LEFT: Mutex<Left> = Mutex::new(Left { paths: BTreeSet::new(), is_guarded: false });

struct Left {
    paths: BTreeSet<PathBuf>,
    is_guarded: bool,
}

/// A file or folder that goes if a signal ends the process before this is dropped.
#[derive(Debug)]
pub struct Leftover(PathBuf);

impl Leftover {
    /// # Errors
    /// If signals can not be listened for.
    pub fn new(path: &Path) -> io::Result<Self> {
        let mut left = left();
        if !left.is_guarded {
            let signals = Signals::new([SIGINT, SIGTERM])?;
            thread::Builder::new().name("signals".into()).spawn(move || guard(signals))?;
            left.is_guarded = true;
        }
        left.paths.insert(path.to_owned());
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Leftover {
    /// While all is removed this waits, and with it whoever would go on without a store.
    fn drop(&mut self) {
        left().paths.remove(&self.0);
    }
}

fn left() -> MutexGuard<'static, Left> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process as the signal does by itself, once nothing is left.
fn guard(mut signals: Signals) {
    for signal in signals.forever() {
        let left = left();
        left.paths.iter().for_each(|path| remove(path));
        let _ = emulate_default_handler(signal);
    }
}

fn remove(path: &Path) {
    for _ in 0..ATTEMPTS {
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        match removed {
            Ok(()) => return,
            Err(error) if error.kind() == ErrorKind::NotFound && !path.exists() => return,
            Err(_) => {}
        }
    }
}
