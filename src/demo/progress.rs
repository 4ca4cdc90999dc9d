//! How far it is: a bar on a terminal, a line now and then elsewhere.

use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar};

use crate::telemetry;
use crate::telemetry::tell;

const LINE_EVERY: Duration = Duration::from_secs(2);

pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    line_at: Instant,
}

impl Progress {
    pub fn new(total: u64) -> Self {
        let bar = telemetry::bar(Some(total), "{msg} {wide_bar} {human_pos} of {human_len}");
        let started = Instant::now();
        Self { bar, started, line_at: started }
    }

    /// What is being done.
    pub fn doing(&mut self, what: &'static str) {
        self.bar.set_message(what);
        if self.bar.is_hidden() {
            tell(format_args!("{what} …\n"));
            self.line_at = Instant::now() + LINE_EVERY;
        }
    }

    pub fn at(&mut self, done: u64) {
        self.bar.set_position(done);
        if self.bar.is_hidden() && Instant::now() >= self.line_at {
            let (done, total) = (HumanCount(done), HumanCount(self.total()));
            tell(format_args!("{} {done} of {total}\n", self.bar.message()));
            self.line_at = Instant::now() + LINE_EVERY;
        }
    }

    /// The bar is gone; `done` is what is left of it.
    pub fn finish(self, done: &str) {
        let (total, seconds) = (HumanCount(self.total()), self.started.elapsed().as_secs_f64());
        self.bar.finish_and_clear();
        tell(format_args!("{done} {total} events in {seconds:.1} s\n"));
    }

    fn total(&self) -> u64 {
        self.bar.length().unwrap_or_default()
    }
}

/// Whatever ends it early should not write behind the bar.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
