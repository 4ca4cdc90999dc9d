//! The regions of a store in HBase. HBase itself moves and splits them.

use config::{Config, HBase};
use indicatif::HumanBytes;
use serde_json::json;
use store::hbase::{ClusterRegion, RegionLoad, Shared};
use store::layout::region::skew;

use super::apps::Apps;
use super::{RegionView, View};

pub fn view<'a>(config: &'a Config, hbase: &HBase) -> anyhow::Result<View<'a>> {
    let store = Shared::open(&config.store, hbase)?;
    let regions = store.regions()?;
    let loads = || regions.iter().filter_map(|region| region.load.as_ref());
    let skew = |of: fn(&RegionLoad) -> u64| skew(loads().map(|load| of(load) as f64));
    Ok(View {
        apps: Apps::new(config, store.reader().apps()?),
        columns: &[("bytes", 12), ("writes", 12), ("reads", 12), ("server", 28)],
        skews: [skew(|load| load.bytes), skew(|load| load.writes), skew(|load| load.reads)],
        regions: regions.iter().map(region_view).collect(),
    })
}

fn region_view(region: &ClusterRegion) -> RegionView {
    let load = region.load.as_ref();
    let cell = |of: fn(&RegionLoad) -> String| load.map_or("-".to_owned(), of);
    RegionView {
        start: region.start,
        cells: vec![
            cell(|load| HumanBytes(load.bytes).to_string()),
            cell(|load| load.writes.to_string()),
            cell(|load| load.reads.to_string()),
            region.server.clone().unwrap_or("-".to_owned()),
        ],
        json: json!({
            "server": region.server,
            "bytes": load.map(|load| load.bytes),
            "write_requests": load.map(|load| load.writes),
            "read_requests": load.map(|load| load.reads),
        }),
    }
}
