//! What is on a disk only while a command runs. A signal that ends the command takes it along:
//! then nothing is dropped. What is to be gone on with stays, and is told of.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, thread};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::telemetry;

/// A folder into which a store is written must be tried more than once.
const ATTEMPTS: usize = 100;

static LEFT: Mutex<Left> =
    Mutex::new(Left { paths: BTreeSet::new(), kept: BTreeSet::new(), is_guarded: false });

struct Left {
    paths: BTreeSet<PathBuf>,
    kept: BTreeSet<PathBuf>,
    is_guarded: bool,
}

/// A file or folder that goes if a signal ends the process before this is dropped.
#[derive(Debug)]
pub struct Leftover(PathBuf);

impl Leftover {
    /// # Errors
    /// If signals can not be listened for.
    pub fn new(path: &Path) -> io::Result<Self> {
        guarded()?.paths.insert(path.to_owned());
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Leftover {
    /// While all is removed this waits, and with it whoever would go on without a store.
    fn drop(&mut self) {
        left().paths.remove(&self.0);
    }
}

/// A part of a file that stays if a signal ends the process before this is dropped; who waits is told.
#[derive(Debug)]
pub struct Kept(PathBuf);

impl Kept {
    /// # Errors
    /// If signals can not be listened for.
    pub fn new(path: &Path) -> io::Result<Self> {
        guarded()?.kept.insert(path.to_owned());
        Ok(Self(path.to_owned()))
    }

    /// It is elsewhere from now on.
    pub fn moved(&mut self, path: &Path) {
        let mut left = left();
        left.kept.remove(&self.0);
        left.kept.insert(path.to_owned());
        path.clone_into(&mut self.0);
    }

    /// Moves it to its place; where that has been done, nothing is left to go on with.
    ///
    /// # Errors
    /// What moving it says.
    pub fn place(&self, rename: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut left = left();
        rename()?;
        left.kept.remove(&self.0);
        Ok(())
    }

    /// What can be done with what is there.
    pub fn advice(path: &Path) -> String {
        format!("what is written is in {}, --resume goes on with it", path.display())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        left().kept.remove(&self.0);
    }
}

fn guarded() -> io::Result<MutexGuard<'static, Left>> {
    let mut left = left();
    if !left.is_guarded {
        let signals = Signals::new([SIGINT, SIGTERM])?;
        thread::Builder::new().name("signals".into()).spawn(move || guard(signals))?;
        left.is_guarded = true;
    }
    Ok(left)
}

fn left() -> MutexGuard<'static, Left> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process as the signal does by itself, once nothing is left.
fn guard(mut signals: Signals) {
    for signal in signals.forever() {
        let left = left();
        left.paths.iter().for_each(|path| remove(path));
        for path in &left.kept {
            telemetry::clear_bar();
            telemetry::tell(format_args!("adtrail: interrupted; {}\n", Kept::advice(path)));
        }
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
