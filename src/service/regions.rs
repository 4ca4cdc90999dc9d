//! A thread that periodically reads the region loads of HBase, for metrics.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use anyhow::Context;
use ingest::Shutdown;
use store::hbase::{ClusterRegion, RegionLoad, Shared};
use store::layout::key::Key;

use super::region_metrics as metrics;
use super::region_metrics::{BYTES, Metric, READ, WRITTEN};

/// Starts the thread, which reads loads until shutdown is requested.
pub fn start(store: Arc<Shared>, interval: Duration, shutdown: &Shutdown) -> anyhow::Result<()> {
    metrics::describe();
    let shutdown = shutdown.clone();
    let poll_loads = move || {
        let mut loads = Loads::default();
        while !shutdown.is_requested() {
            match store.regions() {
                Ok(regions) => observe(&regions, &mut loads),
                // Logged at debug level only, because the heartbeat already reports that HBase does not respond.
                Err(error) => tracing::debug!(%error, "failed to read region loads"),
            }
            shutdown.sleep(interval);
        }
    };
    let thread = Builder::new().name("hbase-regions".into()).spawn(poll_loads);
    thread.context("the thread that reads region loads cannot be started")?;
    Ok(())
}

fn observe(regions: &[ClusterRegion], loads: &mut Loads) {
    metrics::count(regions.len());
    let rates =
        loads.update(Instant::now(), regions.iter().map(|region| (region.start, region.load)));
    set(&BYTES, loads.0.values().map(|(_, load)| load.bytes as f64));
    set(&WRITTEN, rates.iter().map(|rate| rate.writes));
    set(&READ, rates.iter().map(|rate| rate.reads));
}

/// Sets a metric, or leaves its last value if no server reports one.
fn set(metric: &Metric, values: impl Iterator<Item = f64>) {
    let values: Vec<_> = values.collect();
    if !values.is_empty() {
        metrics::set(metric, &values);
    }
}

/// The last reported load of each region, keyed by the region's start key.
#[derive(Default)]
struct Loads(HashMap<Key, (Instant, RegionLoad)>);

/// Rates per second since the previous report.
#[derive(Debug, PartialEq)]
struct Rates {
    writes: f64,
    reads: f64,
}

impl Loads {
    /// Returns the rates of the regions that were reported both now and before.
    fn update(
        &mut self,
        now: Instant,
        loads: impl Iterator<Item = (Key, Option<RegionLoad>)>,
    ) -> Vec<Rates> {
        let mut before = std::mem::take(&mut self.0);
        let mut rates = Vec::new();
        for (start, load) in loads {
            let last = before.remove(&start);
            if let (Some((reported_at, last)), Some(load)) = (last, load) {
                let seconds = now.duration_since(reported_at).as_secs_f64().max(f64::EPSILON);
                // Counters start at 0 when a server restarts or the region moves to another server.
                let rate =
                    |now: u64, before| now.checked_sub(before).unwrap_or(now) as f64 / seconds;
                let (writes, reads) =
                    (rate(load.writes, last.writes), rate(load.reads, last.reads));
                rates.push(Rates { writes, reads });
            }
            if let Some(known) = load.map(|load| (now, load)).or(last) {
                self.0.insert(start, known);
            }
        }
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the write rates computed from a write counter that is reported every ten seconds.
    #[track_caller]
    fn check(reports: &[Option<u64>], expected: &[Option<f64>]) {
        let (started, mut loads) = (Instant::now(), Loads::default());
        let found: Vec<_> = (0..)
            .zip(reports)
            .map(|(tick, writes)| {
                let at = started + Duration::from_secs(10) * tick;
                let load = writes.map(|writes| RegionLoad { bytes: 0, writes, reads: 0 });
                let rates =
                    loads.update(at, [([0; store::layout::key::KEY_BYTES], load)].into_iter());
                rates.first().map(|rate| rate.writes)
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn rates_cover_the_time_since_the_previous_report() {
        check(&[Some(100), Some(150), Some(150)], &[None, Some(5.0), Some(0.0)]);
        check(&[None, Some(1_000), None, Some(1_400)], &[None, None, None, Some(20.0)]);
        // The counter starts again: the region has moved to another server.
        check(&[Some(100), Some(70)], &[None, Some(7.0)]);
    }
}
