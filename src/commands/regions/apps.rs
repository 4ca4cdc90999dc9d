//! The names of a store's apps, and the partitions of apps with a fanout.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use attribution::facts::event::{EventTime, Pid};
use attribution::rules::policy::Policy;
use config::Config;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::apps::record::App;
use store::layout::key::{Key, RowKey};

use crate::counted::counted;

pub struct Apps<'a> {
    apps: BTreeMap<Pid, App>,
    policy: &'a Policy,
    partitions: u16,
}

impl<'a> Apps<'a> {
    pub fn new(config: &'a Config, apps: BTreeMap<Pid, App>) -> Self {
        Self { apps, policy: &config.policy, partitions: config.store.partitions }
    }

    fn spread(&self) -> impl Iterator<Item = (&Pid, &App)> {
        self.apps.iter().filter(|(_, app)| app.fanout_bits_max > 0)
    }

    pub fn write_spread(&self, out: &mut String) {
        for (pid, app) in self.spread() {
            let partitions = app.partitions(self.partitions).map(|partition| partition.to_string());
            let _ = writeln!(
                out,
                "{} is spread over {}; its rows are in {}",
                self.name(*pid),
                counted(1 << app.fanout_bits, "partition"),
                partitions.collect::<Vec<_>>().join(", ")
            );
        }
    }

    pub fn spread_json(&self) -> Vec<Value> {
        let app = |(pid, app): (&Pid, &App)| {
            let partitions: Vec<_> = app.partitions(self.partitions).collect();
            json!({"app": self.name(*pid), "fanout": 1 << app.fanout_bits, "partitions": partitions})
        };
        self.spread().map(app).collect()
    }

    /// Returns partition, app and time of a region's first key. App and time are null unless the region begins within
    /// an app.
    pub fn start_json(&self, start: &Key) -> [Value; 3] {
        let start = RowKey::decode(start);
        let in_app = start.filter(|start| start.event_time > EventTime::default());
        [
            json!(start.map(|start| start.partition)),
            json!(in_app.map(|start| self.name(start.pid))),
            json!(in_app.map(|start| time(start.event_time))),
        ]
    }

    pub fn start(&self, start: &Key) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_whose_fanout_was_lowered_is_spread_over_one_partition() {
        let config = config::parse("[[apps]]\npid = 1\nkey = \"app-x\"\n").unwrap();
        let check = |fanout_bits: u8, expected: &str| {
            let mut app = App::new(0);
            app.set_fanout_bits(1);
            app.set_fanout_bits(fanout_bits);
            let mut shown = String::new();
            Apps::new(&config, BTreeMap::from([(Pid(1), app)])).write_spread(&mut shown);
            assert!(shown.starts_with(expected), "{shown}");
        };
        check(0, "app-x is spread over 1 partition; its rows are in ");
        check(1, "app-x is spread over 2 partitions; its rows are in ");
    }
}
