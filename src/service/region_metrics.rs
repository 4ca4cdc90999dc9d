//! Metrics of the regions: their number, size, load and skew. The number of series does not grow with the store.

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

/// A metric of regions, and the label value of its skew.
pub struct Metric {
    name: &'static str,
    by: &'static str,
}

pub fn describe() {
    describe_gauge!(REGIONS, "Regions of the table of rows.");
    describe_gauge!(ROWS.name, "Rows of a region: the largest, and the mean of all.");
    describe_gauge!(
        BYTES.name,
        "Bytes of keys and values of a region, before compression: the largest, and the mean of all; in HBase as \
         reported by its servers, in whole MiB."
    );
    describe_gauge!(
        WRITTEN.name,
        "Rows written to a region per second, averaged over about a minute."
    );
    describe_gauge!(READ.name, "Rows read from a region per second, averaged over about a minute.");
    describe_gauge!(SKEW, "The largest region divided by the mean of all; 1 is even.");
}

pub fn observe(regions: &Regions) {
    let now = EventTime::from_millis(Timestamp::now().as_millisecond()).unwrap_or_default();
    count(regions.iter().len());
    let values = |of: fn(&Region, EventTime) -> f64| -> Vec<f64> {
        regions.iter().map(|region| of(region, now)).collect()
    };
    set(&ROWS, &values(|region, _| region.size.rows as f64));
    set(&BYTES, &values(|region, _| region.size.bytes as f64));
    set(&WRITTEN, &values(|region, now| region.writes.per_second(now)));
    set(&READ, &values(|region, now| region.reads.per_second(now)));
}

/// Sets the number of regions.
pub fn count(regions: usize) {
    gauge!(REGIONS).set(regions as f64);
}

/// Sets the gauges of a metric from its value in each region: the largest, the mean, and the skew.
pub fn set(metric: &Metric, values: &[f64]) {
    let largest = values.iter().copied().fold(0.0, f64::max);
    let sum: f64 = values.iter().sum();
    gauge!(metric.name, "of" => "largest").set(largest);
    gauge!(metric.name, "of" => "mean").set(sum / values.len().max(1) as f64);
    gauge!(SKEW, "by" => metric.by).set(skew(values.iter().copied()));
}
