//! Filters of rows.

use std::collections::{BTreeSet, HashSet};

use attribution::facts::event::{Pid, SpreadId};
use attribution::rules::policy::Policy;
use attribution::rules::row::{EventType, InstallType, Status};
use store::layout::codec::row::{RowView, TextCell};
use store::layout::key::RowKey;
use store::layout::summary_counts::SummaryKey;

use super::parameter::{
    CHANNEL, EVENT_NAME, INSTALL_TYPE, SPREADID, STATUS, TYPE, all_listed, bad, expected, number,
    one_of,
};
use super::raw_params::RawParams;
use crate::ExportError;
use crate::format::columns::channel::{UNKNOWN_CHANNEL, channel_name};
use config::nearest::nearest;

pub(crate) const TYPES: [(&str, Option<EventType>); 3] = [
    ("all", None),
    ("activation", Some(EventType::Activation)),
    ("effect", Some(EventType::Effect)),
];

/// A row passes if it passes each field; `None` passes every row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub event_type: Option<EventType>,
    pub event_names: Option<HashSet<Box<str>>>,
    pub statuses: Option<Vec<Status>>,
    pub install_types: Option<Vec<InstallType>>,
    pub spreadids: Option<HashSet<SpreadId>>,
    pub channels: Option<HashSet<Box<str>>>,
}

impl Filter {
    pub(crate) fn parse(params: &RawParams<'_>) -> Result<Self, ExportError> {
        let statuses = Status::ALL.map(|status| (status.name(), status));
        let install_types = InstallType::ALL.map(|kind| (kind.name(), kind));
        Ok(Self {
            event_type: params.one(TYPE).map_or(Ok(None), |name| one_of(TYPE, name, &TYPES))?,
            event_names: texts(EVENT_NAME, params.all(EVENT_NAME))?,
            statuses: chosen(STATUS, params.all(STATUS), &statuses)?,
            install_types: chosen(INSTALL_TYPE, params.all(INSTALL_TYPE), &install_types)?,
            spreadids: listed(SPREADID, params.all(SPREADID), parse_spreadid)?,
            channels: texts(CHANNEL, params.all(CHANNEL))?,
        })
    }

    /// Checks the channels.
    pub(crate) fn check(&self, pid: Pid, policy: &Policy) -> Result<(), ExportError> {
        const ALLOWED: &str = "a channel of a campaign of the app, or unknown";
        check_channels(CHANNEL, ALLOWED, &self.channels, &[UNKNOWN_CHANNEL], pid, policy)
    }

    /// Returns the parameters that filter, with each of their values.
    pub(crate) fn named(&self) -> BTreeSet<(&'static str, String)> {
        let mut named = BTreeSet::new();
        let mut add = |parameter, value: &str| named.extend([(parameter, value.to_owned())]);
        self.event_type.iter().for_each(|wanted| add(TYPE, wanted.name()));
        self.event_names.iter().flatten().for_each(|name| add(EVENT_NAME, name));
        self.statuses.iter().flatten().for_each(|status| add(STATUS, status.name()));
        self.install_types.iter().flatten().for_each(|kind| add(INSTALL_TYPE, kind.name()));
        self.spreadids.iter().flatten().for_each(|id| add(SPREADID, &id.0.to_string()));
        self.channels.iter().flatten().for_each(|channel| add(CHANNEL, channel));
        named
    }

    /// Applies the part of the filter that depends only on a row's key.
    #[inline]
    pub(crate) fn has_key(&self, key: &RowKey, policy: &Policy) -> bool {
        self.has_campaign(key.pid, key.spreadid, policy)
    }

    /// Applies the rest of the filter to a row that passes [`Filter::has_key`].
    #[inline]
    pub(crate) fn has_row(&self, row: &RowView<'_>) -> bool {
        let event_name = || row.text(TextCell::EventName);
        self.has_event(row.event_type, row.status, row.install_type, event_name)
    }

    /// Applies the whole filter to the rows of a count.
    pub(crate) fn has_counted(&self, counted: &SummaryKey<'_>, policy: &Policy) -> bool {
        let SummaryKey { pid, spreadid, what, .. } = counted;
        self.has_campaign(*pid, *spreadid, policy)
            && self.has_event(what.event_type, what.status, what.install_type, || what.event_name)
    }

    #[inline]
    fn has_campaign(&self, pid: Pid, spreadid: SpreadId, policy: &Policy) -> bool {
        let is_channel =
            |wanted: &HashSet<Box<str>>| wanted.contains(channel_name(policy, pid, spreadid));
        self.spreadids.as_ref().is_none_or(|wanted| wanted.contains(&spreadid))
            && self.channels.as_ref().is_none_or(is_channel)
    }

    #[inline]
    fn has_event<'a>(
        &self,
        event_type: EventType,
        status: Status,
        install_type: Option<InstallType>,
        event_name: impl FnOnce() -> &'a str,
    ) -> bool {
        self.event_type.is_none_or(|wanted| wanted == event_type)
            && self.statuses.as_ref().is_none_or(|wanted| wanted.contains(&status))
            && self.install_types.as_ref().is_none_or(|wanted| {
                install_type.is_some_and(|install_type| wanted.contains(&install_type))
            })
            && self.event_names.as_ref().is_none_or(|wanted| wanted.contains(event_name()))
    }
}

/// Checks that each channel is one of the app's campaigns or of `others`. A misspelt channel would give an empty
/// file without an explanation.
pub(crate) fn check_channels(
    parameter: &'static str,
    allowed: &'static str,
    wanted: &Option<HashSet<Box<str>>>,
    others: &[&'static str],
    pid: Pid,
    policy: &Policy,
) -> Result<(), ExportError> {
    let campaigns = policy.campaigns().filter(|campaign| campaign.pid == pid);
    let known = campaigns.map(|campaign| &*campaign.channel).chain(others.iter().copied());
    let known: BTreeSet<&str> = known.collect();
    let Some(channel) = wanted.iter().flatten().find(|channel| !known.contains(&***channel)) else {
        return Ok(());
    };
    let nearest = nearest(channel, known).unwrap_or_default();
    let problem = format!("no campaign of the app has this channel, the nearest is {nearest:?}");
    Err(bad(parameter, problem, channel, vec![allowed]))
}

/// Parses all values of a list parameter, which commas separate and which may be repeated. `None` if it is absent.
fn listed<T, Set: FromIterator<T>>(
    parameter: &'static str,
    values: &[&str],
    parse: impl Fn(&str) -> Result<T, ExportError>,
) -> Result<Option<Set>, ExportError> {
    let all = all_listed(parameter, values)?;
    let parsed = all.iter().map(|value| parse(value));
    (!values.is_empty()).then(|| parsed.collect()).transpose()
}

pub(crate) fn texts(
    parameter: &'static str,
    values: &[&str],
) -> Result<Option<HashSet<Box<str>>>, ExportError> {
    listed(parameter, values, |text| match text {
        "" => Err(bad(parameter, "expected a name", text, vec!["names, separated by commas"])),
        _ => Ok(text.into()),
    })
}

/// Parses a list of known names. Each is in the result once, because every row is compared with all of them.
fn chosen<T: Copy + PartialEq>(
    parameter: &'static str,
    values: &[&str],
    names: &[(&'static str, T)],
) -> Result<Option<Vec<T>>, ExportError> {
    let all: Option<Vec<T>> = listed(parameter, values, |name| one_of(parameter, name, names))?;
    let known = names.iter().map(|(_, value)| *value);
    Ok(all.map(|all| known.filter(|value| all.contains(value)).collect()))
}

fn parse_spreadid(text: &str) -> Result<SpreadId, ExportError> {
    let number = number(text).map(SpreadId);
    number.ok_or_else(|| expected(SPREADID, "a number from 0 to 4294967295", text))
}
