//! A thread that looks at the cluster's regions of rows now and then, for metrics.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use anyhow::Context;
use ingest::Shutdown;
use store::hbase::{ClusterRegion, RegionLoad, Shared};
use store::key::Key;

use crate::pipeline::regions::{self as metrics, BYTES, READ, WRITTEN};

/// Every server is asked for it.
const LOOKED_EVERY: Duration = Duration::from_secs(30);

/// Looks until the wish to stop.
pub fn start(store: Arc<Shared>, shutdown: &Shutdown) -> anyhow::Result<()> {
    metrics::describe();
    let shutdown = shutdown.clone();
    let watch = move || {
        let mut before = None;
        while !shutdown.is_requested() {
            match store.regions() {
                Ok(regions) => before = Some(observe(&regions, before)),
                // That HBase does not answer is told elsewhere.
                Err(error) => tracing::debug!(%error, "the regions can not be looked at"),
            }
            shutdown.sleep(LOOKED_EVERY);
        }
    };
    let thread = Builder::new().name("hbase-regions".into()).spawn(watch);
    thread.context("no thread for looking at regions")?;
    Ok(())
}

/// What servers had counted, by where each region begins.
struct Looked {
    at: Instant,
    loads: HashMap<Key, RegionLoad>,
}

fn observe(regions: &[ClusterRegion], before: Option<Looked>) -> Looked {
    let now = Looked {
        at: Instant::now(),
        loads: regions.iter().filter_map(|one| Some((one.start, one.load?))).collect(),
    };
    metrics::count(regions.len());
    let bytes: Vec<f64> = now.loads.values().map(|load| load.bytes as f64).collect();
    metrics::show(&BYTES, &bytes);
    if let Some(before) = before {
        metrics::show(&WRITTEN, &per_second(&before, &now, |load| load.writes));
        metrics::show(&READ, &per_second(&before, &now, |load| load.reads));
    }
    now
}

/// Of each region that is there. One that was moved or split is counted from there on.
fn per_second(before: &Looked, now: &Looked, of: fn(&RegionLoad) -> u64) -> Vec<f64> {
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(f64::EPSILON);
    let rate = |(start, load): (&Key, &RegionLoad)| {
        let since = before.loads.get(start).and_then(|before| of(load).checked_sub(of(before)));
        since.unwrap_or(of(load)) as f64 / seconds
    };
    now.loads.iter().map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: &[(u8, u64)], now: &[(u8, u64)], mut expected: Vec<f64>) {
        let started = Instant::now();
        let looked = |seconds, writes: &[(u8, u64)]| Looked {
            at: started + Duration::from_secs(seconds),
            loads: writes
                .iter()
                .map(|(start, writes)| {
                    let load = RegionLoad { bytes: 0, writes: *writes, reads: 0 };
                    ([*start; store::key::KEY_BYTES], load)
                })
                .collect(),
        };
        let mut found = per_second(&looked(0, before), &looked(10, now), |load| load.writes);
        found.sort_by(f64::total_cmp);
        expected.sort_by(f64::total_cmp);
        assert_eq!(found, expected);
    }

    #[test]
    fn rates_are_of_what_was_counted_since() {
        check(&[(0, 100), (1, 50)], &[(0, 150), (1, 50)], vec![5.0, 0.0]);
        // A server that was started anew, or has the region since, began with nothing.
        check(&[(0, 100)], &[(0, 70)], vec![7.0]);
        // A split: the first half has its counts from there on, and the second too.
        check(&[(0, 100)], &[(0, 10), (1, 20)], vec![1.0, 2.0]);
        check(&[], &[], Vec::new());
    }
}
