//! The report after all events are attributed: first rows, a summary and links.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use attribution::rules::row::{EventType, Status};
use indicatif::HumanCount;
use jiff::civil::Date;

use super::metrics::Metrics;
use super::traffic::catalogue::APPS;

/// The printed columns: as many as fit a terminal, out of more than forty.
pub const FIELDS: &str = "event_time,event_name,status,channel,campaign,match_type,revenue";
const ROWS_PRINTED: usize = 12;

/// Formats the first rows of a CSV as aligned columns.
pub fn table(csv: &str) -> anyhow::Result<String> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(csv.as_bytes());
    let rows: Vec<csv::StringRecord> = reader
        .records()
        .take(ROWS_PRINTED + 1)
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

/// The number of rows by type and status.
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

/// Formats the numbers of rows, touches, redeliveries and dead letters.
pub fn summary(counts: &Counts, clicks: u64, metrics: &Metrics) -> String {
    let dead_letters = metrics.dead_lettered();
    let total = dead_letters.values().sum();
    let codes: Vec<_> =
        dead_letters.iter().map(|(code, count)| format!("{code} {count}")).collect();
    format!(
        "Results over all {} apps\n\n{}\n  \
         clicks and impressions: {}\n  \
         redeliveries, each event counted once: {}\n  \
         dead letters: {} ({})\n",
        APPS.len(),
        counts.summary(),
        HumanCount(clicks),
        HumanCount(metrics.redelivered()),
        HumanCount(total),
        codes.join(", "),
    )
}

/// The addresses of the demo.
pub struct Links<'a> {
    pub export: SocketAddr,
    pub admin: SocketAddr,
    pub collect: SocketAddr,
    pub settings: &'a Path,
    /// The first and last day of the events.
    pub from: Date,
    pub to: Date,
}

impl Links<'_> {
    /// Returns the path of an app's CSV.
    pub fn csv_path(&self, app_key: &str) -> String {
        format!("/v1/apps/{app_key}/events.csv?from={}&to={}", self.from, self.to)
    }

    pub fn text(&self) -> String {
        let Self { export, admin, collect, settings, .. } = self;
        let (app, csv) = (APPS[0].key, self.csv_path(APPS[0].key));
        let others: Vec<_> = APPS.iter().skip(1).map(|app| app.key).collect();
        format!(
            "Next steps\n\n  \
             page          http://{export}/\n  \
             links         http://{export}/links?app={app}&campaign=101\n  \
             callbacks     http://{export}/callbacks?app={app}\n  \
             click         curl -gfsS 'http://{collect}/click/{app}/toutiao?spreadid=101&click_id=c&ip={{ip}}'\n  \
             poster        http://{collect}/go/poster\n  \
             full CSV      curl -fsS 'http://{export}{csv}' -o {app}.csv\n  \
             other apps    {}\n  \
             metrics       http://{admin}/metrics\n  \
             settings      {settings}\n  \
             explain       adtrail explain --config {settings} --app {app} --activation ID\n  \
             dead letters  adtrail peek --config {settings} adtrail.activations.dlq\n",
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
        assert_eq!(table(&long).unwrap().lines().count(), ROWS_PRINTED + 1);
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
