//! One line in the log for each export, and each preview of one, at its end: who has read what. It has names of filters and
//! not their values, which may be of a single person.

use std::collections::BTreeSet;
use std::time::Duration;

use attribution::facts::event::EventTime;

use crate::download::state::State;
use crate::format::time_zone::in_utc;
use crate::query::{Dialect, ExportQuery, Format, Preset};

/// What was asked for, and by whom.
#[derive(Debug, Clone)]
pub(crate) struct ExportRequest {
    /// The id of the token, or `none`.
    pub token: Box<str>,
    pub app: Box<str>,
    pub from: EventTime,
    pub to: EventTime,
    pub format: &'static str,
    pub filters: String,
}

impl ExportRequest {
    pub fn new(token: &str, app_key: &str, query: &ExportQuery) -> Self {
        let filters: BTreeSet<_> = query.filter.named().into_iter().map(|(name, _)| name).collect();
        let of_report = query.report.iter().flat_map(|report| report.names());
        let filters: Vec<_> = filters.into_iter().chain(of_report).collect();
        Self {
            token: token.into(),
            app: app_key.into(),
            from: query.from,
            to: query.to,
            format: match (query.format, query.dialect, query.preset) {
                (Format::Csv, Dialect::Data, Preset::Native) => "csv",
                (Format::Csv, Dialect::Excel, Preset::Native) => "excel",
                (Format::Csv, Dialect::Data, Preset::AppsFlyer) => "appsflyer",
                (Format::Csv, Dialect::Excel, Preset::AppsFlyer) => "appsflyer excel",
                (Format::Ndjson, _, _) => "ndjson",
            },
            filters: filters.join(","),
        }
    }

    /// Of the first rows of the same, on the page.
    pub fn preview(token: &str, app_key: &str, query: &ExportQuery) -> Self {
        Self { format: "preview", ..Self::new(token, app_key, query) }
    }
}

/// An export that is over.
#[derive(Debug)]
pub(crate) struct ExportOutcome<'a> {
    pub asked: &'a ExportRequest,
    /// That were handed to the connection; bytes before it compresses them.
    pub rows: u64,
    pub bytes: u64,
    pub state: State,
    pub duration: Duration,
}

pub(crate) fn write(ExportOutcome { asked, rows, bytes, state, duration }: &ExportOutcome<'_>) {
    tracing::info!(
        target: "adtrail::audit",
        token = &*asked.token,
        app = &*asked.app,
        from = in_utc(asked.from),
        to = in_utc(asked.to),
        format = asked.format,
        filters = &*asked.filters,
        rows,
        bytes,
        outcome = state.name(),
        seconds = duration.as_secs_f64(),
        "an export has ended"
    );
}

#[cfg(test)]
impl ExportRequest {
    /// Of an export that nobody asked for.
    pub fn of_a_test() -> Self {
        Self::new("none", "app-x", &ExportQuery::all_time())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_named_and_not_told() {
        let range = [("from", "2026-03-10"), ("to", "2026-03-10")];
        let check = |more: &[(&str, &str)], format: &str, filters: &str| {
            let parameters = range.into_iter().chain(more.iter().copied());
            let query = ExportQuery::parse(Format::Csv, parameters).unwrap();
            let asked = ExportRequest::new("a", "app-x", &query);
            assert_eq!((asked.format, &*asked.filters), (format, filters));
            assert!(!format!("{asked:?}").contains("secret"));
        };
        check(&[("fields", "pid"), ("limit", "5")], "csv", "");
        check(
            &[
                ("dialect", "excel"),
                ("status", "organic"),
                ("event_name", "secret"),
                ("channel", "secret"),
                ("spreadid", "7"),
                ("install_type", "install"),
                ("type", "effect"),
            ],
            "excel",
            "channel,event_name,install_type,spreadid,status,type",
        );
    }
}
