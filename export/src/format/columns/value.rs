//! The value of a column in a row, independent of the format.

use std::borrow::Cow;

use attribution::facts::event::EventTime;
use attribution::facts::event::TouchKind;
use attribution::rules::policy::Policy;
use store::layout::codec::row::{RowView, TextCell};
use store::layout::key::RowKey;

use super::native::{Column, ContributorPart};
use crate::format::columns::channel::channel_name;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Empty,
    /// A name defined by adtrail.
    Name(&'static str),
    Number(u32),
    Time(EventTime),
    /// A number in decimal digits.
    Decimal(&'a str),
    /// A text from a message or the settings.
    Text(Cow<'a, str>),
    /// A JSON object of strings.
    Json(&'a str),
}

impl<'a> Value<'a> {
    pub fn of_column(column: Column, key: &RowKey, row: &RowView<'a>, policy: &'a Policy) -> Self {
        let campaign = || policy.campaign(key.pid, key.spreadid);
        match column {
            Column::Text(cell) => Self::stored(cell, row.text(cell)),
            Column::EventType => Self::Name(row.event_type.name()),
            Column::EventTime => Self::Time(key.event_time),
            Column::App => Self::text(policy.app(key.pid).map_or("", |app| &app.key).into()),
            Column::Pid => Self::Number(key.pid.0),
            Column::Status => Self::Name(row.status.name()),
            Column::InstallType => Self::name(row.install_type.map(|kind| kind.name())),
            Column::SpreadId => Self::Number(key.spreadid.0),
            Column::Campaign => Self::text(campaign().map_or("", |found| &found.name).into()),
            Column::Channel => Self::text(channel_name(policy, key.pid, key.spreadid).into()),
            Column::MatchType => Self::name(row.match_type.map(|kind| kind.name())),
            Column::TouchType => Self::name(row.touch_kind.map(TouchKind::name)),
            Column::TouchTime => Self::time(row.touch_time),
            Column::ActivationTime => Self::time(row.activation_time),
            Column::InstallBeginTime => Self::time(row.install_begin_time()),
            Column::RejectReason => Self::name(row.reject_reason.map(|reason| reason.name())),
            Column::Contributor(index, part) => {
                let Some(contributor) = row.contributor(index) else { return Self::Empty };
                let spreadid = contributor.spreadid;
                match part {
                    ContributorPart::SpreadId => Self::Number(spreadid.0),
                    ContributorPart::Channel => {
                        Self::text(channel_name(policy, key.pid, spreadid).into())
                    }
                    ContributorPart::TouchType => Self::Name(contributor.kind.name()),
                    ContributorPart::TouchTime => Self::Time(contributor.time),
                    ContributorPart::MatchType => Self::Name(contributor.match_type.name()),
                }
            }
        }
    }

    fn stored(cell: TextCell, text: &'a str) -> Self {
        match cell {
            _ if text.is_empty() => Self::Empty,
            TextCell::Revenue | TextCell::TouchLookback => Self::Decimal(text),
            TextCell::Props
            | TextCell::Contributor1Params
            | TextCell::Contributor2Params
            | TextCell::Contributor3Params => Self::Json(text),
            _ => Self::Text(text.into()),
        }
    }

    pub fn text(text: Cow<'a, str>) -> Self {
        if text.is_empty() { Self::Empty } else { Self::Text(text) }
    }

    pub fn name(name: Option<&'static str>) -> Self {
        name.map_or(Self::Empty, Self::Name)
    }

    fn time(time: Option<EventTime>) -> Self {
        time.map_or(Self::Empty, Self::Time)
    }
}
