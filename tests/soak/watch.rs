//! Samples the resources of the process every few seconds.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::flat::{Tolerance, Trend};
use testbed::adtrail::{Adtrail, sum};
use testbed::exports::check_counters;

const MIB: f64 = 1024.0 * 1024.0;

/// A figure of every sample, in the order of [`FIGURES`].
pub type Sample = [f64; FIGURES.len()];

pub struct Figure {
    pub name: &'static str,
    /// Allowed growth in the second half of a run; `None` is not judged.
    pub tolerance: Option<Tolerance>,
}

const fn figure(name: &'static str, fraction: f64, absolute: f64) -> Figure {
    Figure { name, tolerance: Some(Tolerance { fraction, absolute }) }
}

/// Figures of a sample. They are judged by the median slope, so fluctuation by downloads and compactions does not
/// count.
pub const FIGURES: [Figure; 7] = [
    figure("RSS MiB", 0.1, 8.0),
    figure("file descriptors", 0.1, 8.0),
    figure("threads", 0.0, 3.0),
    figure("disk MiB", 0.1, 32.0),
    figure("facts on disk MiB", 0.1, 16.0),
    figure("rows", 0.1, 1_000.0),
    Figure { name: "lag", tolerance: None },
];

pub struct Watch<'a> {
    pub adtrail: &'a Adtrail,
    pub store: PathBuf,
    pub every: Duration,
}

impl Watch<'_> {
    /// Takes and prints samples until `is_over`.
    pub fn samples(&self, is_over: impl Fn() -> bool) -> Vec<Sample> {
        let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        println!("{:>6}  {}", "s", names.join("  "));
        let (started, mut samples) = (Instant::now(), Vec::new());
        while !is_over() {
            let sample = self.sample();
            let shown: Vec<String> = FIGURES
                .iter()
                .zip(sample)
                .map(|(figure, value)| format!("{value:>width$.0}", width = figure.name.len()))
                .collect();
            println!("{:>6.0}  {}", started.elapsed().as_secs_f64(), shown.join("  "));
            samples.push(sample);
            let due = self.every
                * u32::try_from(samples.len()).expect("the number of samples fits into u32");
            while started.elapsed() < due && !is_over() {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        samples
    }

    fn sample(&self) -> Sample {
        let scrape = self.adtrail.metrics();
        check_counters(&scrape);
        let of = |name: &str, label: &str| sum(&scrape, name, label).unwrap_or(f64::NAN);
        let facts = ["touches", "activations", "effects"]
            .map(|table| of("adtrail_store_disk_bytes", &format!("table=\"{table}\"")));
        [
            self.adtrail.status("VmRSS:") as f64 / 1024.0,
            descriptors(self.adtrail.pid()),
            self.adtrail.status("Threads:") as f64,
            bytes(&self.store) as f64 / MIB,
            facts.iter().sum::<f64>() / MIB,
            of("adtrail_store_rows", ""),
            of("adtrail_ingest_lag_messages", ""),
        ]
    }
}

fn descriptors(pid: u32) -> f64 {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs").count() as f64
}

/// Returns the size of all files of a folder. A file that is deleted meanwhile does not count.
fn bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("the store's folder can be read").flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum()
}

/// Returns the trend of each figure.
pub fn trends(samples: &[Sample]) -> Vec<(&'static Figure, Trend)> {
    let of = |at: usize| Trend::of(&samples.iter().map(|sample| sample[at]).collect::<Vec<_>>());
    FIGURES.iter().enumerate().map(|(at, figure)| (figure, of(at))).collect()
}
