//! Requests of the Pull API, parsed into an [`ExportQuery`].

use attribution::facts::event::EventTime;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;

use super::field_list;
use super::report::{Kind, Report};
use crate::ExportError;
use crate::download::handler;
use crate::format::time::zone::Zone;
use crate::http::access::Caller;
use crate::http::extract::Segments;
use crate::http::problem::Problem;
use crate::http::state::ExportState;
use crate::query::filter::{self, Filter};
use crate::query::parameter::{
    ADDITIONAL_FIELDS, CURRENCY, EVENT_NAME, EXPORT_ID, FROM, MAXIMUM_ROWS, MEDIA_SOURCE, TIMEZONE,
    TO, all_listed, one_of,
};
use crate::query::raw_params::{RawParams, TimeRange, parse_time_param};
use crate::query::time_param::TimeParam;
use crate::query::{Dialect, ExportQuery, Format, Preset};

/// All parameters. The id of a download is removed before parsing.
#[rustfmt::skip]
const PARAMETERS: &[&str] = &[
    FROM, TO, TIMEZONE, MEDIA_SOURCE, EVENT_NAME, ADDITIONAL_FIELDS, MAXIMUM_ROWS, CURRENCY, EXPORT_ID,
];

/// Allowed currencies. Amounts are always written as they were sent.
pub const CURRENCIES: [(&str, ()); 2] = [("preferred", ()), ("USD", ())];

pub async fn raw_data(
    state: State<ExportState>,
    caller: Extension<Caller>,
    Segments((key, report)): Segments<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    let kind = Kind::parse(&report)?;
    handler::export(state, caller, key, request, |parameters| parse(kind, parameters)).await
}

/// Parses decoded names and values.
pub(crate) fn parse<'a>(
    kind: Kind,
    parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<ExportQuery, ExportError> {
    let params = RawParams::new(PARAMETERS, parameters)?;
    // Clients may send empty values if they have no names.
    let list = |parameter| -> Vec<&str> {
        let values = params.all(parameter).iter().copied();
        values.filter(|value| !value.is_empty()).collect()
    };
    let zone = params.zone()?;
    let TimeRange { from, to, from_text, to_text } = params.range(&zone, parse_time_param, last)?;
    params.one(CURRENCY).map_or(Ok(()), |name| one_of(CURRENCY, name, &CURRENCIES))?;
    let additional = list(ADDITIONAL_FIELDS);
    let additional = all_listed(ADDITIONAL_FIELDS, &additional)?;
    Ok(ExportQuery {
        from,
        to,
        zone,
        filter: Filter::default(),
        report: Some(Report {
            kind,
            media_sources: filter::texts(MEDIA_SOURCE, &list(MEDIA_SOURCE))?,
            event_names: filter::texts(EVENT_NAME, &list(EVENT_NAME))?,
        }),
        fields: field_list::fields(additional.into_iter()),
        preset: Preset::AppsFlyer,
        format: Format::Csv,
        dialect: Dialect::Data,
        limit: params.rows_max(MAXIMUM_ROWS)?,
        after: None,
        from_text: from_text.into(),
        to_text: to_text.into(),
    })
}

/// Returns the exclusive end of the range, which includes the named day, minute, second or millisecond.
fn last(to: TimeParam, text: &str, zone: &Zone) -> Option<EventTime> {
    /// Length of `2026-03-10T08:00`.
    const TO_THE_MINUTE: usize = 16;
    let rest = text.as_bytes().get(TO_THE_MINUTE..).unwrap_or_default();
    let unit_ms = match (to, rest) {
        (TimeParam::Day(_), _) => return to.end(zone),
        (_, [b':', _, _, b'.', ..]) => 1,
        (_, [b':', ..]) => 1_000,
        _ => 60_000,
    };
    let millis = to.start(zone)?.millis().checked_add(unit_ms)?;
    // `plus` saturates, for the last second of the year 9999.
    Some(EventTime::default().plus(millis))
}
