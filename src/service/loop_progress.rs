//! Progress of the attribution loop, as a watchdog sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the steps of a loop. The number is odd while the loop works, and even while it waits for work.
#[derive(Debug, Default)]
pub struct LoopProgress(AtomicU64);

impl LoopProgress {
    /// The loop, which is the only writer, has work.
    pub fn set_working(&self) {
        self.0.store((self.0.load(Ordering::Relaxed) + 1) | 1, Ordering::Relaxed);
    }

    /// The loop waits for work.
    pub fn set_waiting(&self) {
        self.0.store((self.0.load(Ordering::Relaxed) + 2) & !1, Ordering::Relaxed);
    }
}

/// Compares the progress of a loop with what was seen before.
#[derive(Debug)]
pub struct ProgressWatch {
    progress: Arc<LoopProgress>,
    seen: u64,
}

impl ProgressWatch {
    pub fn new(progress: Arc<LoopProgress>) -> Self {
        Self { progress, seen: 0 }
    }

    /// Returns false if the loop still does the work that it did when this last returned true.
    pub fn has_progressed(&mut self) -> bool {
        let steps = self.progress.0.load(Ordering::Relaxed);
        let has_progressed = steps.is_multiple_of(2) || steps != self.seen;
        self.seen = steps;
        has_progressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_makes_progress_while_it_waits_and_with_each_step() {
        let progress = Arc::new(LoopProgress::default());
        let mut watch = ProgressWatch::new(Arc::clone(&progress));
        assert!(watch.has_progressed() && watch.has_progressed(), "it waits for its first work");
        progress.set_working();
        assert!(watch.has_progressed());
        assert!(!watch.has_progressed() && !watch.has_progressed());
        progress.set_working();
        assert!(watch.has_progressed(), "the next work");
        assert!(!watch.has_progressed());
        progress.set_waiting();
        assert!(watch.has_progressed() && watch.has_progressed());
        progress.set_waiting();
        progress.set_working();
        assert!(watch.has_progressed());
    }
}
