//! Counts of rows and sums of their revenue, by day, campaign, status and so on.
//!
//! Whole quarters of an hour come from the store's counts. Rows are read only at the edges of the range, and where a
//! day of the zone begins within a quarter. Both come from one snapshot, so a summary equals the counted export of
//! the same query.

mod dimension;
mod groups;
mod lines;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use attribution::facts::event::EventTime;
use attribution::rules::policy::{AppPolicy, Policy};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, Uri, header};
use axum::response::{IntoResponse, Response};
use store::layout::codec::row::{RowView, TextCell};
use store::layout::summary_counts::{self, Dimensions, QUARTER_MS, SummaryKey, Totals};
use store::reader::{Reader, View};

use crate::ExportError;
use crate::download::stream;
use crate::http::extract::{Segments, parameters};
use crate::http::problem::Problem;
use crate::http::respond;
use crate::http::state::ExportState;
use crate::query::parameter::{
    BY, CHANNEL, DIALECT, EVENT_NAME, FROM, INSTALL_TYPE, SPREADID, STATUS, TIMEZONE, TO, TYPE,
    bad, pairs,
};
use crate::query::raw_params::RawParams;
use crate::query::{ExportQuery, Format};
use dimension::Days;
pub(crate) use dimension::Dimension;
use groups::Groups;
use lines::SummaryBody;

/// Which rows to count and how to group them.
#[derive(Debug)]
pub(crate) struct SummaryQuery {
    /// Range, zone and filter.
    rows: ExportQuery,
    by: Vec<Dimension>,
}

impl SummaryQuery {
    /// Names of the parameters of CSV.
    #[rustfmt::skip]
    const PARAMETERS: &[&str] = &[
        FROM, TO, TIMEZONE, TYPE, EVENT_NAME, STATUS, CHANNEL, SPREADID, INSTALL_TYPE, BY, DIALECT,
    ];

    /// Names of the parameters of JSON, which has no dialects.
    const JSON_PARAMETERS: &[&str] = match Self::PARAMETERS {
        [common @ .., _dialect] => common,
        [] => &[],
    };

    /// Parses parameters like [`ExportQuery::parse`].
    pub fn parse<'a>(
        form: Form,
        parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ExportError> {
        let known = match form {
            Form::Json => Self::JSON_PARAMETERS,
            Form::Csv => Self::PARAMETERS,
        };
        let params = RawParams::new(known, parameters)?;
        let rows = ExportQuery::new(Format::Csv, &params)?;
        let mut dimensions = Vec::new();
        for name in params.all(BY).iter().flat_map(|names| names.split(',')) {
            let dimension = Dimension::parse(name)?;
            if dimensions.contains(&dimension) {
                let allowed = Dimension::names().collect();
                return Err(bad(BY, "this dimension is named twice", name, allowed));
            }
            dimensions.push(dimension);
        }
        Ok(Self { rows, by: dimensions })
    }
}

/// The format of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Csv,
}

/// Serves a summary as JSON, or as CSV if the path ends with `.csv`.
pub(crate) async fn summary(
    State(state): State<ExportState>,
    Segments(key): Segments<String>,
    request: Request,
) -> Result<Response, Problem> {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let form = if uri.path().ends_with(".csv") { Form::Csv } else { Form::Json };
    let app = respond::app(&state, key)?;
    let query = parse(form, &uri, app, &state.policy)?;
    let media_type = match form {
        Form::Json => "application/json",
        Form::Csv => "text/csv; charset=utf-8; header=present",
    };
    let file = (header::CONTENT_DISPOSITION, query.rows.content_disposition("summary_", app));
    let file = (form == Form::Csv).then_some(file);
    let headers = respond::headers(media_type, respond::range(&query.rows).into_iter().chain(file));
    if method == Method::HEAD {
        return Ok((headers, stream::unread()).into_response());
    }
    let pid = app.pid;
    let body = respond::read(&state, app, move |reader, policy| {
        let app = policy.app(pid).ok_or(ExportError::BrokenOff)?;
        let lines = summarise(reader, app, &query, policy)?.into_lines();
        Ok(match form {
            Form::Json => SummaryBody::json(&app.key, &query.rows, lines),
            Form::Csv => SummaryBody::csv(query.rows.dialect, lines),
        })
    });
    Ok((headers, Body::new(body.await?)).into_response())
}

fn parse(form: Form, uri: &Uri, app: &AppPolicy, policy: &Policy) -> Result<SummaryQuery, Problem> {
    let parameters = parameters(uri)?;
    let query = SummaryQuery::parse(form, pairs(&parameters))?;
    query.rows.check(app, policy)?;
    Ok(query)
}

/// The number of rows of a channel on a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DayCount {
    /// Days since 1970-01-01.
    pub day: i64,
    pub channel: Box<str>,
    pub rows: u64,
}

/// Counts the rows of an export by day and channel, ignoring its limit.
pub(crate) fn count_days(
    reader: &Reader,
    app: &AppPolicy,
    rows: &ExportQuery,
    policy: &Policy,
) -> Result<Vec<DayCount>, ExportError> {
    let query = SummaryQuery { rows: rows.clone(), by: vec![Dimension::Day, Dimension::Channel] };
    Ok(summarise(reader, app, &query, policy)?.by_day_and_text())
}

/// Counts the rows of an export, ignoring its limit.
pub(crate) fn count_rows(
    reader: &Reader,
    app: &AppPolicy,
    rows: &ExportQuery,
    policy: &Policy,
) -> Result<u64, ExportError> {
    let query = SummaryQuery { rows: rows.clone(), by: vec![] };
    Ok(summarise(reader, app, &query, policy)?.rows())
}

/// Returns the number of rows that an export will have. `None` if counting them takes as long as reading them, as in
/// a store that several processes share.
pub fn expected_rows(
    reader: &Reader,
    app: &AppPolicy,
    query: &ExportQuery,
    policy: &Policy,
) -> Result<Option<u64>, ExportError> {
    if !reader.view().has_counts() {
        return Ok(None);
    }
    let after = query.after.map(|cursor| cursor.row(app.pid).event_time);
    let from = after.map_or(query.from, |after| after.max(query.from)).min(query.to);
    let rows = count_rows(reader, app, &ExportQuery { from, ..query.clone() }, policy)?;
    Ok(Some(rows.min(query.limit.unwrap_or(u64::MAX))))
}

/// Counts all rows of the query.
///
/// # Errors
/// The store cannot be read, or there are too many groups.
fn summarise<'q>(
    reader: &Reader,
    app: &AppPolicy,
    query: &'q SummaryQuery,
    policy: &'q Policy,
) -> Result<Groups<'q>, ExportError> {
    let view = reader.view();
    let mut summary = Summary {
        view: &view,
        app,
        query,
        policy,
        days: Days::new(&query.rows.zone),
        groups: Groups::new(&query.by, policy),
    };
    let (from, to) = (query.rows.from, query.rows.to);
    match summary_counts::whole_quarters(from..to) {
        None => summary.rows(from..to)?,
        Some(Range { start, end }) => {
            summary.rows(from..start)?;
            for cut in summary.quarters(start..end)? {
                summary.rows(cut..after(cut))?;
            }
            summary.rows(end..to)?;
        }
    }
    Ok(summary.groups)
}

/// Returns the end of a quarter of an hour.
fn after(quarter: EventTime) -> EventTime {
    let end = quarter.plus(QUARTER_MS);
    if end == EventTime::MAX { EventTime::END } else { end }
}

/// A summary in progress.
struct Summary<'v, 'q> {
    view: &'v View<'v>,
    app: &'v AppPolicy,
    query: &'q SummaryQuery,
    policy: &'q Policy,
    days: Days,
    groups: Groups<'q>,
}

impl Summary<'_, '_> {
    /// Reads and adds the rows of a range.
    fn rows(&mut self, range: Range<EventTime>) -> Result<(), ExportError> {
        let mut rows = self.view.rows(self.app, range, None)?;
        while let Some((key, value)) = rows.current()? {
            let row = RowView::decode(value)?;
            let counted = SummaryKey::new(&key, Dimensions::of_view(&row));
            if self.query.rows.filter.has_counted(&counted, self.policy) {
                let day = self.days.of(key.event_time);
                self.groups.add(day, &counted, &Totals::row(row.text(TextCell::Revenue)))?;
            }
            rows.advance();
        }
        Ok(())
    }

    /// Adds the counts of a range of whole quarters of an hour. Returns the quarters that span two days, which it
    /// leaves out.
    fn quarters(&mut self, range: Range<EventTime>) -> Result<BTreeSet<EventTime>, ExportError> {
        let Self { view, app, query, policy, days, groups } = self;
        let is_by_day = query.by.contains(&Dimension::Day);
        let (mut cut, mut failure) = (BTreeSet::new(), None);
        view.counts(app.pid, range, |counted, count| {
            if !query.rows.filter.has_counted(counted, policy) {
                return ControlFlow::Continue(());
            }
            let day = match days.of_quarter(counted.time) {
                Some(day) => day,
                None if is_by_day => {
                    cut.insert(counted.time);
                    return ControlFlow::Continue(());
                }
                None => 0,
            };
            match groups.add(day, counted, count) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        failure.map_or(Ok(cut), Err)
    }
}
