//! `adtrail check-events`: what would become of the events of files, before they are sent.
//!
//! `tally` counts lines by app and type with the `problems` of their values, and `meeting` finds out by which ids
//! touches and activations can match. `report` joins both, as text and as JSON.

mod meeting;
mod problems;
mod report;
mod tally;

use anyhow::bail;
use jiff::Timestamp;

use super::replay::intake;
use super::{load, print, require_apps};
use crate::cli::CheckEvents;
use crate::counted::counted;
use report::Report;
use tally::Tally;

pub fn run(options: &CheckEvents) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    require_apps(&config, &options.settings)?;
    let now_ms = Timestamp::now().as_millisecond();
    let mut tally = Tally::new(&config.policy, now_ms, options.show_values);
    intake::for_each_line(&options.events, &config.policy, &config.ingest, |line| {
        tally.add(line);
        Ok(())
    })?;
    let report = Report::new(&tally, &config.policy, &options.events);
    let shown = if options.json { format!("{:#}\n", report.json()) } else { report.text() };
    print(shown.as_bytes())?;
    match report.faults() {
        0 => Ok(()),
        faults => bail!("{} found: events or matches would be lost", counted(faults, "fault")),
    }
}
