//! The results of a run, as a table for `docs/guarantees.md`.

use std::fmt;
use std::time::Duration;

use crate::Observations;
use crate::flat::Trend;
use crate::load::{Counts, Load};
use crate::watch::{Figure, trends};

pub struct Report<'a> {
    pub minutes: u64,
    pub full_rate: f64,
    pub observed: &'a Observations,
    pub load: &'a Load<'a>,
    pub rows_compared: u64,
    pub verified: &'a [(String, u64)],
}

impl Report<'_> {
    /// Returns the names of the figures that grow.
    pub fn growing(&self) -> Vec<&'static str> {
        let is_growing = |(figure, trend): &(&Figure, Trend)| {
            figure.tolerance.is_some_and(|tolerance| !trend.is_flat(tolerance))
        };
        trends(&self.observed.samples)
            .iter()
            .filter(|trend| is_growing(trend))
            .map(|(figure, _)| figure.name)
            .collect()
    }

    /// Returns a quantile of the times until markers were visible.
    fn shown_within(&self, quantile: f64) -> Duration {
        let mut took = self.observed.shown_after.clone();
        took.sort_unstable();
        let rank = (took.len() as f64 * quantile).ceil() as usize;
        took.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |of: fn(&Counts) -> u64| self.load.produced.iter().map(of).sum::<u64>();
        let rate = self.load.all() as f64 / self.observed.lasted.as_secs_f64();
        let days =
            self.load.traffic.step_ms as f64 * 10.0 * 60.0 * self.minutes as f64 / 86_400_000.0;
        let [p50, p99, max] =
            [0.5, 0.99, 1.0].map(|quantile| self.shown_within(quantile).as_millis());
        let verified: Vec<String> =
            self.verified.iter().map(|(check, count)| format!("{check} {count}")).collect();
        writeln!(
            out,
            "\n| soak of {} minutes, {days:.1} days of broker time | |\n|---|---|",
            self.minutes
        )?;
        writeln!(
            out,
            "| load | {rate:.0} records/s; the machine's full rate is {:.0} |",
            self.full_rate
        )?;
        writeln!(out, "| maximum delay of a tick | {} ms |", self.load.delay_max.as_millis())?;
        writeln!(out, "| records | {} |", self.load.all())?;
        writeln!(out, "| events, each accepted once | {} |", all(|counts| counts.facts))?;
        writeln!(out, "| redelivered events | {} |", all(|counts| counts.repeats))?;
        writeln!(
            out,
            "| dead letters, including events that are too late | {} |",
            all(|counts| counts.dead_letters)
        )?;
        writeln!(out, "| empty | {} |", all(|counts| counts.empty))?;
        writeln!(out, "| rows compared with replay, byte for byte | {} |", self.rows_compared)?;
        writeln!(
            out,
            "| downloads meanwhile | {} of {} rows |",
            self.observed.downloaded.files, self.observed.downloaded.rows
        )?;
        writeln!(
            out,
            "| event to visible in CSV, {} times | p50 {p50} ms, p99 {p99} ms, max {max} ms |",
            self.observed.shown_after.len()
        )?;
        writeln!(out, "| `adtrail verify` afterwards | intact: {} |", verified.join(", "))?;
        writeln!(
            out,
            "\n| second half, {} samples | mean | max | growth | allowed |",
            self.observed.samples.len().div_ceil(2)
        )?;
        writeln!(out, "|---|---|---|---|---|")?;
        for (Figure { name, tolerance }, trend) in trends(&self.observed.samples) {
            let allowed = tolerance.map_or("".into(), |allowed| {
                format!("{:.0}", (trend.mean * allowed.fraction).max(allowed.absolute))
            });
            let Trend { mean, max, growth } = trend;
            writeln!(out, "| {name} | {mean:.0} | {max:.0} | {growth:+.1} | {allowed} |")?;
        }
        Ok(())
    }
}
