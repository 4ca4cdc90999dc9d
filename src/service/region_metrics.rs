//! Metrics of the regions: their number, size and skew. The number of labels does not grow with the store.

use attribution::facts::event::EventTime;
use jiff::Timestamp;
use metrics::{describe_gauge, gauge};
use store::layout::region::{Region, Regions, skew};

const REGIONS: &str = "adtrail_store_regions";
const ROWS: Metric = Metric { name: "adtrail_store_region_rows", by: "rows" };
pub const BYTES: Metric = Metric { name: "adtrail_store_region_bytes", by: "bytes" };
pub const WRITTEN: Metric =
    Metric { name: "adtrail_store_region_rows_written_per_second", by: "written" };
pub const READ: Metric = Metric { name: "adtrail_store_region_rows_read_per_second", by: "read" };
const SKEW: &str = "adtrail_store_region_skew";

/// A figure of regions, and the label of the skew by it.
pub struct Metric {
    name: &'static str,
    by: &'static str,
}

pub fn describe() {
    describe_gauge!(REGIONS, "Regions of the table of rows.");
    describe_gauge!(ROWS.name, "Rows of a region: of the largest, and of all in the mean.");
    describe_gauge!(
        BYTES.name,
        "Bytes of a region: of keys and values, before compression; in hbase what a server says, in whole MiB."
    );
    describe_gauge!(WRITTEN.name, "Rows written to a region, as a mean of about a minute.");
    describe_gauge!(READ.name, "Rows read of a region, as a mean of about a minute.");
    describe_gauge!(SKEW, "The largest region against the mean of all: 1 is even.");
}

pub fn observe(regions: &Regions) {
    let now = EventTime::from_millis(Timestamp::now().as_millisecond()).unwrap_or_default();
    count(regions.iter().len());
    let figures = |of: fn(&Region, EventTime) -> f64| -> Vec<f64> {
        regions.iter().map(|region| of(region, now)).collect()
    };
    show(&ROWS, &figures(|region, _| region.figures.rows as f64));
    show(&BYTES, &figures(|region, _| region.figures.bytes as f64));
    show(&WRITTEN, &figures(|region, now| region.writes.per_second(now)));
    show(&READ, &figures(|region, now| region.reads.per_second(now)));
}

/// Sets the number of regions.
pub fn count(regions: usize) {
    gauge!(REGIONS).set(regions as f64);
}

/// Shows the largest of the regions' figures, their mean, and the skew.
pub fn show(metric: &Metric, figures: &[f64]) {
    let largest = figures.iter().copied().fold(0.0, f64::max);
    let sum: f64 = figures.iter().sum();
    gauge!(metric.name, "of" => "largest").set(largest);
    gauge!(metric.name, "of" => "mean").set(sum / figures.len().max(1) as f64);
    gauge!(SKEW, "by" => metric.by).set(skew(figures.iter().copied()));
}
