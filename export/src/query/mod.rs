//! The query of an export: its parameters, filters and cursor.

pub(crate) mod cursor;
pub(crate) mod cursor_text;
mod file_name;
pub(crate) mod filter;
pub(crate) mod parameter;
pub(crate) mod raw_params;
#[cfg(test)]
mod tests;
pub(crate) mod time_param;

use std::collections::{BTreeMap, HashSet};

use attribution::facts::event::EventTime;
use attribution::rules::policy::{AppPolicy, Policy};

use crate::ExportError;
use crate::appsflyer::field_list;
use crate::appsflyer::report::Report;
use crate::format::columns::field::Field;
use crate::format::columns::native::Column;
use crate::format::time::writer::in_utc;
use crate::format::time::zone::Zone;
use cursor::Cursor;
use filter::Filter;
use parameter::{
    ADDITIONAL_FIELDS, AFTER, CHANNEL, DIALECT, EVENT_NAME, EXPORT_ID, FIELDS, FORMAT, FROM,
    INSTALL_TYPE, LIMIT, PRESET, SPREADID, STATUS, TIMEZONE, TO, TYPE, all_listed, bad, one_of,
    quoted,
};
pub(crate) use raw_params::parse_zone;
use raw_params::{RawParams, TimeRange, parse_time_param};
use time_param::TimeParam;

/// Which rows of an app, which of their columns, and how they are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportQuery {
    pub from: EventTime,
    /// Exclusive end.
    pub to: EventTime,
    /// The time zone in which times are written.
    pub zone: Zone,
    pub filter: Filter,
    /// An AppsFlyer report, whose rows are sorted newest first.
    pub report: Option<Report>,
    pub fields: Vec<Field>,
    pub preset: Preset,
    pub format: Format,
    pub dialect: Dialect,
    /// Maximum number of rows.
    pub limit: Option<u64>,
    /// Rows up to and including this one are left out.
    pub after: Option<Cursor>,
    /// The ends as requested, for the file name.
    pub(crate) from_text: Box<str>,
    pub(crate) to_text: Box<str>,
}

/// The set of columns of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preset {
    #[default]
    Native,
    /// AppsFlyer's columns, with its time formats.
    AppsFlyer,
}

/// The file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A header line, then a line for each row.
    Csv,
    /// A JSON object per line for each row.
    Ndjson,
}

/// The dialect of a CSV file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// For programs: UTF-8 without a byte order mark, LF, RFC 3339.
    #[default]
    Data,
    /// For Excel and LibreOffice: a byte order mark, CRLF, times in a form that they recognise, and texts that stay
    /// texts.
    Excel,
}

pub(crate) const PRESETS: [(&str, Preset); 2] =
    [("native", Preset::Native), ("appsflyer", Preset::AppsFlyer)];
pub(crate) const DIALECTS: [(&str, Dialect); 2] =
    [("data", Dialect::Data), ("excel", Dialect::Excel)];

impl Format {
    /// Returns the extension of paths and file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
        }
    }
}

impl ExportQuery {
    /// All parameters, including the id of a download, which is not part of the query and is removed before parsing.
    #[rustfmt::skip]
    pub const PARAMETERS: &[&str] = &[
        FROM, TO, TIMEZONE, TYPE, EVENT_NAME, STATUS, CHANNEL, SPREADID, INSTALL_TYPE, FIELDS, PRESET, DIALECT, LIMIT,
        AFTER, EXPORT_ID, ADDITIONAL_FIELDS,
    ];

    /// Parameters of NDJSON, which has only native columns.
    const NDJSON_PARAMETERS: &[&str] = match Self::PARAMETERS {
        [common @ .., _additional_fields] => common,
        [] => &[],
    };

    /// Parses decoded names and values. Filters and `fields` may be repeated, others may not.
    ///
    /// # Errors
    /// The first invalid parameter, in the order of the request, or a missing one.
    pub fn parse<'a>(
        format: Format,
        parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ExportError> {
        let known = match format {
            Format::Csv => Self::PARAMETERS,
            Format::Ndjson => Self::NDJSON_PARAMETERS,
        };
        Self::new(format, &RawParams::new(known, parameters)?)
    }

    /// Converts the parameters.
    pub(crate) fn new(format: Format, params: &RawParams<'_>) -> Result<Self, ExportError> {
        let zone = params.zone()?;
        let TimeRange { from, to, from_text, to_text } =
            params.range(&zone, time_param_with_t, |to, _, zone| to.end(zone))?;
        // NDJSON has only the first of each.
        let (presets, dialects) = match format {
            Format::Csv => (&PRESETS[..], &DIALECTS[..]),
            Format::Ndjson => (&PRESETS[..1], &DIALECTS[..1]),
        };
        let preset =
            params.one(PRESET).map_or(Ok(PRESETS[0].1), |name| one_of(PRESET, name, presets))?;
        Ok(Self {
            from,
            to,
            zone,
            filter: Filter::parse(params)?,
            report: None,
            fields: columns(params, preset)?,
            preset,
            format,
            dialect: params
                .one(DIALECT)
                .map_or(Ok(DIALECTS[0].1), |name| one_of(DIALECT, name, dialects))?,
            limit: params.rows_max(LIMIT)?,
            after: params.one(AFTER).map(Cursor::parse).transpose()?,
            from_text: from_text.into(),
            to_text: to_text.into(),
        })
    }

    /// Selects every row, with all columns, in UTC.
    pub fn all_time() -> Self {
        Self {
            from: EventTime::default(),
            to: EventTime::END,
            zone: Zone::utc(),
            filter: Filter::default(),
            report: None,
            fields: all_columns(),
            preset: Preset::Native,
            format: Format::Csv,
            dialect: Dialect::Data,
            limit: None,
            after: None,
            from_text: "".into(),
            to_text: "".into(),
        }
    }

    /// Checks what depends on the settings.
    ///
    /// # Errors
    /// A channel that the app does not have, or a cursor of another query.
    pub fn check(&self, app: &AppPolicy, policy: &Policy) -> Result<(), ExportError> {
        self.filter.check(app.pid, policy)?;
        self.report.as_ref().map_or(Ok(()), |report| report.check(app.pid, policy))?;
        self.after.map_or(Ok(()), |cursor| cursor.check(app.pid, self))
    }

    /// Returns a canonical form of the query, by parameter name: queries with equal texts give the same file. Filters
    /// and columns at their default are left out.
    pub fn texts(&self) -> BTreeMap<&'static str, String> {
        let fields: Vec<_> = self.fields.iter().map(Field::name).collect();
        let dialect = DIALECTS.iter().find(|(_, dialect)| *dialect == self.dialect);
        let mut texts = BTreeMap::from([
            (FROM, in_utc(self.from)),
            (TO, in_utc(self.to)),
            (TIMEZONE, self.zone.name().to_owned()),
            (FORMAT, self.format.name().to_owned()),
            (DIALECT, dialect.map_or("", |(name, _)| name).to_owned()),
        ]);
        if self.fields != all_columns() {
            texts.insert(FIELDS, quoted(&fields));
        }
        texts.extend(self.limit.map(|limit| (LIMIT, limit.to_string())));
        texts.extend(self.after.map(|after| (AFTER, after.to_string())));
        for (name, value) in self.filter.named() {
            let values = texts.entry(name).or_default();
            values.push_str(if values.is_empty() { "" } else { "," });
            values.push_str(&quoted(&[value]));
        }
        texts
    }
}

/// Returns the columns of a file.
fn columns(params: &RawParams<'_>, preset: Preset) -> Result<Vec<Field>, ExportError> {
    let not_with = |parameter, preset| match params.one(parameter) {
        Some(name) => {
            Err(bad(parameter, format!("not allowed with {PRESET} = {preset}"), name, vec![]))
        }
        None => Ok(()),
    };
    match preset {
        Preset::Native => {
            not_with(ADDITIONAL_FIELDS, "native")?;
            parse_fields(params.all(FIELDS))
        }
        Preset::AppsFlyer => {
            not_with(FIELDS, "appsflyer, use additional_fields")?;
            let additional = all_listed(ADDITIONAL_FIELDS, params.all(ADDITIONAL_FIELDS))?;
            Ok(field_list::fields(additional.into_iter()))
        }
    }
}

/// Length of `2026-03-10`.
const DATE_LEN: usize = 10;

/// Parses like [`parse_time_param`], but refuses a space between date and time: an unescaped `2026-03-10+08:00`
/// arrives as a date, a space and a time of day.
fn time_param_with_t(parameter: &'static str, text: &str) -> Result<TimeParam, ExportError> {
    if text.as_bytes().get(DATE_LEN) != Some(&b' ') {
        return parse_time_param(parameter, text);
    }
    let problem =
        "expected a T between date and time; a + in a URL means a space, write %2B for a +";
    Err(bad(parameter, problem.to_owned(), text, time_param::FORMS.to_vec()))
}

/// Parses column names; without any, returns all columns.
fn parse_fields(lists: &[&str]) -> Result<Vec<Field>, ExportError> {
    let (mut fields, mut names) = (Vec::new(), HashSet::new());
    for name in all_listed(FIELDS, lists)? {
        let refused = |problem| {
            let allowed = Column::known().chain(["props. and the name of a prop"]).collect();
            bad(FIELDS, problem, &name, allowed)
        };
        let field = Field::parse(&name)
            .map_err(|nearest| refused(format!("unknown column, the nearest is {nearest:?}")))?;
        if names.contains(&name) {
            return Err(refused("this column is named twice".into()));
        }
        names.insert(name);
        fields.push(field);
    }
    Ok(if lists.is_empty() { all_columns() } else { fields })
}

fn all_columns() -> Vec<Field> {
    Column::all().map(Field::Column).collect()
}
