//! The results: medians of this crate relative to those of others, and whether the targets are met.

use super::{Cost, Workload};

/// The name of this crate in the results.
pub const OURS: &str = "hbase-client";

const CPU_RATIO_MAX: f64 = 0.5;
const ROWS_RATIO_MIN: f64 = 1.0;
const MEMORY_MB_MAX: u64 = 100;

/// All measurements.
#[derive(Default)]
pub struct Results(Vec<Result>);

struct Result {
    workload: Workload,
    tasks: u64,
    name: &'static str,
    cost: Cost,
}

impl Results {
    pub fn add(&mut self, workload: Workload, tasks: u64, name: &'static str, cost: Cost) {
        self.0.push(Result { workload, tasks, name, cost });
    }

    /// Returns the median of a quantity over all rounds.
    fn median(
        &self,
        workload: Workload,
        tasks: u64,
        name: &str,
        quantity: fn(&Cost) -> f64,
    ) -> f64 {
        let matches = |result: &&Result| {
            (result.workload, result.tasks, result.name) == (workload, tasks, name)
        };
        let results = self.0.iter().filter(matches);
        let mut all: Vec<_> = results.map(|result| quantity(&result.cost)).collect();
        all.sort_by(f64::total_cmp);
        // For an even number of rounds, the mean of the two in the middle.
        (all[(all.len() - 1) / 2] + all[all.len() / 2]) / 2.0
    }

    pub fn print(&self, others: &[&str], memory_mb: u64) {
        println!("\nmedians of {OURS}, relative to those of others");
        println!("{:<6} {:>5}  {:<22} {:>24} {:>24}", "", "tasks", "", "CPU per row", "rows/s");
        let is_small = memory_mb <= MEMORY_MB_MAX;
        let mut all_met = is_small;
        for workload in [Workload::Write, Workload::Scan] {
            for tasks in [1, 2] {
                for &other in others {
                    let medians = |quantity: fn(&Cost) -> f64| {
                        [OURS, other].map(|name| self.median(workload, tasks, name, quantity))
                    };
                    let [ours, theirs] = medians(|cost| cost.cpu_s);
                    let (cpu, is_cpu_met) = (ours / theirs, ours <= theirs * CPU_RATIO_MAX);
                    // The number of rows is the same, so half of the time is twice the throughput.
                    let [ours, theirs] = medians(|cost| cost.seconds);
                    let (rows, is_rows_met) = (theirs / ours, theirs >= ours * ROWS_RATIO_MIN);
                    all_met &= is_cpu_met && is_rows_met;
                    let cpu = format!("{cpu:.2} {}", verdict(is_cpu_met));
                    let rows = format!("{rows:.2} {}", verdict(is_rows_met));
                    println!("{:<6} {tasks:>5}  {other:<22} {cpu:>24} {rows:>24}", workload.name());
                }
            }
        }
        println!("peak memory: {memory_mb} MB {}", verdict(is_small));
        println!(
            "targets: CPU per row at most {CPU_RATIO_MAX:.2}, rows/s at least {ROWS_RATIO_MIN:.2}, memory at most \
             {MEMORY_MB_MAX} MB: {}",
            if all_met { "all met" } else { "not all met" }
        );
    }
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "ok" } else { "MISSED" }
}
