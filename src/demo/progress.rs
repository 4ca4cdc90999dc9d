//! Progress output: a bar on a terminal, otherwise a line every two seconds.

use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar};

use crate::telemetry::{self, write_stderr};

const LINE_INTERVAL: Duration = Duration::from_secs(2);

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

    /// Starts the next step.
    pub fn set_step(&mut self, step: &'static str) {
        self.bar.set_message(step);
        if self.bar.is_hidden() {
            write_stderr(format_args!("{step} …\n"));
            self.line_at = Instant::now() + LINE_INTERVAL;
        }
    }

    pub fn update(&mut self, done: u64) {
        self.bar.set_position(done);
        if self.bar.is_hidden() && Instant::now() >= self.line_at {
            let (done, total) = (HumanCount(done), HumanCount(self.total()));
            write_stderr(format_args!("{} {done} of {total}\n", self.bar.message()));
            self.line_at = Instant::now() + LINE_INTERVAL;
        }
    }

    /// Replaces the bar by a line that starts with `verb`.
    pub fn finish(self, verb: &str) {
        let (total, seconds) = (HumanCount(self.total()), self.started.elapsed().as_secs_f64());
        self.bar.finish_and_clear();
        write_stderr(format_args!("{verb} {total} events in {seconds:.1} s\n"));
    }

    fn total(&self) -> u64 {
        self.bar.length().unwrap_or_default()
    }
}

impl Drop for Progress {
    /// Clears the bar, so that an error message is not written after it.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
