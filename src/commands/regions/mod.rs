//! `adtrail regions`: the ranges of row keys, with their sizes and load.

mod apps;
mod cluster;
mod embedded;

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};
use store::layout::key::Key;

use super::{load, print};
use crate::cli::Regions;
use apps::Apps;

/// Moves the cursor of a terminal to its top, and clears it.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub fn run(options: &Regions) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    loop {
        let view = match &config.store.hbase {
            Some(hbase) => cluster::view(&config, hbase)?,
            None => embedded::view(&config)?,
        };
        let mut shown = if options.json { format!("{}\n", view.json()) } else { view.text() };
        if options.watch.is_some() && io::stdout().is_terminal() {
            shown.insert_str(0, CLEAR);
        }
        print(shown.as_bytes())?;
        let Some(seconds) = options.watch else { return Ok(()) };
        sleep(Duration::from_secs(seconds));
    }
}

struct View<'a> {
    apps: Apps<'a>,
    /// Names and widths of the columns in text.
    columns: &'static [(&'static str, usize)],
    regions: Vec<RegionView>,
    /// Ratio of the largest region to the mean, by bytes, writes and reads.
    skews: [f64; 3],
}

struct RegionView {
    start: Key,
    /// The text of each column.
    cells: Vec<String>,
    /// The values of the cells and further ones, for scripts.
    json: Value,
}

impl View<'_> {
    fn text(&self) -> String {
        let mut out = format!("{:>6}", "region");
        for (name, width) in self.columns {
            let _ = write!(out, " {name:>width$}");
        }
        out.push_str("  begins with\n");
        for (number, region) in (1..).zip(&self.regions) {
            let _ = write!(out, "{number:>6}");
            for ((_, width), cell) in self.columns.iter().zip(&region.cells) {
                let _ = write!(out, " {cell:>width$}");
            }
            let _ = writeln!(out, "  {}", self.apps.start(&region.start));
        }
        let [bytes, written, read] = self.skews;
        let _ = writeln!(
            out,
            "largest region against the mean of {}: bytes {bytes:.1}, written {written:.1}, read {read:.1}",
            self.regions.len()
        );
        self.apps.write_spread(&mut out);
        out
    }

    fn json(&self) -> Value {
        let region = |region: &RegionView| {
            let mut json = region.json.clone();
            [json["partition"], json["app"], json["time"]] = self.apps.start_json(&region.start);
            json
        };
        let [bytes, written, read] = self.skews;
        json!({
            "regions": self.regions.iter().map(region).collect::<Vec<_>>(),
            "skew": {"bytes": bytes, "written": written, "read": read},
            "spread": self.apps.spread_json(),
        })
    }
}
