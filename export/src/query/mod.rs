//! What a request asks for.

pub(crate) mod cursor;
pub(crate) mod cursor_text;
pub(crate) mod filter;
pub(crate) mod parameter;
pub(crate) mod raw_params;
#[cfg(test)]
mod tests;
pub(crate) mod time_param;

use std::collections::BTreeMap;

use attribution::facts::event::EventTime;
use attribution::rules::policy::{AppPolicy, Policy};

use crate::ExportError;
use crate::appsflyer::field_list;
use crate::appsflyer::report::Report;
use crate::format::column::Column;
use crate::format::field::Field;
use crate::format::time_zone::in_utc;
use crate::format::zone::Zone;
use cursor::Cursor;
use filter::Filter;
use parameter::{
    ADDITIONAL_FIELDS, AFTER, CHANNEL, DIALECT, EVENT_NAME, EXPORT_ID, FIELDS, FORMAT, FROM,
    INSTALL_TYPE, LIMIT, PRESET, SPREADID, STATUS, TIMEZONE, TO, TYPE, all_listed, bad, one_of,
    quoted,
};
pub(crate) use raw_params::parse_zone;
use raw_params::{RawParams, TimeRange, parse_moment};
use time_param::Moment;

/// Which rows of an app, which of their columns, and how they are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportQuery {
    pub from: EventTime,
    /// The first time after the range.
    pub to: EventTime,
    /// In which times are written.
    pub zone: Zone,
    pub filter: Filter,
    /// A report of AppsFlyer's, whose rows come newest first.
    pub report: Option<Report>,
    pub fields: Vec<Field>,
    pub preset: Preset,
    pub format: Format,
    pub dialect: Dialect,
    /// Rows at most.
    pub limit: Option<u64>,
    /// Rows up to this one are left out.
    pub after: Option<Cursor>,
    /// As asked, for the file's name.
    pub(crate) from_text: Box<str>,
    pub(crate) to_text: Box<str>,
}

/// Whose columns a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preset {
    #[default]
    Native,
    /// AppsFlyer's, with its forms of times.
    AppsFlyer,
}

/// What a file is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A line of names, then a line for each row.
    Csv,
    /// A JSON object for each row, a line each.
    Ndjson,
}

/// How a CSV file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// For programs: UTF-8 without a byte order mark, lines that end with LF, RFC 3339.
    #[default]
    Data,
    /// For Excel and LibreOffice: a byte order mark, lines that end with CRLF, times as they read
    /// them, and texts that stay texts.
    Excel,
}

pub(crate) const PRESETS: [(&str, Preset); 2] =
    [("native", Preset::Native), ("appsflyer", Preset::AppsFlyer)];
pub(crate) const DIALECTS: [(&str, Dialect); 2] =
    [("data", Dialect::Data), ("excel", Dialect::Excel)];

impl Format {
    /// As paths and names of files end.
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
        }
    }
}

impl ExportQuery {
    /// The parameters that there are, with the id of a download, which is no part of what is asked for
    /// and taken out before.
    #[rustfmt::skip]
    pub const PARAMETERS: &[&str] = &[
        FROM, TO, TIMEZONE, TYPE, EVENT_NAME, STATUS, CHANNEL, SPREADID, INSTALL_TYPE, FIELDS, PRESET, DIALECT, LIMIT,
        AFTER, EXPORT_ID, ADDITIONAL_FIELDS,
    ];

    /// Those of JSON lines: other columns than the native ones are of CSV alone.
    const NDJSON_PARAMETERS: &[&str] = match Self::PARAMETERS {
        [common @ .., _additional_fields] => common,
        [] => &[],
    };

    /// Names with their values, decoded. Filters and `fields` may be repeated, the others not.
    ///
    /// # Errors
    /// The first parameter that is wrong, in the order given, or missing.
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

    /// # Errors
    /// The first parameter that is wrong or missing.
    pub(crate) fn new(format: Format, given: &RawParams<'_>) -> Result<Self, ExportError> {
        let zone = given.zone()?;
        let TimeRange { from, to, from_text, to_text } =
            given.range(&zone, moment_with_t, |to, _, zone| to.end(zone))?;
        // JSON lines have the first of each.
        let (presets, dialects) = match format {
            Format::Csv => (&PRESETS[..], &DIALECTS[..]),
            Format::Ndjson => (&PRESETS[..1], &DIALECTS[..1]),
        };
        let preset =
            given.one(PRESET).map_or(Ok(PRESETS[0].1), |name| one_of(PRESET, name, presets))?;
        Ok(Self {
            from,
            to,
            zone,
            filter: Filter::parse(given)?,
            report: None,
            fields: columns(given, preset)?,
            preset,
            format,
            dialect: given
                .one(DIALECT)
                .map_or(Ok(DIALECTS[0].1), |name| one_of(DIALECT, name, dialects))?,
            limit: given.rows_max(LIMIT)?,
            after: given.one(AFTER).map(Cursor::parse).transpose()?,
            from_text: from_text.into(),
            to_text: to_text.into(),
        })
    }

    /// Every row, all columns, in UTC.
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

    /// What can only be told with the settings at hand.
    ///
    /// # Errors
    /// A channel that the app does not have; a cursor of another query.
    pub fn check(&self, app: &AppPolicy, policy: &Policy) -> Result<(), ExportError> {
        self.filter.check(app.pid, policy)?;
        self.report.as_ref().map_or(Ok(()), |report| report.check(app.pid, policy))?;
        self.after.map_or(Ok(()), |cursor| cursor.check(app.pid, self))
    }

    /// What it says, by the names of the parameters, however it was asked for: two of the same texts
    /// give the same file. What is as it is without being asked for is left out.
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

    /// A name for the file, of characters that no file system and no shell minds.
    pub fn file_name(&self, app_key: &str) -> String {
        let safe = |part: &str| -> String {
            let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-');
            part.chars().map(|c| if is_safe(c) { c } else { '-' }).collect()
        };
        let report = self.report.as_ref().map(|report| report.kind.name());
        let range = [&*self.from_text, &self.to_text, self.zone.name()];
        let parts: Vec<_> = [app_key].into_iter().chain(report).chain(range).map(safe).collect();
        format!("{}.{}", parts.join("_"), self.format.name())
    }
}

/// # Errors
/// Columns of the other preset, or of a name that no column has.
fn columns(given: &RawParams<'_>, preset: Preset) -> Result<Vec<Field>, ExportError> {
    let not_with = |parameter, preset| match given.one(parameter) {
        Some(name) => {
            Err(bad(parameter, format!("expected none with {PRESET} = {preset}"), name, vec![]))
        }
        None => Ok(()),
    };
    match preset {
        Preset::Native => {
            not_with(ADDITIONAL_FIELDS, "native")?;
            parse_fields(given.all(FIELDS))
        }
        Preset::AppsFlyer => {
            not_with(FIELDS, "appsflyer, but additional_fields")?;
            let additional = all_listed(ADDITIONAL_FIELDS, given.all(ADDITIONAL_FIELDS))?;
            Ok(field_list::fields(additional.into_iter()))
        }
    }
}

/// Of `2026-03-10`.
const DATE_LEN: usize = 10;

/// As [`parse_moment`]. `2026-03-10+08:00` comes as a date, a space and a time of day, which is not what
/// was meant.
fn moment_with_t(parameter: &'static str, text: &str) -> Result<Moment, ExportError> {
    if text.as_bytes().get(DATE_LEN) != Some(&b' ') {
        return parse_moment(parameter, text);
    }
    let problem = "expected a T between date and time; a + in an address is a space, %2B is a +";
    Err(bad(parameter, problem.to_owned(), text, time_param::FORMS.to_vec()))
}

/// All columns where none are named.
fn parse_fields(given: &[&str]) -> Result<Vec<Field>, ExportError> {
    let mut fields = Vec::new();
    for name in all_listed(FIELDS, given)? {
        let refused = |problem| {
            let allowed = Column::known().chain(["props. and the name of a prop"]).collect();
            bad(FIELDS, problem, &name, allowed)
        };
        let field = Field::parse(&name)
            .map_err(|nearest| refused(format!("unknown column, the nearest is {nearest:?}")))?;
        if fields.contains(&field) {
            return Err(refused("this column is named twice".into()));
        }
        fields.push(field);
    }
    Ok(if given.is_empty() { all_columns() } else { fields })
}

fn all_columns() -> Vec<Field> {
    Column::all().map(Field::Column).collect()
}
