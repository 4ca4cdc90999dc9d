//! The Pull API: what a request asks for, as a query of ours.

use attribution::facts::event::EventTime;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;

use super::field_list;
use super::report::{Kind, Report};
use crate::ExportError;
use crate::download::handler;
use crate::format::time_zone::Zone;
use crate::http::access::Caller;
use crate::http::problem::Problem;
use crate::http::state::ExportState;
use crate::query::filter::{self, Filter};
use crate::query::parameter::{
    ADDITIONAL_FIELDS, CURRENCY, EVENT_NAME, EXPORT_ID, FROM, MAXIMUM_ROWS, MEDIA_SOURCE, TIMEZONE,
    TO, all_listed, bad, one_of,
};
use crate::query::time_param::{self, Moment};
use crate::query::{
    Dialect, ExportQuery, Format, Preset, in_range, parse_moment, parse_rows_max, parse_zone,
    require,
};

/// With the id of a download, which is taken out before.
const PARAMETERS: &[&str] = &[
    FROM,
    TO,
    TIMEZONE,
    MEDIA_SOURCE,
    EVENT_NAME,
    ADDITIONAL_FIELDS,
    MAXIMUM_ROWS,
    CURRENCY,
    EXPORT_ID,
];

/// Amounts are those that were sent, whichever is asked for.
pub const CURRENCIES: [(&str, ()); 2] = [("preferred", ()), ("USD", ())];

type ReportPath = Result<Path<(String, String)>, PathRejection>;

pub async fn raw_data(
    state: State<ExportState>,
    caller: Extension<Caller>,
    path: ReportPath,
    request: Request,
) -> Result<Response, Problem> {
    let Path((app, report)) = path.map_err(|_| Problem::path_not_found(request.uri().path()))?;
    let kind = Kind::parse(&report)?;
    handler::export(state, caller, app, request, |parameters| parse(kind, parameters)).await
}

/// Names with their values, decoded.
pub(crate) fn parse<'a>(
    kind: Kind,
    parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<ExportQuery, ExportError> {
    let mut given = Given::default();
    for (name, value) in parameters {
        given.take(name, value)?;
    }
    let zone = given.timezone.map_or(Ok(Zone::utc()), parse_zone)?;
    let (from_text, to_text) = (require(FROM, given.from)?, require(TO, given.to)?);
    let from = in_range(FROM, from_text, parse_moment(FROM, from_text)?.start(&zone))?;
    let to_moment = parse_moment(TO, to_text)?;
    let to = in_range(TO, to_text, last(to_moment, to_text, &zone))?;
    if to <= from && to_moment.start(&zone) < Some(from) {
        let problem = format!("expected a time that is not before {FROM} = {from_text:?}");
        return Err(bad(TO, problem, to_text, time_param::FORMS.to_vec()));
    }
    given.currency.map_or(Ok(()), |name| one_of(CURRENCY, name, &CURRENCIES))?;
    let additional = all_listed(ADDITIONAL_FIELDS, &given.additional_fields)?;
    Ok(ExportQuery {
        from,
        to,
        zone,
        filter: Filter::default(),
        report: Some(Report {
            kind,
            media_sources: filter::texts(MEDIA_SOURCE, &given.media_sources)?,
            event_names: filter::texts(EVENT_NAME, &given.event_names)?,
        }),
        fields: field_list::fields(additional.into_iter()),
        preset: Preset::AppsFlyer,
        format: Format::Csv,
        dialect: Dialect::Data,
        limit: given.maximum_rows.map(|text| parse_rows_max(MAXIMUM_ROWS, text)).transpose()?,
        after: None,
        from_text: from_text.into(),
        to_text: to_text.into(),
    })
}

/// Where the range ends: what is named is in it, whether it is a day, a minute or a second.
fn last(to: Moment, text: &str, zone: &Zone) -> Option<EventTime> {
    /// Of `2026-03-10T08:00`.
    const TO_THE_MINUTE: usize = 16;
    let rest = text.as_bytes().get(TO_THE_MINUTE..).unwrap_or_default();
    let unit_ms = match (to, rest) {
        (Moment::Day(_), _) => return to.end(zone),
        (_, [b':', _, _, b'.', ..]) => 1,
        (_, [b':', ..]) => 1_000,
        _ => 60_000,
    };
    let millis = to.start(zone)?.millis().checked_add(unit_ms)?;
    // The last second of the year 9999 ends with it.
    Some(EventTime::default().plus(millis))
}

/// The values of the parameters, as they came.
#[derive(Default)]
struct Given<'a> {
    from: Option<&'a str>,
    to: Option<&'a str>,
    timezone: Option<&'a str>,
    maximum_rows: Option<&'a str>,
    currency: Option<&'a str>,
    media_sources: Vec<&'a str>,
    event_names: Vec<&'a str>,
    additional_fields: Vec<&'a str>,
}

impl<'a> Given<'a> {
    fn take(&mut self, name: &str, value: &'a str) -> Result<(), ExportError> {
        let list = match name {
            MEDIA_SOURCE => Some(&mut self.media_sources),
            EVENT_NAME => Some(&mut self.event_names),
            ADDITIONAL_FIELDS => Some(&mut self.additional_fields),
            _ => None,
        };
        if let Some(list) = list {
            // A client that has none to name may say so.
            list.extend(Some(value).filter(|value| !value.is_empty()));
            return Ok(());
        }
        let (parameter, place) = match name {
            FROM => (FROM, &mut self.from),
            TO => (TO, &mut self.to),
            TIMEZONE => (TIMEZONE, &mut self.timezone),
            MAXIMUM_ROWS => (MAXIMUM_ROWS, &mut self.maximum_rows),
            CURRENCY => (CURRENCY, &mut self.currency),
            _ => {
                let (parameter, known) = (name.into(), PARAMETERS);
                return Err(ExportError::UnknownParameter { parameter, known });
            }
        };
        match place.replace(value) {
            None => Ok(()),
            Some(_) => Err(ExportError::RepeatedParameter { parameter }),
        }
    }
}
