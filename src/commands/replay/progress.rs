//! How far the reading is: a bar on a terminal's standard error, nothing elsewhere.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::{HumanCount, ProgressBar, ProgressBarIter};

use crate::telemetry;

const OF_KNOWN_SIZE: &str = "{wide_bar} {bytes} of {total_bytes}, {msg}, {eta} left";
const OF_ANY_SIZE: &str = "{spinner} {bytes}, {msg}";

pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    events: u64,
}

impl Progress {
    /// Over all that is to be read.
    pub fn over(paths: &[PathBuf]) -> Self {
        let total = paths.iter().map(|path| bytes(path)).sum::<Option<u64>>();
        let template = if total.is_some() { OF_KNOWN_SIZE } else { OF_ANY_SIZE };
        let bar = telemetry::bar(total, template);
        let mut progress = Self { bar, started: Instant::now(), events: 0 };
        progress.done(0);
        progress
    }

    /// Counts what is read of a file.
    pub fn counted<R: Read>(&self, file: R) -> ProgressBarIter<R> {
        self.bar.wrap_read(file)
    }

    /// So many events more have been handed on.
    pub fn done(&mut self, events: usize) {
        self.events += events as u64;
        let per_second = self.events as f64 / self.started.elapsed().as_secs_f64().max(0.001);
        let (events, per_second) = (HumanCount(self.events), HumanCount(per_second as u64));
        self.bar.set_message(format!("{events} events, {per_second} a second"));
    }
}

/// Nothing is left of the bar, whatever ends it.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The size of a file; standard input and pipes have none.
fn bytes(path: &Path) -> Option<u64> {
    let is_input = path == Path::new("-");
    let metadata = fs::metadata(path).ok().filter(|metadata| metadata.is_file() && !is_input);
    metadata.map(|metadata| metadata.len())
}
