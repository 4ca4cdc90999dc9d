//! The regions of a store in HBase: the cluster's own, which it moves and splits itself.

use std::fmt::Write as _;

use config::Config;
use serde_json::{Value, json};
use store::hbase::{ClusterRegion, RegionLoad, Shared};
use store::layout::region::skew;

use super::{Apps, SKEWS, human_bytes};

pub fn look((config, hbase): (&Config, &config::HBase), as_json: bool) -> anyhow::Result<String> {
    let store = Shared::open(&config.store, hbase)?;
    let apps = Apps::of(config, store.reader().apps()?);
    let view = View { regions: store.regions()?, apps };
    Ok(if as_json { format!("{}\n", view.json()) } else { view.text() })
}

struct View<'a> {
    regions: Vec<ClusterRegion>,
    apps: Apps<'a>,
}

impl View<'_> {
    fn text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{:>6} {:>12} {:>12} {:>12}  {:28} begins with",
            "region", "bytes", "writes", "reads", "server"
        );
        for (place, region) in self.regions.iter().enumerate() {
            let shown =
                |of: fn(&RegionLoad) -> String| region.load.as_ref().map_or("-".to_owned(), of);
            let _ = writeln!(
                out,
                "{:>6} {:>12} {:>12} {:>12}  {:28} {}",
                place + 1,
                shown(|load| human_bytes(load.bytes)),
                shown(|load| load.writes.to_string()),
                shown(|load| load.reads.to_string()),
                region.server.as_deref().unwrap_or("-"),
                self.apps.start(&region.start)
            );
        }
        let [bytes, written, read] = self.skews();
        let _ = writeln!(
            out,
            "largest region against the mean of {}: bytes {bytes:.1}, written {written:.1}, read {read:.1}",
            self.regions.len()
        );
        self.apps.tell_spread(&mut out);
        out
    }

    fn json(&self) -> Value {
        let regions: Vec<_> = self.regions.iter().map(|region| self.region(region)).collect();
        let skews = SKEWS.iter().zip(self.skews()).map(|(of, skew)| (of.to_string(), json!(skew)));
        json!({
            "regions": regions,
            "skew": Value::Object(skews.collect()),
            "spread": self.apps.spread_json(),
        })
    }

    fn region(&self, region: &ClusterRegion) -> Value {
        let [partition, app, time] = self.apps.place(&region.start);
        json!({
            "partition": partition,
            "app": app,
            "time": time,
            "server": region.server,
            "bytes": region.load.map(|load| load.bytes),
            "write_requests": region.load.map(|load| load.writes),
            "read_requests": region.load.map(|load| load.reads),
        })
    }

    /// By bytes and by requests; 1 is even.
    fn skews(&self) -> [f64; 3] {
        let loads = || self.regions.iter().filter_map(|region| region.load.as_ref());
        let skew = |of: fn(&RegionLoad) -> u64| skew(loads().map(|load| of(load) as f64));
        [skew(|load| load.bytes), skew(|load| load.writes), skew(|load| load.reads)]
    }
}
