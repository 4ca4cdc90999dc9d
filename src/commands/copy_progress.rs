//! How far a copy is: a bar on a terminal's standard error, nothing elsewhere.

use indicatif::ProgressBar;
use store::maintenance::backup::Watcher;

use crate::telemetry;

const TEMPLATE: &str = "{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";

pub struct Progress(ProgressBar);

impl Progress {
    pub fn new() -> Self {
        Self(telemetry::bar(Some(0), TEMPLATE))
    }
}

impl Watcher for Progress {
    fn expect(&mut self, bytes: u64) {
        self.0.set_length(bytes);
    }

    fn copied(&mut self, bytes: u64) {
        self.0.inc(bytes);
    }
}

/// Nothing is left of the bar, whatever ends it.
impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
