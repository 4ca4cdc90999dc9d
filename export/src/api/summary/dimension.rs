//! The dimensions by which a summary groups rows.

use std::collections::HashSet;
use std::sync::Arc;

use attribution::facts::event::EventTime;
use attribution::rules::policy::Policy;
use config::nearest::nearest;
use store::layout::summary_counts::{QUARTER_MS, SummaryKey, quarter_start};

use crate::ExportError;
use crate::Zone;
use crate::format::columns::channel::channel_name;
use crate::format::time::writer::TimeWriter;
use crate::query::parameter::{BY, bad};

attribution::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Dimension {
        /// The date of the event's time in the zone.
        Day = "day",
        EventType = "event_type",
        EventName = "event_name",
        Status = "status",
        InstallType = "install_type",
        SpreadId = "spreadid",
        Campaign = "campaign",
        Channel = "channel",
    }
}

/// The value of a dimension in a group; all values of one dimension are of one variant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Value {
    /// Days since 1970-01-01.
    Day(i64),
    Number(u32),
    Name(&'static str),
    /// Empty if the value is missing.
    Text(Arc<str>),
}

/// The different texts of a summary, each once: a long name may be in many groups.
#[derive(Default)]
pub(super) struct Texts {
    known: HashSet<Arc<str>>,
    bytes: usize,
}

impl Texts {
    pub fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.bytes += new.len();
        self.known.insert(Arc::clone(&new));
        new
    }

    /// Returns the total size of the texts.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Dimension {
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.into_iter().map(Self::name)
    }

    /// Parses the name of a dimension.
    pub fn parse(name: &str) -> Result<Self, ExportError> {
        Self::from_name(name).ok_or_else(|| {
            let nearest = nearest(name, Self::names()).unwrap_or_default();
            let problem = format!("unknown dimension, the nearest is {nearest:?}");
            bad(BY, problem, name, Self::names().collect())
        })
    }

    pub(super) fn of(
        self,
        day: i64,
        counted: &SummaryKey<'_>,
        policy: &Policy,
        texts: &mut Texts,
    ) -> Value {
        let SummaryKey { pid, spreadid, what, .. } = counted;
        match self {
            Self::Day => Value::Day(day),
            Self::EventType => Value::Name(what.event_type.name()),
            Self::EventName => Value::Text(texts.get(what.event_name)),
            Self::Status => Value::Name(what.status.name()),
            Self::InstallType => Value::Name(what.install_type.map_or("", |kind| kind.name())),
            Self::SpreadId => Value::Number(spreadid.0),
            Self::Campaign => {
                let campaign = policy.campaign(*pid, *spreadid);
                Value::Text(texts.get(campaign.map_or("", |found| &found.name)))
            }
            Self::Channel => Value::Text(texts.get(channel_name(policy, *pid, *spreadid))),
        }
    }
}

/// The local days of a time zone, as an export writes them.
pub(super) struct Days {
    times: TimeWriter,
    /// The last quarter and its day, because counts of one quarter follow each other.
    last: Option<(EventTime, Option<i64>)>,
}

impl Days {
    pub fn new(zone: &Zone) -> Self {
        Self { times: TimeWriter::new(zone), last: None }
    }

    pub fn of(&mut self, time: EventTime) -> i64 {
        self.times.day(time).0
    }

    /// Returns the day of a quarter of an hour. `None` if it spans two days or the zone's offset changes within it.
    pub fn of_quarter(&mut self, time: EventTime) -> Option<i64> {
        let start = quarter_start(time);
        if let Some((_, day)) = self.last.filter(|(last, _)| *last == start) {
            return day;
        }
        let first = self.times.day(start);
        let last = self.times.day(start.plus(QUARTER_MS - 1));
        let day = (first == last).then_some(first.0);
        self.last = Some((start, day));
        day
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> EventTime {
        let time: jiff::Timestamp = text.parse().unwrap();
        EventTime::from_millis(time.as_millisecond()).unwrap()
    }

    #[track_caller]
    fn check(zone: &str, time: &str, expected: Option<&str>) {
        let mut days = Days::new(&Zone::parse(zone).unwrap());
        let expected = expected.map(|date| at(&format!("{date}T00:00:00Z")).millis() / 86_400_000);
        assert_eq!(days.of_quarter(at(time)), expected.map(u64::cast_signed), "{zone} {time}");
    }

    #[test]
    fn a_quarter_of_an_hour_is_in_one_day_or_spans_two() {
        check("UTC", "2026-03-10T23:45:00Z", Some("2026-03-10"));
        check("Asia/Shanghai", "2026-03-10T16:00:00Z", Some("2026-03-11"));
        check("Asia/Kathmandu", "2026-03-10T18:00:00Z", Some("2026-03-10"));
        check("Asia/Kathmandu", "2026-03-10T18:15:00Z", Some("2026-03-11"));
        check("Europe/Berlin", "2026-10-25T01:00:00Z", Some("2026-10-25"));
        check("+05:45", "2026-03-10T18:15:00Z", Some("2026-03-11"));
        check("-03:37", "2026-03-10T03:30:00Z", None);
        // The offset was -00:44:30 until 1972.
        check("Africa/Monrovia", "1971-01-01T00:30:00Z", None);
        // Clocks went back at a minute past midnight.
        check("America/St_Johns", "2010-11-07T02:30:00Z", None);
        check("America/St_Johns", "2010-11-07T02:45:00Z", Some("2010-11-06"));
        check("America/St_Johns", "2010-11-07T03:30:00Z", Some("2010-11-07"));
    }
}
