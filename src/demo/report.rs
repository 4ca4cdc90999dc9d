//! What is told when all is attributed: first rows, a summary, and where to go on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use attribution::rules::row::{EventType, Status};
use indicatif::HumanCount;
use jiff::civil::Date;

use super::figures::Figures;
use super::traffic::catalogue::APPS;

/// The columns shown, of more than forty: what fits a terminal.
pub const FIELDS: &str = "event_time,event_name,status,channel,campaign,match_type,revenue";
const ROWS_SHOWN: usize = 12;

/// The first rows of a CSV as aligned columns.
pub fn table(csv: &str) -> anyhow::Result<String> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(csv.as_bytes());
    let rows: Vec<csv::StringRecord> = reader
        .records()
        .take(ROWS_SHOWN + 1)
        .collect::<Result<_, _>>()
        .context("the service's CSV cannot be read")?;
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row.get(column).unwrap_or_default().chars().count());
        widths.max().unwrap_or_default()
    };
    let widths: Vec<usize> =
        (0..rows.first().map_or(0, csv::StringRecord::len)).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "  {}", line.trim_end());
    }
    Ok(text)
}

/// Rows by type and status.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<(String, String), u64>);

impl Counts {
    /// Adds the rows of a CSV of `event_type,status`.
    pub fn add(&mut self, csv: &str) -> anyhow::Result<()> {
        for row in csv::Reader::from_reader(csv.as_bytes()).records() {
            let row = row.context("the service's CSV cannot be read")?;
            let cell = |index| row.get(index).unwrap_or_default().to_owned();
            *self.0.entry((cell(0), cell(1))).or_default() += 1;
        }
        Ok(())
    }

    pub fn of(&self, event_type: EventType) -> u64 {
        self.0
            .iter()
            .filter(|((name, _), _)| name == event_type.name())
            .map(|(_, count)| count)
            .sum()
    }

    fn cell(&self, event_type: EventType, status: Status) -> u64 {
        let key = (event_type.name().to_owned(), status.name().to_owned());
        self.0.get(&key).copied().unwrap_or_default()
    }

    fn summary(&self) -> String {
        let mut text = format!("  {:14}{:>13}{:>10}\n", "", "activations", "effects");
        for status in Status::ALL {
            let counts = EventType::ALL.map(|event_type| self.cell(event_type, status));
            if counts != [0, 0] {
                let [activations, effects] = counts.map(|count| HumanCount(count).to_string());
                let _ = writeln!(text, "  {:14}{activations:>13}{effects:>10}", status.name());
            }
        }
        text
    }
}

/// What became of everything that was sent.
pub fn summary(counts: &Counts, clicks: u64, figures: &Figures) -> String {
    let dead = figures.dead_lettered();
    let total = dead.values().sum();
    let reasons: Vec<_> = dead.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    format!(
        "What became of the events, over all {} apps\n\n{}\n  \
         clicks and impressions they were matched against: {}\n  \
         repeats of an event, which counts once: {}\n  \
         no events at all, now dead letters: {} ({})\n",
        APPS.len(),
        counts.summary(),
        HumanCount(clicks),
        HumanCount(figures.redelivered()),
        HumanCount(total),
        reasons.join(", "),
    )
}

/// Where the demo can be reached.
pub struct Places<'a> {
    pub export: SocketAddr,
    pub admin: SocketAddr,
    pub settings: &'a Path,
    /// The days that the events are of.
    pub from: Date,
    pub to: Date,
}

impl Places<'_> {
    /// The path of an app's CSV.
    pub fn csv(&self, app_key: &str) -> String {
        format!("/v1/apps/{app_key}/events.csv?from={}&to={}", self.from, self.to)
    }

    pub fn text(&self) -> String {
        let Self { export, admin, settings, .. } = self;
        let (app, csv) = (APPS[0].key, self.csv(APPS[0].key));
        let others: Vec<_> = APPS.iter().skip(1).map(|app| app.key).collect();
        format!(
            "Look around\n\n  \
             page       http://{export}/\n  \
             full CSV   curl -fsS 'http://{export}{csv}' -o {app}.csv\n  \
             more apps  {}\n  \
             metrics    http://{admin}/metrics\n  \
             settings   {settings}\n  \
             why        adtrail explain --config {settings} --app {app} --activation ID\n  \
             bad ones   adtrail peek --config {settings} adtrail.activations.dlq\n",
            others.join(", "),
            settings = settings.display(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let csv = "event_name,campaign,revenue\nlogin,\"A, \"\"b\"\"\",\npurchase,春,9.99\n";
        let expected = "  event_name  campaign  revenue\n  \
                          login       A, \"b\"\n  \
                          purchase    春         9.99\n";
        assert_eq!(table(csv).unwrap(), expected);
        assert_eq!(table("").unwrap(), "");
        let long = format!("a\n{}", "1\n".repeat(100));
        assert_eq!(table(&long).unwrap().lines().count(), ROWS_SHOWN + 1);
    }

    #[test]
    fn rows_are_counted_by_status() {
        let mut counts = Counts::default();
        counts.add("event_type,status\nactivation,organic\neffect,organic\n").unwrap();
        counts.add("event_type,status\neffect,organic\neffect,orphan\n").unwrap();
        assert_eq!(EventType::ALL.map(|event_type| counts.of(event_type)), [1, 3]);
        let lines = [
            "activations   effects",
            "organic                   1         2",
            "orphan                    0         1",
        ];
        assert_eq!(counts.summary().lines().map(str::trim).collect::<Vec<_>>(), lines);
    }
}
