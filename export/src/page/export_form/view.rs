//! The form of the start page, with its values and errors, prepared for the template.

use std::collections::{BTreeMap, BTreeSet};

use attribution::facts::event::EventTime;
use attribution::rules::policy::{AppPolicy, Policy};
use jiff::civil::Date;
use serde::Serialize;

use super::columns::{ColumnGroup, column_groups};
use super::options::{FILTERS, FORMS, OWN, PRESETS, RANGES, TYPES};
use super::state::{Choice, FieldError, dates, props};
use crate::Zone;
use crate::page::format;
use crate::page::layout::{AppChoice, choose};
use crate::query::parse_zone;

/// Suggested time zones; any other IANA name or an offset may be typed.
#[rustfmt::skip]
pub(crate) const ZONES: [&str; 26] = [
    "UTC", "Africa/Cairo", "Africa/Johannesburg", "Africa/Lagos", "America/Chicago", "America/Los_Angeles",
    "America/Mexico_City", "America/New_York", "America/Sao_Paulo", "Asia/Dubai", "Asia/Hong_Kong", "Asia/Jakarta",
    "Asia/Kolkata", "Asia/Manila", "Asia/Seoul", "Asia/Shanghai", "Asia/Singapore", "Asia/Taipei", "Asia/Tokyo",
    "Australia/Sydney", "Europe/Berlin", "Europe/Istanbul", "Europe/London", "Europe/Moscow", "Europe/Paris",
    "Pacific/Auckland",
];

#[derive(Debug, Serialize)]
pub(crate) struct Form {
    apps: Vec<AppChoice>,
    /// The requested key, if no app has it.
    unknown_app: Option<String>,
    ranges: Vec<Alternative>,
    from: Day,
    to: Day,
    timezone: String,
    zones: &'static [&'static str],
    types: Vec<Alternative>,
    forms: Vec<Alternative>,
    presets: Vec<Alternative>,
    column_groups: Vec<ColumnGroup>,
    /// Set if columns are chosen one by one.
    is_own: bool,
    props: String,
    filters: Vec<FilterField>,
    channels: Vec<String>,
    has_filters: bool,
    /// Error messages by field.
    wrong: BTreeMap<&'static str, String>,
}

/// An option of several.
#[derive(Debug, Serialize)]
pub(crate) struct Alternative {
    value: &'static str,
    name: &'static str,
    hint: String,
    is_chosen: bool,
}

/// A field for a day, or for another time that was in the URL.
#[derive(Debug, Serialize)]
struct Day {
    value: String,
    is_date: bool,
}

#[derive(Debug, Serialize)]
struct FilterField {
    name: &'static str,
    label: &'static str,
    example: &'static str,
    value: String,
}

impl Form {
    pub fn new(
        choice: &Choice,
        apps: &[&AppPolicy],
        policy: &Policy,
        wrong: Vec<FieldError>,
        now: EventTime,
    ) -> Self {
        let zone = parse_zone(&choice.timezone).unwrap_or_else(|_| Zone::utc());
        let today = format::today(&zone, now);
        let (chosen, app_choices) = choose(apps, &choice.app);
        let range = |(value, name): (&'static str, &'static str)| {
            let days = dates(value, today).map(|(first, last)| format::days(first, last));
            alternative((value, name, &days.unwrap_or_default()), &choice.range)
        };
        // A custom range starts from the days that are displayed.
        let (first, last) = dates(&choice.range, today).map_or_else(
            || (choice.from.clone(), choice.to.clone()),
            |(first, last)| (first.to_string(), last.to_string()),
        );
        let named = |list: &[(&'static str, &'static str, &'static str)], chosen: &str| {
            list.iter().map(|named| alternative(*named, chosen)).collect()
        };
        let filters = FILTERS.iter().zip(&choice.filters);
        Self {
            unknown_app: chosen.is_none().then(|| choice.app.clone()),
            apps: app_choices,
            ranges: RANGES.into_iter().map(range).collect(),
            from: Day::new(first),
            to: Day::new(last),
            timezone: choice.timezone.clone(),
            zones: &ZONES,
            types: TYPES
                .iter()
                .map(|(value, name)| alternative((*value, *name, ""), &choice.event_type))
                .collect(),
            forms: named(&FORMS, &choice.form),
            presets: named(&PRESETS, &choice.preset),
            column_groups: column_groups(choice),
            is_own: choice.preset == OWN,
            props: props(&choice.fields),
            has_filters: choice.filters.iter().any(|filter| !filter.is_empty()),
            filters: filters
                .map(|((name, label, example), value)| FilterField {
                    name,
                    label,
                    example,
                    value: value.clone(),
                })
                .collect(),
            channels: channels(chosen, policy),
            wrong: wrong.into_iter().map(|wrong| (wrong.field, wrong.message)).collect(),
        }
    }
}

impl Day {
    fn new(value: String) -> Self {
        let is_date = value.is_empty() || value.parse::<Date>().is_ok_and(|_| value.len() == 10);
        Self { value, is_date }
    }
}

pub(crate) fn alternative(
    (value, name, hint): (&'static str, &'static str, &str),
    chosen: &str,
) -> Alternative {
    Alternative { value, name, hint: hint.into(), is_chosen: value == chosen }
}

/// Returns the channels of the app's campaigns, as suggestions.
fn channels(app: Option<&AppPolicy>, policy: &Policy) -> Vec<String> {
    let campaigns =
        policy.campaigns().filter(|campaign| app.is_some_and(|app| app.pid == campaign.pid));
    let channels: BTreeSet<&str> = campaigns.map(|campaign| &*campaign.channel).collect();
    channels.into_iter().map(str::to_owned).collect()
}

/// Describes a choice in words: the type of rows, the filters, the number of columns.
pub(crate) fn describe(choice: &Choice) -> Vec<String> {
    let kind = TYPES.iter().find(|(value, _)| *value == choice.event_type);
    let mut words: Vec<String> = kind.map(|(_, name)| (*name).to_owned()).into_iter().collect();
    let filters = FILTERS.iter().zip(&choice.filters).filter(|(_, value)| !value.is_empty());
    words.extend(filters.map(|((_, label, _), value)| format!("{label}: {value}")));
    if choice.preset == OWN {
        let columns = choice.fields.len();
        words.push(format!("{columns} {}", if columns == 1 { "column" } else { "columns" }));
    }
    words
}
