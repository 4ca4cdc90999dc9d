//! Metrics of the regions: how many, how large, and how uneven. Labels are few whatever there is.

use attribution::event::EventTime;
use jiff::Timestamp;
use metrics::{describe_gauge, gauge};
use store::region::{Region, Regions};

const REGIONS: &str = "adtrail_store_regions";
const ROWS: &str = "adtrail_store_region_rows";
const BYTES: &str = "adtrail_store_region_bytes";
const WRITTEN: &str = "adtrail_store_region_rows_written_per_second";
const READ: &str = "adtrail_store_region_rows_read_per_second";
const SKEW: &str = "adtrail_store_region_skew";

pub fn describe() {
    describe_gauge!(REGIONS, "Regions of the table of rows.");
    describe_gauge!(ROWS, "Rows of a region: of the largest, and of all in the mean.");
    describe_gauge!(BYTES, "Bytes of a region's keys and values, before compression.");
    describe_gauge!(WRITTEN, "Rows written to a region, as a mean of about a minute.");
    describe_gauge!(READ, "Rows read of a region, as a mean of about a minute.");
    describe_gauge!(SKEW, "The largest region against the mean of all: 1 is even.");
}

pub fn observe(regions: &Regions) {
    let now = EventTime::from_millis(Timestamp::now().as_millisecond()).unwrap_or_default();
    gauge!(REGIONS).set(regions.iter().len() as f64);
    show(ROWS, "rows", regions, |region| region.figures.rows as f64);
    show(BYTES, "bytes", regions, |region| region.figures.bytes as f64);
    show(WRITTEN, "written", regions, |region| region.writes.per_second(now));
    show(READ, "read", regions, |region| region.reads.per_second(now));
}

fn show(
    name: &'static str,
    by: &'static str,
    regions: &Regions,
    figure: impl Fn(&Region) -> f64 + Copy,
) {
    let largest = regions.iter().map(figure).fold(0.0, f64::max);
    let sum: f64 = regions.iter().map(figure).sum();
    gauge!(name, "of" => "largest").set(largest);
    gauge!(name, "of" => "mean").set(sum / regions.iter().len().max(1) as f64);
    gauge!(SKEW, "by" => by).set(regions.skew(figure));
}
