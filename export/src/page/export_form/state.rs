//! The state of the form on the start page, which is kept in the page's URL.

use attribution::facts::event::EventTime;
use attribution::rules::policy::{AppPolicy, Policy};
use config::nearest::nearest;
use jiff::ToSpan;
use jiff::civil::Date;

use super::name_list::names;
use super::options::{APP, CUSTOM, FILTERS, FORM, FORMS, OWN, PRESET, PRESETS, RANGE, RANGES};
use crate::format::columns::field::PROPS;
use crate::format::columns::native::Column;
use crate::page::format;
use crate::query::parameter::{
    DIALECT, EXPORT_ID, FIELDS, FROM, TIMEZONE, TO, TYPE, pairs, parts, quoted,
};
use crate::query::{ExportQuery, Format, parse_zone};
use crate::{Echo, ExportError, Zone};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub app: String,
    pub range: String,
    pub from: String,
    pub to: String,
    pub timezone: String,
    pub event_type: String,
    pub preset: String,
    pub form: String,
    pub fields: Vec<String>,
    /// In the order of [`FILTERS`].
    pub filters: [String; FILTERS.len()],
}

/// The export that a choice requests.
#[derive(Debug)]
pub(crate) struct ExportRequest<'p> {
    pub app: &'p AppPolicy,
    pub query: ExportQuery,
    /// Parameters of the API.
    pub parameters: Vec<(String, String)>,
}

/// An error of a field of the form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    pub field: &'static str,
    pub message: String,
}

impl Choice {
    /// Reads the parameters of the page's URL; missing ones have useful defaults.
    pub fn new(parameters: &[(String, String)]) -> Self {
        let all = |name: &str| {
            let named = parameters.iter().filter(move |(known, _)| known == name);
            let values = named.map(|(_, value)| value.trim());
            values.filter(|value| !value.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        let one = |name, default: &str| all(name).pop().unwrap_or_else(|| default.to_owned());
        let mut fields: Vec<String> = all(FIELDS).iter().flat_map(|list| names(list)).collect();
        // In the order in which the form sends them.
        fields.sort_by_key(|field| {
            Column::names().position(|name| name == field).unwrap_or(usize::MAX)
        });
        // Not trimmed, since an unescaped plus of an offset is a space.
        let zone = parameters.iter().rfind(|(name, _)| name == TIMEZONE);
        let zone = zone.and_then(|(_, name)| Zone::parse(name).ok());
        let (from, to) = (one(FROM, ""), one(TO, ""));
        let range = if from.is_empty() && to.is_empty() { "last7" } else { CUSTOM };
        Self {
            app: one(APP, ""),
            range: one(RANGE, range),
            from,
            to,
            timezone: zone.map_or_else(|| one(TIMEZONE, "UTC"), |zone| zone.name().to_owned()),
            event_type: one(TYPE, "all"),
            preset: one(PRESET, if fields.is_empty() { PRESETS[0].0 } else { OWN }),
            form: one(FORM, FORMS[0].0),
            fields,
            filters: FILTERS.map(|(name, _, _)| all(name).join(",")),
        }
    }

    /// Converts a request to the API, params by its URL, into a choice that requests the same. `None` if the form
    /// cannot express it.
    pub fn of_request(app_key: &str, request: &str) -> Option<Self> {
        let (path, query) = request.split_once('?')?;
        let mut params: Vec<(String, String)> = serde_urlencoded::from_str(query).ok()?;
        params.retain(|(name, _)| name != EXPORT_ID);
        let is_excel = params.iter().any(|(name, value)| name == DIALECT && value == "excel");
        let form = match path.rsplit_once('.')?.1 {
            "csv" if is_excel => "excel",
            "csv" => "csv",
            "ndjson" => "ndjson",
            _ => return None,
        };
        let is_list = |name: &str| name == FIELDS || FILTERS.iter().any(|filter| filter.0 == name);
        let typed = params.iter().map(|(name, value)| match is_list(name) {
            true => (name.clone(), quoted(&parts(value))),
            false => (name.clone(), value.clone()),
        });
        let choice = Self::new(&typed.collect::<Vec<_>>());
        let choice = Self { app: app_key.into(), form: form.into(), ..choice };
        let query = |params: &[_]| ExportQuery::parse(choice.format(), pairs(params)).ok();
        // Requests have no relative ranges, so the time does not matter.
        let same = query(&choice.parameters(EventTime::default()))? == query(&params)?;
        same.then_some(choice)
    }

    /// Returns the URL of the page that shows this choice.
    pub fn address(&self) -> String {
        let mut pairs = vec![(APP, &*self.app), (RANGE, &self.range)];
        if self.range == CUSTOM {
            pairs.extend([(FROM, &*self.from), (TO, &self.to)]);
        }
        pairs.extend([(TIMEZONE, &*self.timezone), (TYPE, &self.event_type), (FORM, &self.form)]);
        pairs.push((PRESET, &self.preset));
        let filters = FILTERS.iter().zip(&self.filters);
        pairs.extend(filters.map(|((name, _, _), value)| (*name, value.as_str())));
        let fields = quoted(&self.fields);
        if self.preset == OWN {
            pairs.push((FIELDS, &fields));
        }
        pairs.retain(|(_, value)| !value.is_empty());
        format!("/?{}", serde_urlencoded::to_string(pairs).unwrap_or_default())
    }

    /// Returns the requested export, for one of the apps that the caller may read.
    ///
    /// # Errors
    /// All invalid fields, each once.
    pub fn export_request<'p>(
        &self,
        apps: &[&'p AppPolicy],
        policy: &Policy,
        now: EventTime,
    ) -> Result<ExportRequest<'p>, Vec<FieldError>> {
        let mut wrong = Vec::new();
        let app = crate::page::layout::choose(apps, &self.app).0;
        if app.is_none() {
            let nearest = nearest(&self.app, apps.iter().map(|app| &*app.key)).unwrap_or_default();
            let message = format!("No app has this key, the nearest is {nearest:?}.");
            wrong.push(FieldError { field: APP, message });
        }
        self.check_names(&mut wrong);
        let parameters = self.parameters(now);
        let query = self.query(&parameters, app, policy, &mut wrong);
        match (app, query) {
            (Some(app), Some(query)) if wrong.is_empty() => {
                Ok(ExportRequest { app, query, parameters })
            }
            _ => Err(wrong),
        }
    }

    /// Checks values that only the page has.
    fn check_names(&self, wrong: &mut Vec<FieldError>) {
        let lists: [(_, &str, Vec<&str>); 3] = [
            (RANGE, &self.range, RANGES.iter().map(|(name, _)| *name).collect()),
            (PRESET, &self.preset, PRESETS.iter().map(|(name, _, _)| *name).collect()),
            (FORM, &self.form, FORMS.iter().map(|(name, _, _)| *name).collect()),
        ];
        for (field, value, known) in lists {
            if !known.contains(&value) {
                let value = Echo::from(value);
                let message = format!("Expected one of {}: {value:?}", known.join(", "));
                wrong.push(FieldError { field, message });
            }
        }
        if self.preset == OWN && self.fields.is_empty() {
            wrong.push(FieldError { field: FIELDS, message: "Tick at least one column.".into() });
        }
    }

    /// Returns the parameters of the API. With an unknown time zone, relative ranges are in UTC.
    fn parameters(&self, now: EventTime) -> Vec<(String, String)> {
        let zone = parse_zone(&self.timezone).unwrap_or_else(|_| Zone::utc());
        let dates = dates(&self.range, format::today(&zone, now));
        let (from, to) = dates.map_or_else(
            || (self.from.clone(), self.to.clone()),
            |(first, last)| (first.to_string(), last.to_string()),
        );
        let mut pairs = vec![(FROM, from), (TO, to), (TIMEZONE, self.timezone.clone())];
        if self.event_type != "all" {
            pairs.push((TYPE, self.event_type.clone()));
        }
        for ((name, _, _), value) in FILTERS.iter().zip(&self.filters) {
            if !value.is_empty() {
                pairs.push((name, quoted(&names(value))));
            }
        }
        if self.preset == OWN {
            pairs.push((FIELDS, quoted(&self.fields)));
        } else if self.preset != PRESETS[0].0 {
            pairs.push((PRESET, self.preset.clone()));
        }
        if self.form == "excel" {
            pairs.push((DIALECT, "excel".into()));
        }
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Returns an error about days, for people who enter only dates.
    fn wrong_day(&self, error: &ExportError) -> Option<FieldError> {
        let (field, message) = match error {
            ExportError::BadParameter { parameter: FROM, value, .. } if value.is_empty() => {
                (FROM, "Choose the first day.")
            }
            ExportError::BadParameter { parameter: TO, value, .. } if value.is_empty() => {
                (TO, "Choose the last day.")
            }
            ExportError::BadParameter { parameter: TO, .. } => {
                let day = |text: &str| text.parse::<Date>().ok();
                let (first, last) = (day(&self.from)?, day(&self.to)?);
                (last < first).then_some((TO, "This day is before the first one."))?
            }
            _ => return None,
        };
        Some(FieldError { field, message: message.into() })
    }

    pub fn format(&self) -> Format {
        if self.form == "ndjson" { Format::Ndjson } else { Format::Csv }
    }

    /// Parses the query. After an invalid parameter it goes on without it, in order to find all errors.
    fn query(
        &self,
        parameters: &[(String, String)],
        app: Option<&AppPolicy>,
        policy: &Policy,
        wrong: &mut Vec<FieldError>,
    ) -> Option<ExportQuery> {
        let mut parameters = parameters.to_vec();
        // Each round removes one parameter, or replaces both times.
        for _ in 0..=parameters.len() {
            let query = ExportQuery::parse(self.format(), pairs(&parameters)).and_then(|query| {
                app.map_or(Ok(()), |app| query.check(app, policy))?;
                Ok(query)
            });
            let error = match query {
                Ok(query) => return Some(query),
                Err(error) => error,
            };
            let found = self.wrong_day(&error).or_else(|| FieldError::new(&error))?;
            let field = found.field;
            if wrong.iter().all(|known| known.field != field) {
                wrong.push(found);
            }
            if [FROM, TO].contains(&field) {
                parameters.retain(|(name, _)| name != FROM && name != TO);
                let any = [(FROM, "2000-01-01"), (TO, "2000-01-01")];
                parameters.extend(any.map(|(name, value)| (name.into(), value.into())));
            } else {
                parameters.retain(|(name, _)| name != field);
            }
        }
        None
    }
}

impl FieldError {
    /// Converts the error of a parameter. The message does not name the field, next to which it is displayed.
    pub fn new(error: &ExportError) -> Option<Self> {
        let (field, text) = match error {
            ExportError::BadParameter { parameter, problem, value, .. } if value.is_empty() => {
                (*parameter, format!("{problem}."))
            }
            ExportError::BadParameter { parameter, problem, value, .. } => {
                (*parameter, format!("{problem}: \u{201c}{value}\u{201d}"))
            }
            ExportError::MissingParameter { parameter, allowed } => {
                (*parameter, format!("expected {}.", allowed.join(", or ")))
            }
            _ => return None,
        };
        let mut letters = text.chars();
        let first = letters.next().map(|first| first.to_uppercase().to_string());
        Some(Self { field, message: first.unwrap_or_default() + letters.as_str() })
    }
}

/// Returns the first and the last day of a named range.
pub(crate) fn dates(range: &str, today: Date) -> Option<(Date, Date)> {
    let before = |days: i64| today.checked_sub(days.days()).unwrap_or(today);
    match range {
        "yesterday" => Some((before(1), before(1))),
        "last7" => Some((before(6), today)),
        "month" => Some((today.first_of_month(), today)),
        _ => None,
    }
}

/// Returns the props among the columns, as a list.
pub(super) fn props(fields: &[String]) -> String {
    let of_props: Vec<_> =
        fields.iter().filter(|field| field.starts_with(PROPS)).cloned().collect();
    quoted(&of_props)
}
