//! What came of all turns: the medians of ours beside those of others, and whether what is promised holds.

use super::{Taken, What};

/// As [`crate`] names them.
pub const OURS: &str = "hbase-client";

const CPU_RATIO_MAX: f64 = 0.5;
const ROWS_RATIO_MIN: f64 = 1.0;
const MEMORY_MB_MAX: u64 = 100;

/// What everybody's turns took.
#[derive(Default)]
pub struct Results(Vec<Result>);

struct Result {
    what: What,
    tasks: u64,
    name: &'static str,
    taken: Taken,
}

impl Results {
    pub fn add(&mut self, what: What, tasks: u64, name: &'static str, taken: Taken) {
        self.0.push(Result { what, tasks, name, taken });
    }

    /// Over everybody's turns at the same.
    fn median(&self, what: What, tasks: u64, name: &str, of: fn(&Taken) -> f64) -> f64 {
        let is_it =
            |result: &&Result| (result.what, result.tasks, result.name) == (what, tasks, name);
        let mut all: Vec<_> = self.0.iter().filter(is_it).map(|result| of(&result.taken)).collect();
        all.sort_by(f64::total_cmp);
        // Of an even number, between the two in the middle.
        (all[(all.len() - 1) / 2] + all[all.len() / 2]) / 2.0
    }

    /// What ours and another's took.
    fn both(&self, what: What, tasks: u64, other: &str, of: fn(&Taken) -> f64) -> (f64, f64) {
        (self.median(what, tasks, OURS, of), self.median(what, tasks, other, of))
    }

    pub fn print(&self, others: &[&str], memory_mb: u64) {
        println!("\nmedians of {OURS} as parts of others'");
        println!("{:<6} {:>5}  {:<22} {:>24} {:>24}", "", "tasks", "", "CPU per row", "rows/s");
        let is_small = memory_mb <= MEMORY_MB_MAX;
        let mut all_hold = is_small;
        for what in [What::Write, What::Scan] {
            for tasks in [1, 2] {
                for other in others {
                    let (ours, theirs) = self.both(what, tasks, other, |taken| taken.cpu_s);
                    let (cpu, holds_cpu) = (ours / theirs, ours <= theirs * CPU_RATIO_MAX);
                    // The same rows: half of the time is twice the rows.
                    let (ours, theirs) = self.both(what, tasks, other, |taken| taken.seconds);
                    let (rows, holds_rows) = (theirs / ours, theirs >= ours * ROWS_RATIO_MIN);
                    all_hold &= holds_cpu && holds_rows;
                    let cpu = format!("{cpu:.2} {}", told(holds_cpu));
                    let rows = format!("{rows:.2} {}", told(holds_rows));
                    println!("{:<6} {tasks:>5}  {other:<22} {cpu:>24} {rows:>24}", what.name());
                }
            }
        }
        println!("memory, at most: {memory_mb} MB {}", told(is_small));
        println!(
            "promised: CPU per row at most {CPU_RATIO_MAX:.2}, rows/s at least {ROWS_RATIO_MIN:.2}, memory \
             at most {MEMORY_MB_MAX} MB: {}",
            if all_hold { "all of it holds" } else { "not all of it holds" }
        );
    }
}

fn told(holds: bool) -> &'static str {
    if holds { "holds" } else { "DOES NOT HOLD" }
}
