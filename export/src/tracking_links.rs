//! The links of the collector, which the wiring of a process provides: this crate neither writes nor receives them.

use attribution::facts::event::SpreadId;
use serde_json::Value;

/// The links of campaigns, and what came of the last requests of each.
pub trait TrackingLinks: Send + Sync {
    /// Writes a link for the console of a network; `None` if the dialect of its channel cannot be read here.
    fn report_url(&self, link: ReportLink<'_>) -> Option<ReportUrl>;

    /// Returns the links of a campaign that people click.
    fn person_links(&self, spreadid: SpreadId) -> Vec<PersonLink>;

    /// Returns the last reports of a link as docs/collector.md describes them; `None` if other processes receive them.
    fn recent_reports(&self, link: ReportLink<'_>) -> Option<Value>;

    /// Like [`TrackingLinks::recent_reports`], for the link of people with this id.
    fn recent_clicks(&self, id: &str) -> Option<Value>;
}

/// What a network reports with a link.
#[derive(Debug, Clone, Copy)]
pub struct ReportLink<'a> {
    /// The key of the app.
    pub app: &'a str,
    /// The id of the channel.
    pub channel: &'a str,
    pub spreadid: SpreadId,
    /// True for impressions, false for clicks.
    pub is_impression: bool,
}

/// A link for the console of a network.
#[derive(Debug)]
pub struct ReportUrl {
    pub url: String,
    /// The name of the channel's dialect.
    pub dialect: Box<str>,
    /// False if the network's documents have not been compared with the dialect.
    pub is_verified: bool,
    /// True if the channel's signatures are checked, and the link has no parameter for one.
    pub is_unsigned: bool,
}

/// A link that people click.
#[derive(Debug)]
pub struct PersonLink {
    pub id: Box<str>,
    pub url: String,
    /// True if the channel's signatures are checked, and the link has none.
    pub is_unsigned: bool,
}
