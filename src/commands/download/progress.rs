//! How far a download is: a bar on a terminal's standard error, nothing elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use export::ExportError;
use indicatif::{HumanCount, ProgressBar};

use crate::telemetry;

const TEMPLATE: &str = "{wide_bar} {human_pos} of {human_len} rows, {msg}, {eta} left";

pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    rows: AtomicU64,
}

impl Progress {
    /// `expected` is asked only where somebody looks, and may not know.
    ///
    /// # Errors
    /// What it says.
    pub fn new(
        expected: impl FnOnce() -> Result<Option<u64>, ExportError>,
    ) -> Result<Self, ExportError> {
        let bar = telemetry::bar(Some(0), TEMPLATE);
        if !bar.is_hidden() {
            match expected()? {
                Some(rows) => bar.set_length(rows),
                None => bar.unset_length(),
            }
        }
        Ok(Self { bar, started: Instant::now(), rows: AtomicU64::new(0) })
    }

    /// So many rows more.
    pub fn written(&self, rows: u64) {
        if self.bar.is_hidden() {
            return;
        }
        let rows = self.rows.fetch_add(rows, Ordering::Relaxed) + rows;
        let per_second = rows as f64 / self.started.elapsed().as_secs_f64().max(0.001);
        self.bar.set_message(format!("{} a second", HumanCount(per_second as u64)));
        // It was an estimate.
        if self.bar.length().is_some_and(|expected| expected < rows) {
            self.bar.set_length(rows);
        }
        self.bar.set_position(rows);
    }
}

/// Nothing is left of the bar, whatever ends it.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
