//! A thread that looks at the cluster's regions of rows now and then, for metrics.

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

/// Looks until the wish to stop.
pub fn start(store: Arc<Shared>, interval: Duration, shutdown: &Shutdown) -> anyhow::Result<()> {
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
            shutdown.sleep(interval);
        }
    };
    let thread = Builder::new().name("hbase-regions".into()).spawn(watch);
    thread.context("no thread for looking at regions")?;
    Ok(())
}

/// What servers had counted, by where each region begins.
struct Looked {
    at: Instant,
    /// `None` of a region of which no server has told anything yet.
    regions: HashMap<Key, Option<Counted>>,
}

/// When it was told.
#[derive(Clone, Copy)]
struct Counted {
    at: Instant,
    load: RegionLoad,
}

fn observe(regions: &[ClusterRegion], before: Option<Looked>) -> Looked {
    let loads = regions.iter().map(|one| (one.start, one.load));
    let now = Looked::new(Instant::now(), loads, before.as_ref());
    metrics::count(regions.len());
    let known = now.regions.values().flatten();
    show(&BYTES, &known.map(|counted| counted.load.bytes as f64).collect::<Vec<_>>());
    if let Some(before) = before {
        show(&WRITTEN, &per_second(&before, &now, |load| load.writes));
        show(&READ, &per_second(&before, &now, |load| load.reads));
    }
    now
}

/// Where no server tells anything, what was told last stays.
fn show(metric: &Metric, figures: &[f64]) {
    if !figures.is_empty() {
        metrics::show(metric, figures);
    }
}

impl Looked {
    /// Of a region whose server does not tell now, what it told last.
    fn new(
        at: Instant,
        loads: impl Iterator<Item = (Key, Option<RegionLoad>)>,
        before: Option<&Self>,
    ) -> Self {
        let told = |(start, load): (Key, Option<RegionLoad>)| {
            let last = || before.and_then(|before| *before.regions.get(&start)?);
            (start, load.map(|load| Counted { at, load }).or_else(last))
        };
        Self { at, regions: loads.map(told).collect() }
    }
}

/// Of each region of which something is told now and was before. One that was not there began with nothing.
fn per_second(before: &Looked, now: &Looked, of: fn(&RegionLoad) -> u64) -> Vec<f64> {
    let rate = |(start, counted): (&Key, &Option<Counted>)| {
        let counted = counted.filter(|counted| counted.at == now.at)?;
        let (at, had) = match before.regions.get(start) {
            Some(had) => (*had)?.told(of),
            None => (before.at, 0),
        };
        let is = of(&counted.load);
        let seconds = now.at.duration_since(at).as_secs_f64().max(f64::EPSILON);
        // A server that was started anew, or has the region since, began with nothing too.
        Some(is.checked_sub(had).unwrap_or(is) as f64 / seconds)
    };
    now.regions.iter().filter_map(rate).collect()
}

impl Counted {
    fn told(&self, of: fn(&RegionLoad) -> u64) -> (Instant, u64) {
        (self.at, of(&self.load))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes that servers tell of the regions that begin there, every ten seconds.
    type Told<'t> = &'t [(u8, Option<u64>)];

    #[track_caller]
    fn check(looks: &[Told<'_>], mut expected: Vec<f64>) {
        let started = Instant::now();
        let mut last: Option<(Looked, Vec<f64>)> = None;
        for (place, told) in looks.iter().enumerate() {
            let loads = told.iter().map(|(start, writes)| {
                let load = writes.map(|writes| RegionLoad { bytes: 0, writes, reads: 0 });
                ([*start; store::layout::key::KEY_BYTES], load)
            });
            let at = started + Duration::from_secs(10) * u32::try_from(place).unwrap();
            let before = last.map(|(looked, _)| looked);
            let now = Looked::new(at, loads, before.as_ref());
            let rates = before.map(|before| per_second(&before, &now, |load| load.writes));
            last = Some((now, rates.unwrap_or_default()));
        }
        let (_, mut found) = last.unwrap();
        found.sort_by(f64::total_cmp);
        expected.sort_by(f64::total_cmp);
        assert_eq!(found, expected);
    }

    #[test]
    fn rates_are_of_what_was_counted_since() {
        check(
            &[&[(0, Some(100)), (1, Some(50))], &[(0, Some(150)), (1, Some(50))]],
            vec![5.0, 0.0],
        );
        // A server that was started anew, or has the region since, began with nothing.
        check(&[&[(0, Some(100))], &[(0, Some(70))]], vec![7.0]);
        // A split: the first half has its counts from there on, and the second too.
        check(&[&[(0, Some(100))], &[(0, Some(10)), (1, Some(20))]], vec![1.0, 2.0]);
        check(&[&[], &[]], Vec::new());
    }

    #[test]
    fn a_server_that_does_not_tell_now_and_then_is_no_new_one() {
        let [some, more] = [1_000_000, 1_000_400].map(|writes| [(0, Some(writes)), (1, Some(0))]);
        let silent = [(0, None), (1, Some(0))];
        check(&[&some, &silent], vec![0.0]);
        check(&[&some, &silent, &more], vec![20.0, 0.0]);
        // Of what it had counted before it first told nothing is known.
        check(&[&silent, &some], vec![0.0]);
        check(&[&silent, &some, &more], vec![40.0, 0.0]);
    }
}
