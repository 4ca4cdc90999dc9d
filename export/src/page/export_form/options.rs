//! What there is to choose from, and how it stands in the page's address.

use crate::query::parameter::{CHANNEL, EVENT_NAME, INSTALL_TYPE, SPREADID, STATUS};

pub(crate) const APP: &str = "app";
pub(super) const RANGE: &str = "range";
pub(super) const PRESET: &str = "preset";
pub(super) const FORM: &str = "form";
/// The range that `from` and `to` are of.
pub(super) const CUSTOM: &str = "custom";
/// The preset of the columns that are chosen one by one.
pub(super) const OWN: &str = "own";

/// Ranges by name. All but the last end with a day of now.
pub(super) const RANGES: [(&str, &str); 4] = [
    ("yesterday", "Yesterday"),
    ("last7", "Last 7 days"),
    ("month", "This month"),
    (CUSTOM, "Other days"),
];
pub(super) const TYPES: [(&str, &str); 3] =
    [("all", "Everything"), ("activation", "Installs"), ("effect", "Events in the app")];
pub(super) const FORMS: [(&str, &str, &str); 3] = [
    ("excel", "Excel", "opens right in Excel and LibreOffice"),
    ("csv", "CSV for programs", "UTF-8, exact texts and times"),
    ("ndjson", "JSON lines", "an object a row"),
];
/// Filters by their parameter, with an example of what each takes.
pub(super) const FILTERS: [(&str, &str, &str); 5] = [
    (CHANNEL, "Channels", "toutiao, kuaishou"),
    (SPREADID, "Campaigns, by number", "7, 8"),
    (EVENT_NAME, "Events, by name", "purchase, register"),
    (STATUS, "Status", "attributed, organic"),
    (INSTALL_TYPE, "Install type", "install, reinstall"),
];
/// Which columns, by name: what the API takes as `preset`, but for the native ones and `own`.
pub(super) const PRESETS: [(&str, &str, &str); 3] = [
    ("native", "All columns", "50, in adtrail's order"),
    ("appsflyer", "AppsFlyer's columns", "81, as its raw data has them"),
    (OWN, "Only some columns", "those that are ticked below"),
];
