//! The regions of HBase as operators see them.

use serde_json::Value;
use testbed::site::Site;
use testbed::{eventually, traffic};

use super::{WORKLOAD, await_all_read, output_of, remove, site, with_client};

/// Runs `adtrail regions --json`.
fn regions_json(site: &Site) -> Value {
    serde_json::from_str(&output_of(site, &["regions", "--json"], 0, &[])).expect("valid JSON")
}

fn regions(shown: &Value) -> &[Value] {
    shown["regions"].as_array().expect("it is an array")
}

#[track_caller]
fn check_one_region_a_partition(site: &Site) {
    let shown = regions_json(site);
    let partitions: Vec<_> =
        regions(&shown).iter().map(|region| region["partition"].as_u64()).collect();
    assert_eq!(partitions, (0..8).map(Some).collect::<Vec<_>>());
    assert!(regions(&shown).iter().all(|region| region["server"].is_string()), "{shown}");
    let shown = output_of(site, &["regions"], 0, &[]);
    assert!(shown.contains("largest region against the mean of 8"), "{shown}");
}

/// Returns the ratio of the largest region to the mean, by a figure of the output.
fn skew(shown: &Value, figure: &str) -> f64 {
    let figures = regions(shown).iter().filter_map(|region| region[figure].as_f64());
    let figures: Vec<f64> = figures.collect();
    let (largest, sum) = (figures.iter().copied().fold(0.0, f64::max), figures.iter().sum::<f64>());
    largest * figures.len() as f64 / sum
}

#[test]
fn regions_their_skew_and_a_split_are_shown() {
    let site = site("hbase-split");
    check_one_region_a_partition(&site);
    let exporter = site.start_role("export");
    exporter.await_metric("adtrail_store_regions", "", |count| count == 8.0);
    traffic::produce(&site.topics, WORKLOAD.records());
    let worker = site.start_role("attribute");
    await_all_read(&site);
    // Servers report their counts with a delay.
    let before = eventually("the writes are counted", || {
        let shown = regions_json(&site);
        let written = |region: &Value| region["write_requests"].as_u64().unwrap_or(0);
        let all: u64 = regions(&shown).iter().map(written).sum();
        if all > 300 { Ok(shown) } else { Err(format!("{shown}")) }
    });
    let written_skew = before["skew"]["written"].as_f64().expect("it is a number");
    // Three apps are in three of eight partitions.
    assert!(written_skew > 8.0 / 3.0 - 0.1, "{before}");
    assert!((written_skew - skew(&before, "write_requests")).abs() < 0.01, "{before}");
    // Split the largest region.
    let largest = regions(&before).iter().max_by_key(|region| region["write_requests"].as_u64());
    let partition =
        largest.expect("there is a region")["partition"].as_u64().expect("it is a number") as u16;
    let row = middle(partition);
    with_client(async |client| {
        let admin = client.admin();
        let regions = admin.regions("hbase-split_events").await.expect("the regions are listed");
        let region = &regions[usize::from(partition)];
        admin.split(region, row).await.expect("the region is split");
    });
    let after = eventually("the split is shown", || {
        let shown = regions_json(&site);
        if regions(&shown).len() == 9 { Ok(shown) } else { Err(format!("{shown}")) }
    });
    let half = &regions(&after)[usize::from(partition) + 1];
    assert_eq!(half["partition"].as_u64(), Some(u64::from(partition)), "{after}");
    assert_eq!(half["app"].as_str(), Some("app-y"), "{after}");
    assert!(half["time"].as_str().is_some_and(|time| time.starts_with("2025-03-1")), "{after}");
    // Metrics show the same.
    exporter.await_metric("adtrail_store_regions", "", |count| count == 9.0);
    let largest = "of=\"largest\"";
    exporter.await_metric("adtrail_store_region_rows_read_per_second", largest, |_| true);
    for by in ["by=\"bytes\"", "by=\"written\""] {
        exporter.await_metric("adtrail_store_region_skew", by, |skew| skew >= 1.0);
    }
    // Further events are written, so there is a rate of writes.
    traffic::produce(&site.topics, &traffic::records(57, 2_000));
    let written = "adtrail_store_region_rows_written_per_second";
    exporter.await_metric(written, largest, |rate| rate > 1.0);
    worker.stop();
    remove("hbase-split");
}

/// Returns a row key in the middle of the traffic's time range, of the second app, in this partition.
fn middle(partition: u16) -> Vec<u8> {
    /// 2025-03-15T00:00:00Z, later than most events.
    const TIME_MS: u64 = 1_741_996_800_000;
    let time = &TIME_MS.to_be_bytes()[2..];
    [&partition.to_be_bytes()[..], &2_u32.to_be_bytes(), time].concat()
}
