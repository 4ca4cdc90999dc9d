//! The options of the form, with their values in the URL and their labels.

use crate::query::parameter::{CHANNEL, EVENT_NAME, INSTALL_TYPE, SPREADID, STATUS};

pub(crate) const APP: &str = "app";
pub(super) const RANGE: &str = "range";
pub(super) const PRESET: &str = "preset";
pub(super) const FORM: &str = "form";
/// The range given by `from` and `to`.
pub(super) const CUSTOM: &str = "custom";
/// The preset in which columns are chosen one by one.
pub(super) const OWN: &str = "own";

/// Ranges, by name. All but the last are relative to today.
pub(super) const RANGES: [(&str, &str); 4] = [
    ("yesterday", "Yesterday"),
    ("last7", "Last 7 days"),
    ("month", "This month"),
    (CUSTOM, "Custom range"),
];
pub(super) const TYPES: [(&str, &str); 3] =
    [("all", "Everything"), ("activation", "Installs"), ("effect", "In-app events")];
pub(super) const FORMS: [(&str, &str, &str); 3] = [
    ("excel", "Excel", "for Excel and LibreOffice"),
    ("csv", "CSV for programs", "UTF-8, exact texts and times"),
    ("ndjson", "JSON lines", "one object per row"),
];
/// Filters, by parameter, with a label and an example.
pub(super) const FILTERS: [(&str, &str, &str); 5] = [
    (CHANNEL, "Channels", "toutiao, kuaishou"),
    (SPREADID, "Campaigns, by number", "7, 8"),
    (EVENT_NAME, "Events, by name", "purchase, register"),
    (STATUS, "Status", "attributed, organic"),
    (INSTALL_TYPE, "Install type", "install, reinstall"),
];
/// Sets of columns, by name. All but `native` and `own` are values of the API's `preset`.
pub(super) const PRESETS: [(&str, &str, &str); 3] = [
    ("native", "All columns", "50, in adtrail's order"),
    ("appsflyer", "AppsFlyer's columns", "81, as in its raw data"),
    (OWN, "Selected columns", "those ticked below"),
];
