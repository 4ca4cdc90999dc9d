//! The audit log: one line for each export and each preview at its end, which says who read what. It has names of
//! filters but not their values, which could identify a person.

use std::collections::BTreeSet;
use std::time::Duration;

use attribution::facts::event::EventTime;

use crate::download::state::State;
use crate::format::time::writer::in_utc;
use crate::query::{Dialect, ExportQuery, Format, Preset};

/// Who requested which export.
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

    /// The request of a preview: the first rows of an export, shown on the page.
    pub fn preview(token: &str, app_key: &str, query: &ExportQuery) -> Self {
        Self { format: "preview", ..Self::new(token, app_key, query) }
    }
}

/// An export that has ended.
#[derive(Debug)]
pub(crate) struct ExportOutcome<'a> {
    pub request: &'a ExportRequest,
    /// Rows passed to the connection.
    pub rows: u64,
    /// Bytes passed to the connection, before compression.
    pub bytes: u64,
    pub state: State,
    pub duration: Duration,
}

pub(crate) fn write(ExportOutcome { request, rows, bytes, state, duration }: &ExportOutcome<'_>) {
    tracing::info!(
        target: "adtrail::audit",
        token = &*request.token,
        app = &*request.app,
        from = in_utc(request.from),
        to = in_utc(request.to),
        format = request.format,
        filters = &*request.filters,
        rows,
        bytes,
        outcome = state.name(),
        seconds = duration.as_secs_f64(),
        "an export has ended"
    );
}

#[cfg(test)]
impl ExportRequest {
    /// A request for unit tests.
    pub fn for_test() -> Self {
        Self::new("none", "app-x", &ExportQuery::all_time())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_logged_by_name_without_values() {
        let range = [("from", "2026-03-10"), ("to", "2026-03-10")];
        let check = |more: &[(&str, &str)], format: &str, filters: &str| {
            let parameters = range.into_iter().chain(more.iter().copied());
            let query = ExportQuery::parse(Format::Csv, parameters).unwrap();
            let request = ExportRequest::new("a", "app-x", &query);
            assert_eq!((request.format, &*request.filters), (format, filters));
            assert!(!format!("{request:?}").contains("secret"));
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
