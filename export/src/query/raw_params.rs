//! The parameters of a request by name, and parsers of parameters that several requests share.

use std::collections::BTreeMap;

use attribution::facts::event::EventTime;

use super::parameter::{
    ADDITIONAL_FIELDS, BY, CHANNEL, EVENT_NAME, EXPORT_ID, FIELDS, FROM, INSTALL_TYPE, LIMIT,
    MEDIA_SOURCE, SPREADID, STATUS, TIMEZONE, TO, bad, expected, number,
};
use super::time_param::{FORMS, TimeParam};
use crate::format::time::zone::Zone;
use crate::{Echo, ExportError};

/// List parameters, which may be repeated.
#[rustfmt::skip]
const LISTS: [&str; 9] = [
    EVENT_NAME, STATUS, CHANNEL, SPREADID, INSTALL_TYPE, FIELDS, ADDITIONAL_FIELDS, MEDIA_SOURCE, BY,
];

/// Default and maximum number of entries of a page that is in memory until it is sent.
pub(crate) const PAGE_LIMIT: usize = 100;
pub(crate) const PAGE_LIMIT_MAX: usize = 1_000;

/// The values of each parameter, in the order of the request.
pub(crate) struct RawParams<'a>(BTreeMap<&'static str, Vec<&'a str>>);

/// A time range, and its ends as requested.
pub(crate) struct TimeRange<'a> {
    pub from: EventTime,
    /// Exclusive end.
    pub to: EventTime,
    pub from_text: &'a str,
    pub to_text: &'a str,
}

impl<'a> RawParams<'a> {
    /// Collects decoded names and values. [`EXPORT_ID`] must have been removed before.
    ///
    /// # Errors
    /// The first parameter that is unknown, or is repeated without being a list.
    pub fn new(
        known: &'static [&'static str],
        parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ExportError> {
        let mut values = BTreeMap::<_, Vec<_>>::new();
        for (name, value) in parameters {
            let found = known.iter().find(|known| **known == name && name != EXPORT_ID);
            let Some(&parameter) = found else {
                return Err(ExportError::UnknownParameter { parameter: name.into(), known });
            };
            let repeated = values.entry(parameter).or_default();
            repeated.push(value);
            if repeated.len() > 1 && !LISTS.contains(&parameter) {
                return Err(ExportError::RepeatedParameter { parameter });
            }
        }
        Ok(Self(values))
    }

    pub fn all(&self, parameter: &str) -> &[&'a str] {
        self.0.get(parameter).map_or(&[], Vec::as_slice)
    }

    pub fn one(&self, parameter: &str) -> Option<&'a str> {
        self.all(parameter).first().copied()
    }

    /// Returns the time zone, by default UTC.
    pub fn zone(&self) -> Result<Zone, ExportError> {
        self.one(TIMEZONE).map_or(Ok(Zone::utc()), parse_zone)
    }

    /// Returns the time range.
    ///
    /// # Errors
    /// An end is missing or not a time, or `to` is before `from`.
    pub fn range(
        &self,
        zone: &Zone,
        parse: fn(&'static str, &str) -> Result<TimeParam, ExportError>,
        end: fn(TimeParam, &str, &Zone) -> Option<EventTime>,
    ) -> Result<TimeRange<'a>, ExportError> {
        let required = |parameter| {
            let missing = ExportError::MissingParameter { parameter, allowed: &FORMS };
            self.one(parameter).ok_or(missing)
        };
        let (from_text, to_text) = (required(FROM)?, required(TO)?);
        let (first, last) = (parse(FROM, from_text)?, parse(TO, to_text)?);
        let from = in_range(FROM, from_text, first.start(zone))?;
        let to = in_range(TO, to_text, end(last, to_text, zone))?;
        // `to` may be the day before `from`: it then ends where `from` begins, but is refused like any earlier time.
        if to <= from && last.start(zone) < Some(from) {
            let start = Echo::from(from_text);
            let problem = format!("expected a time that is not before {FROM} = {start:?}");
            return Err(bad(TO, problem, to_text, FORMS.to_vec()));
        }
        Ok(TimeRange { from, to, from_text, to_text })
    }

    pub fn rows_max(&self, parameter: &'static str) -> Result<Option<u64>, ExportError> {
        let Some(text) = self.one(parameter) else { return Ok(None) };
        let limit = number(text).filter(|limit| *limit > 0);
        limit.map(Some).ok_or_else(|| expected(parameter, "a number of rows, 1 or more", text))
    }

    pub fn page_limit(&self) -> Result<usize, ExportError> {
        let Some(text) = self.one(LIMIT) else { return Ok(PAGE_LIMIT) };
        let limit = number(text).filter(|limit| (1..=PAGE_LIMIT_MAX).contains(limit));
        limit.ok_or_else(|| expected(LIMIT, "a number from 1 to 1000", text))
    }
}

pub(crate) fn parse_time_param(
    parameter: &'static str,
    text: &str,
) -> Result<TimeParam, ExportError> {
    TimeParam::parse(text).ok_or_else(|| {
        let problem = format!("expected {}", FORMS.join(", or "));
        bad(parameter, problem, text, FORMS.to_vec())
    })
}

pub(crate) fn parse_zone(name: &str) -> Result<Zone, ExportError> {
    const ALLOWED: [&str; 2] =
        ["an IANA time zone name such as Asia/Shanghai", "an offset such as +08:00"];
    Zone::parse(name).map_err(|problem| bad(TIMEZONE, problem, name, ALLOWED.to_vec()))
}

fn in_range(
    parameter: &'static str,
    text: &str,
    time: Option<EventTime>,
) -> Result<EventTime, ExportError> {
    const ALLOWED: &str = "1970-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z";
    time.ok_or_else(|| {
        let problem = format!("expected a time within {ALLOWED}");
        bad(parameter, problem, text, vec![ALLOWED])
    })
}
