//! How far a copy is: a bar on a terminal's standard error, nothing elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use store::backup::Watcher;

use crate::telemetry;

const TEMPLATE: &str = "{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";

pub struct Progress(ProgressBar);

impl Progress {
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(TEMPLATE);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        telemetry::log_above(&bar);
        Self(bar)
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
