//! Which rows belong to a report of the Pull API.

use std::collections::HashSet;

use attribution::facts::event::Pid;
use attribution::rules::policy::Policy;
use attribution::rules::row::{EventType, Status};
use store::layout::codec::row::RowView;
use store::layout::key::RowKey;

use super::column::{ORGANIC, event_name, is_reinstall, media_source};
use crate::ExportError;
use crate::format::columns::channel::UNKNOWN_CHANNEL;
use crate::query::filter::check_channels;
use crate::query::parameter::{EVENT_NAME, MEDIA_SOURCE};

/// The kind of a report, by its name in URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Installs,
    InAppEvents,
    OrganicInstalls,
    OrganicInAppEvents,
    RetargetInstalls,
    RetargetInAppEvents,
    Reinstalls,
    BlockedInstalls,
}

const NAMES: [(&str, Kind); 8] = [
    ("installs_report", Kind::Installs),
    ("in_app_events_report", Kind::InAppEvents),
    ("organic_installs_report", Kind::OrganicInstalls),
    ("organic_in_app_events_report", Kind::OrganicInAppEvents),
    ("installs-retarget", Kind::RetargetInstalls),
    ("in-app-events-retarget", Kind::RetargetInAppEvents),
    ("reinstalls", Kind::Reinstalls),
    ("blocked_installs_report", Kind::BlockedInstalls),
];

impl Kind {
    /// Parses the name of a report.
    pub fn parse(name: &str) -> Result<Self, ExportError> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, kind)| *kind).ok_or_else(|| ExportError::UnknownReport {
            report: name.into(),
            known: Self::names().join(", "),
        })
    }

    pub fn names() -> [&'static str; NAMES.len()] {
        NAMES.map(|(name, _)| name)
    }

    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    fn has(self, row: &RowView<'_>) -> bool {
        use EventType::{Activation, Effect};
        let is = |event_type, status| row.event_type == event_type && row.status == status;
        match self {
            Self::Installs => is(Activation, Status::Attributed) && !is_reinstall(row),
            Self::RetargetInstalls => is(Activation, Status::Attributed) && is_reinstall(row),
            Self::OrganicInstalls => is(Activation, Status::Organic),
            Self::Reinstalls => is(Activation, Status::Unattributed),
            Self::BlockedInstalls => is(Activation, Status::Rejected),
            Self::InAppEvents => is(Effect, Status::Attributed) && !is_reinstall(row),
            Self::RetargetInAppEvents => is(Effect, Status::Attributed) && is_reinstall(row),
            Self::OrganicInAppEvents => is(Effect, Status::Organic),
        }
    }
}

/// A report with its filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub kind: Kind,
    pub media_sources: Option<HashSet<Box<str>>>,
    pub event_names: Option<HashSet<Box<str>>>,
}

impl Report {
    pub(crate) fn has(&self, key: &RowKey, row: &RowView<'_>, policy: &Policy) -> bool {
        let Self { kind, media_sources, event_names } = self;
        kind.has(row)
            && media_sources
                .as_ref()
                .is_none_or(|wanted| wanted.contains(media_source(key, row, policy)))
            && event_names.as_ref().is_none_or(|wanted| wanted.contains(event_name(row)))
    }

    /// Returns the report's name and the names of its filters.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        let is_set = [
            (self.kind.name(), true),
            (MEDIA_SOURCE, self.media_sources.is_some()),
            (EVENT_NAME, self.event_names.is_some()),
        ];
        is_set.into_iter().filter_map(|(name, is_set)| is_set.then_some(name))
    }

    /// Checks the media sources.
    pub(crate) fn check(&self, pid: Pid, policy: &Policy) -> Result<(), ExportError> {
        const ALLOWED: &str = "a channel of a campaign of the app, or unknown, or organic";
        let others = [UNKNOWN_CHANNEL, ORGANIC];
        check_channels(MEDIA_SOURCE, ALLOWED, &self.media_sources, &others, pid, policy)
    }
}
