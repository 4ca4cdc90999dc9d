//! The regions of an embedded store. adtrail itself counts and splits them.

use anyhow::Context;
use attribution::facts::event::EventTime;
use config::Config;
use indicatif::HumanBytes;
use jiff::Timestamp;
use serde_json::json;
use store::layout::region::Region;

use super::apps::Apps;
use super::{RegionView, View};

pub fn view(config: &Config) -> anyhow::Result<View<'_>> {
    let reader = store::open_for_reading(&config.store, &config.policy)?;
    let now = EventTime::from_millis(Timestamp::now().as_millisecond()).unwrap_or_default();
    let regions = reader.regions().context("the store counts no regions")?;
    Ok(View {
        apps: Apps::new(config, reader.apps()?),
        columns: &[("rows", 12), ("bytes", 12), ("written/s", 10), ("read/s", 10)],
        skews: [
            regions.skew(|region| region.size.bytes as f64),
            regions.skew(|region| region.writes.per_second(now)),
            regions.skew(|region| region.reads.per_second(now)),
        ],
        regions: regions.iter().map(|region| region_view(region, now)).collect(),
    })
}

fn region_view(region: &Region, now: EventTime) -> RegionView {
    let Region { start, size, writes, reads, .. } = region;
    let (written, read) = (writes.per_second(now), reads.per_second(now));
    RegionView {
        start: *start,
        cells: vec![
            size.rows.to_string(),
            HumanBytes(size.bytes).to_string(),
            format!("{written:.1}"),
            format!("{read:.1}"),
        ],
        json: json!({
            "rows": size.rows,
            "bytes": size.bytes,
            "written": writes.total,
            "written_per_second": written,
            "read": reads.total,
            "read_per_second": read,
        }),
    }
}
