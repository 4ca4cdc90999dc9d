//! What a run has shown, as a table of `docs/guarantees.md` has it.

use std::fmt;
use std::time::Duration;

use crate::Run;
use crate::flat::Trend;
use crate::judge::Compared;
use crate::load::{Counts, Load};
use crate::watch::{Figure, trends};

pub struct Report<'a> {
    pub minutes: u64,
    pub full_rate: f64,
    pub run: &'a Run,
    pub load: &'a Load<'a>,
    pub compared: &'a Compared,
    pub verified: &'a [(String, u64)],
}

impl Report<'_> {
    /// The names of the figures that are not flat.
    pub fn growing(&self) -> Vec<&'static str> {
        let is_growing = |(figure, trend): &(&Figure, Trend)| {
            figure.tolerance.is_some_and(|tolerance| !trend.is_flat(tolerance))
        };
        trends(&self.run.samples)
            .iter()
            .filter(|one| is_growing(one))
            .map(|(one, _)| one.name)
            .collect()
    }

    /// How long a part of the markers took at most.
    fn shown_within(&self, part: f64) -> Duration {
        let mut took = self.run.shown_after.clone();
        took.sort_unstable();
        let place = (took.len() as f64 * part).ceil() as usize;
        took.get(place.saturating_sub(1)).copied().unwrap_or_default()
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |of: fn(&Counts) -> u64| self.load.produced.iter().map(of).sum::<u64>();
        let rate = self.load.all() as f64 / self.run.lasted.as_secs_f64();
        let days =
            self.load.traffic.step_ms as f64 * 10.0 * 60.0 * self.minutes as f64 / 86_400_000.0;
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|part| self.shown_within(part).as_millis());
        let verified: Vec<String> =
            self.verified.iter().map(|(what, count)| format!("{what} {count}")).collect();
        writeln!(
            out,
            "\n| soak of {} minutes, {days:.1} days of broker time | |\n|---|---|",
            self.minutes
        )?;
        writeln!(
            out,
            "| load | {rate:.0} records/s, of {:.0} that the machine took |",
            self.full_rate
        )?;
        writeln!(out, "| a tick was late by at most | {} ms |", self.load.late.as_millis())?;
        writeln!(out, "| records | {} |", self.load.all())?;
        writeln!(out, "| events, all accepted once | {} |", all(|one| one.facts))?;
        writeln!(out, "| repeated ones, all told | {} |", all(|one| one.repeats))?;
        writeln!(
            out,
            "| dead letters, too late ones among them | {} |",
            all(|one| one.dead_letters)
        )?;
        writeln!(out, "| empty | {} |", all(|one| one.empty))?;
        writeln!(out, "| rows compared with replay, byte for byte | {} |", self.compared.rows)?;
        writeln!(
            out,
            "| downloads meanwhile | {} of {} rows |",
            self.run.downloaded.files, self.run.downloaded.rows
        )?;
        writeln!(
            out,
            "| event to visible in CSV, {} times | p50 {p50} ms, p99 {p99} ms, max {max} ms |",
            self.run.shown_after.len()
        )?;
        writeln!(out, "| `adtrail verify` afterwards | whole: {} |", verified.join(", "))?;
        writeln!(
            out,
            "\n| second half, {} samples | mean | most | growth | allowed |",
            self.run.samples.len().div_ceil(2)
        )?;
        writeln!(out, "|---|---|---|---|---|")?;
        for (Figure { name, tolerance }, trend) in trends(&self.run.samples) {
            let allowed = tolerance
                .map_or("".into(), |one| format!("{:.0}", (trend.mean * one.part).max(one.or)));
            let Trend { mean, max, growth } = trend;
            writeln!(out, "| {name} | {mean:.0} | {max:.0} | {growth:+.1} | {allowed} |")?;
        }
        Ok(())
    }
}
