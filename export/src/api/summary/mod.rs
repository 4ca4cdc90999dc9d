//! Rows counted, and their revenue added up, by day, campaign, status and so on.
//!
//! Whole quarters of an hour come from the store's counts. Rows are read only where a range, or a
//! day of the zone, begins or ends within one. Both are of one moment, so what is told is what
//! counting the export of the same query gives.

mod dimension;
mod groups;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use attribution::facts::event::EventTime;
use attribution::rules::policy::{AppPolicy, Policy};
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
    BY, CHANNEL, EVENT_NAME, FROM, INSTALL_TYPE, SPREADID, STATUS, TIMEZONE, TO, TYPE, bad,
};
use crate::query::raw_params::RawParams;
use crate::query::{ExportQuery, Format};
use dimension::Days;
pub(crate) use dimension::Dimension;
use groups::Groups;

/// Which rows, and what tells them apart.
#[derive(Debug)]
pub(crate) struct SummaryQuery {
    /// Its range, zone and filter.
    rows: ExportQuery,
    by: Vec<Dimension>,
}

impl SummaryQuery {
    /// The parameters that there are.
    const PARAMETERS: &[&str] =
        &[FROM, TO, TIMEZONE, TYPE, EVENT_NAME, STATUS, CHANNEL, SPREADID, INSTALL_TYPE, BY];

    /// As [`ExportQuery::parse`].
    pub fn parse<'a>(
        parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ExportError> {
        let given = RawParams::new(Self::PARAMETERS, parameters)?;
        let rows = ExportQuery::new(Format::Csv, &given)?;
        let mut dimensions = Vec::new();
        for name in given.all(BY).iter().flat_map(|names| names.split(',')) {
            let dimension = Dimension::parse(name)?;
            if dimensions.contains(&dimension) {
                let allowed = Dimension::names().collect();
                return Err(bad(BY, "this is named twice", name, allowed));
            }
            dimensions.push(dimension);
        }
        Ok(Self { rows, by: dimensions })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Csv,
}

/// As JSON, or as CSV where the path ends so.
pub(crate) async fn summary(
    State(state): State<ExportState>,
    Segments(key): Segments<String>,
    request: Request,
) -> Result<Response, Problem> {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let form = if uri.path().ends_with(".csv") { Form::Csv } else { Form::Json };
    let app = respond::app(&state, key)?;
    let query = parse(&uri, app, &state.policy)?;
    let media_type = match form {
        Form::Json => "application/json",
        Form::Csv => "text/csv; charset=utf-8; header=present",
    };
    let name = query.rows.file_name(&app.key);
    let file = (header::CONTENT_DISPOSITION, format!("attachment; filename=\"summary_{name}\""));
    let file = (form == Form::Csv).then_some(file);
    let headers = respond::headers(media_type, respond::range(&query.rows).into_iter().chain(file));
    if method == Method::HEAD {
        return Ok((headers, stream::unread()).into_response());
    }
    let pid = app.pid;
    let body = respond::read(&state, app, move |reader, policy| {
        let Some(app) = policy.app(pid) else { return Ok(Vec::new()) };
        let groups = summarise(reader, app, &query, policy)?;
        let mut body = Vec::new();
        match form {
            Form::Json => groups.write_json(&app.key, &query.rows, &mut body),
            Form::Csv => groups.write_csv(&mut body),
        }
        Ok(body)
    });
    Ok((headers, body.await?).into_response())
}

fn parse(uri: &Uri, app: &AppPolicy, policy: &Policy) -> Result<SummaryQuery, Problem> {
    let parameters = parameters(uri)?;
    let pairs = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let query = SummaryQuery::parse(pairs)?;
    query.rows.check(app, policy)?;
    Ok(query)
}

/// Rows of a channel on a day, which is counted from 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DayCount {
    pub day: i64,
    pub channel: Box<str>,
    pub rows: u64,
}

/// The rows of an export, whatever its limit, by day and channel.
///
/// # Errors
/// The store cannot be read.
pub(crate) fn count_days(
    reader: &Reader,
    app: &AppPolicy,
    rows: &ExportQuery,
    policy: &Policy,
) -> Result<Vec<DayCount>, ExportError> {
    let query = SummaryQuery { rows: rows.clone(), by: vec![Dimension::Day, Dimension::Channel] };
    Ok(summarise(reader, app, &query, policy)?.by_day_and_text())
}

/// The rows of an export, whatever its limit.
///
/// # Errors
/// The store cannot be read.
pub(crate) fn count_rows(
    reader: &Reader,
    app: &AppPolicy,
    rows: &ExportQuery,
    policy: &Policy,
) -> Result<u64, ExportError> {
    let query = SummaryQuery { rows: rows.clone(), by: vec![] };
    Ok(summarise(reader, app, &query, policy)?.rows())
}

/// The rows that an export will have; `None` where counting them takes as long as reading them, in a store that processes
/// share.
///
/// # Errors
/// The store cannot be read.
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

/// All rows of the query, counted.
///
/// # Errors
/// The store's; more groups than are held in memory.
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
    match summary_counts::whole_quarters((from, to)) {
        None => summary.rows((from, to))?,
        Some((first, end)) => {
            summary.rows((from, first))?;
            for cut in summary.quarters((first, end))? {
                summary.rows((cut, after(cut)))?;
            }
            summary.rows((end, to))?;
        }
    }
    Ok(summary.groups)
}

/// The end of a quarter of an hour.
fn after(quarter: EventTime) -> EventTime {
    let end = quarter.plus(QUARTER_MS);
    if end == EventTime::MAX { EventTime::END } else { end }
}

/// A summary that is being made.
struct Summary<'v, 'q> {
    view: &'v View<'v>,
    app: &'v AppPolicy,
    query: &'q SummaryQuery,
    policy: &'q Policy,
    days: Days,
    groups: Groups<'q>,
}

impl Summary<'_, '_> {
    /// Adds the rows of a range, one by one.
    fn rows(&mut self, range: (EventTime, EventTime)) -> Result<(), ExportError> {
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

    /// Adds the counts of a range of whole quarters of an hour; but for those that are of two days,
    /// which it gives.
    fn quarters(
        &mut self,
        range: (EventTime, EventTime),
    ) -> Result<BTreeSet<EventTime>, ExportError> {
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
