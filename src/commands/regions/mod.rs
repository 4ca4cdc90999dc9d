//! `adtrail regions`: the ranges that the rows are in, their sizes and how busy they are.

mod cluster;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context;
use attribution::facts::event::{EventTime, Pid};
use attribution::rules::policy::Policy;
use config::Config;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::apps::spread::App;
use store::layout::key::{Key, RowKey};
use store::layout::region::{Region, Regions as Table};

use super::{load, print};
use crate::cli::Regions;

/// Empties a terminal and goes to its top.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub fn run(options: &Regions) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    loop {
        let mut shown = look(&config, options.json)?;
        if options.watch.is_some() && io::stdout().is_terminal() {
            shown.insert_str(0, CLEAR);
        }
        print(shown.as_bytes())?;
        let Some(seconds) = options.watch else { return Ok(()) };
        sleep(Duration::from_secs(seconds));
    }
}

fn look(config: &Config, as_json: bool) -> anyhow::Result<String> {
    if let Some(hbase) = &config.store.hbase {
        return cluster::look((config, hbase), as_json);
    }
    let reader = store::open_for_reading(&config.store, &config.policy)?;
    let now = Timestamp::now().as_millisecond();
    let view = View {
        // An embedded store has its own.
        regions: reader.regions().context("the store counts no regions")?,
        apps: Apps::of(config, reader.apps()?),
        now: EventTime::from_millis(now).unwrap_or_default(),
    };
    Ok(if as_json { format!("{}\n", view.json()) } else { view.text() })
}

struct View<'a> {
    regions: Table,
    apps: Apps<'a>,
    now: EventTime,
}

/// The apps of a store, by name, and where their rows are.
struct Apps<'a> {
    apps: BTreeMap<Pid, App>,
    policy: &'a Policy,
    partitions: u16,
}

/// What a skew is of.
const SKEWS: [&str; 3] = ["bytes", "written", "read"];

impl View<'_> {
    fn text(&self) -> String {
        let mut out = String::new();
        let heads = ["region", "rows", "bytes", "written/s", "read/s"];
        let [region, rows, bytes, written, read] = heads;
        let _ = writeln!(
            out,
            "{region:>6} {rows:>12} {bytes:>12} {written:>10} {read:>10}  begins with"
        );
        for (place, region) in self.regions.iter().enumerate() {
            let _ = writeln!(
                out,
                "{:>6} {:>12} {:>12} {:>10.1} {:>10.1}  {}",
                place + 1,
                region.figures.rows,
                human_bytes(region.figures.bytes),
                region.writes.per_second(self.now),
                region.reads.per_second(self.now),
                self.apps.start(&region.start)
            );
        }
        let [bytes, written, read] = self.skews();
        let _ = writeln!(
            out,
            "largest region against the mean of {}: bytes {bytes:.1}, written {written:.1}, read {read:.1}",
            self.regions.iter().len()
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

    fn region(&self, region: &Region) -> Value {
        let [partition, app, time] = self.apps.place(&region.start);
        json!({
            "partition": partition,
            "app": app,
            "time": time,
            "rows": region.figures.rows,
            "bytes": region.figures.bytes,
            "written": region.writes.total,
            "written_per_second": region.writes.per_second(self.now),
            "read": region.reads.total,
            "read_per_second": region.reads.per_second(self.now),
        })
    }

    /// By bytes, rows written and rows read a second.
    fn skews(&self) -> [f64; 3] {
        [
            self.regions.skew(|region| region.figures.bytes as f64),
            self.regions.skew(|region| region.writes.per_second(self.now)),
            self.regions.skew(|region| region.reads.per_second(self.now)),
        ]
    }
}

impl<'a> Apps<'a> {
    fn of(config: &'a Config, apps: BTreeMap<Pid, App>) -> Self {
        Self { apps, policy: &config.policy, partitions: config.store.partitions }
    }

    fn spread(&self) -> impl Iterator<Item = (&Pid, &App)> {
        self.apps.iter().filter(|(_, app)| app.fan_bits_max > 0)
    }

    fn tell_spread(&self, out: &mut String) {
        for (pid, app) in self.spread() {
            let parts: Vec<_> =
                app.partitions(self.partitions).map(|part| part.to_string()).collect();
            let _ = writeln!(
                out,
                "{} is spread over {} partitions; its rows are in {}",
                self.name(*pid),
                1 << app.fanout_bits,
                parts.join(", ")
            );
        }
    }

    fn spread_json(&self) -> Vec<Value> {
        let one = |(pid, app): (&Pid, &App)| {
            let partitions: Vec<_> = app.partitions(self.partitions).collect();
            json!({"app": self.name(*pid), "fanout": 1 << app.fanout_bits, "partitions": partitions})
        };
        self.spread().map(one).collect()
    }

    /// What a region begins with: partition, app and time, the last two where it begins within an app.
    fn place(&self, start: &Key) -> [Value; 3] {
        let start = RowKey::decode(start);
        let within = start.filter(|start| start.event_time > EventTime::default());
        [
            json!(start.map(|start| start.partition)),
            json!(within.map(|start| self.name(start.pid))),
            json!(within.map(|start| time(start.event_time))),
        ]
    }

    fn start(&self, start: &Key) -> String {
        let Some(start) = RowKey::decode(start) else { return String::new() };
        if start.event_time == EventTime::default() && start.pid == Pid(0) {
            return format!("partition {}", start.partition);
        }
        let (app, time) = (self.name(start.pid), time(start.event_time));
        format!("partition {}, {app}, {time}", start.partition)
    }

    fn name(&self, Pid(pid): Pid) -> String {
        self.policy.app(Pid(pid)).map_or(format!("pid {pid}"), |app| app.key.to_string())
    }
}

fn time(time: EventTime) -> String {
    let millis = i64::try_from(time.millis()).unwrap_or_default();
    Timestamp::from_millisecond(millis).unwrap_or_default().to_string()
}

fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut shown = bytes as f64;
    let mut unit = 0;
    while shown >= 1024.0 && unit + 1 < UNITS.len() {
        shown /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{shown:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::human_bytes;

    #[test]
    fn bytes_are_shown_in_units() {
        let shown = [0, 1023, 1024, 1536, 1 << 30, u64::MAX].map(human_bytes);
        let expected = ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 GiB", "16777216.0 TiB"];
        assert_eq!(shown, expected);
    }
}
