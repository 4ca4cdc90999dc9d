//! The times of a request: an instant, a local date-time or a date.

use attribution::facts::event::EventTime;
use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time};

use crate::format::time::zone::Zone;

/// A parsed time parameter, whose time zone is not yet applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeParam {
    Day(Date),
    Local(DateTime),
    /// A local time and its offset from UTC.
    Instant(DateTime, SignedDuration),
}

const DATE_FORM: &str = "0000-00-00";
const MINUTE_FORM: &str = "00:00";
const SECOND_FORM: &str = "00:00:00";

/// Forms that [`TimeParam::parse`] accepts.
pub(crate) const FORMS: [&str; 3] = [
    "an RFC 3339 instant such as 2026-03-10T08:00:00+08:00",
    "a local date-time such as 2026-03-10T08:00",
    "a date such as 2026-03-10",
];

impl TimeParam {
    /// Parses a text; `None` if it has none of the [`FORMS`].
    pub fn parse(text: &str) -> Option<Self> {
        let (day, rest) = text.split_at_checked(DATE_FORM.len())?;
        let day: Date = has_form(day, DATE_FORM).then(|| day.parse().ok())??;
        if rest.is_empty() {
            return Some(Self::Day(day));
        }
        let rest = rest.strip_prefix(['T', 't', ' '])?;
        let end = rest.find(['Z', 'z', '+', '-', ' ']).unwrap_or(rest.len());
        let (time, offset) = rest.split_at_checked(end)?;
        let local = day.to_datetime(parse_time(time)?);
        match offset {
            "" => Some(Self::Local(local)),
            offset => Some(Self::Instant(local, parse_offset(offset)?)),
        }
    }

    /// Returns its first millisecond; `None` before 1970 and after 9999.
    pub fn start(self, zone: &Zone) -> Option<EventTime> {
        let (local, ahead) = match self {
            Self::Day(day) => {
                let midnight = day.to_datetime(Time::midnight());
                (midnight, zone.offset(midnight))
            }
            Self::Local(local) => (local, zone.offset(local)),
            Self::Instant(local, ahead) => (local, ahead),
        };
        let since_1970 = local.duration_since(Date::constant(1970, 1, 1).into()) - ahead;
        // Events have whole milliseconds: round up to the first one that is not before this time.
        let millis = (since_1970.as_nanos() + 999_999).div_euclid(1_000_000);
        i64::try_from(millis).ok().and_then(EventTime::from_millis)
    }

    /// Returns the exclusive end of 9999-12-31, which is at most [`EventTime::END`].
    fn end_of_last(day: Date, zone: &Zone) -> Option<EventTime> {
        Self::Day(day).start(zone)?;
        let last = Self::Local(day.at(23, 59, 59, 999_000_000)).start(zone);
        Some(last.filter(|last| *last < EventTime::MAX).map_or(EventTime::END, |last| last.plus(1)))
    }

    /// Returns the exclusive end of a range up to this time: the end of the day for a date, at most
    /// [`EventTime::END`].
    pub fn end(self, zone: &Zone) -> Option<EventTime> {
        match self {
            Self::Day(day) => match day.tomorrow() {
                Ok(tomorrow) => Self::Day(tomorrow).start(zone),
                Err(_) => Self::end_of_last(day, zone),
            },
            param => param.start(zone),
        }
    }
}

/// Parses a time of day. Refuses other forms of ISO 8601 that jiff accepts, and second 60, which jiff reads as 59.
fn parse_time(text: &str) -> Option<Time> {
    let is_time = match text.split_once('.') {
        None if has_form(text, MINUTE_FORM) => true,
        None => has_form(text, SECOND_FORM),
        Some((second, fraction)) => {
            let is_fraction = (1..=9).contains(&fraction.len())
                && fraction.bytes().all(|byte| byte.is_ascii_digit());
            has_form(second, SECOND_FORM) && is_fraction
        }
    };
    let is_leap_second = text.get(6..8) == Some("60");
    (is_time && !is_leap_second).then(|| text.parse().ok())?
}

fn parse_offset(text: &str) -> Option<SignedDuration> {
    let (sign, ahead) = text.split_at_checked(1)?;
    let is_offset = has_form(ahead, MINUTE_FORM);
    let ahead = || Some(parse_time(ahead)?.duration_since(Time::midnight()));
    match sign {
        "Z" | "z" => (text.len() == 1).then_some(SignedDuration::ZERO),
        "-" if is_offset => Some(-ahead()?),
        // An unescaped plus in a query arrives as a space.
        "+" | " " if is_offset => ahead(),
        _ => None,
    }
}

/// Matches a text against a form, in which 0 stands for a digit and any other character for itself.
fn has_form(text: &str, form: &str) -> bool {
    let is_same = |(byte, expected): (u8, u8)| match expected {
        b'0' => byte.is_ascii_digit(),
        _ => byte == expected,
    };
    text.len() == form.len() && text.bytes().zip(form.bytes()).all(is_same)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn format_time(time: Option<EventTime>) -> Option<String> {
        let millis = time?.millis().cast_signed();
        Some(Timestamp::from_millisecond(millis).map_or("last".into(), |time| time.to_string()))
    }

    #[track_caller]
    fn check(text: &str, zone: &str, start: &str) {
        let param = TimeParam::parse(text).expect("a time");
        assert_eq!(format_time(param.start(&Zone::parse(zone).unwrap())).as_deref(), Some(start));
    }

    #[track_caller]
    fn check_day(day: &str, zone: &str, start: &str, hours: u64) {
        check(day, zone, start);
        let (param, zone) = (TimeParam::parse(day).unwrap(), Zone::parse(zone).unwrap());
        let length = param.end(&zone).unwrap().since(param.start(&zone).unwrap());
        assert_eq!(length, Some(hours * 3_600_000));
    }

    #[track_caller]
    fn check_none(text: &str) {
        assert_eq!(TimeParam::parse(text), None, "{text:?}");
    }

    #[track_caller]
    fn check_outside(text: &str, zone: &str) {
        assert_eq!(TimeParam::parse(text).unwrap().start(&Zone::parse(zone).unwrap()), None);
    }

    #[test]
    fn instants_do_not_depend_on_the_zone() {
        for zone in ["UTC", "Asia/Shanghai"] {
            check("2026-03-10T08:00:00Z", zone, "2026-03-10T08:00:00Z");
            check("2026-03-10t08:00:00z", zone, "2026-03-10T08:00:00Z");
            check("2026-03-10 08:00Z", zone, "2026-03-10T08:00:00Z");
            check("2026-03-10T08:00:00+08:00", zone, "2026-03-10T00:00:00Z");
            check("2026-03-10T08:00:00 08:00", zone, "2026-03-10T00:00:00Z");
            check("2026-03-10 08:00 08:00", zone, "2026-03-10T00:00:00Z");
            check("2026-03-10T08:00:00-03:30", zone, "2026-03-10T11:30:00Z");
            check("2026-03-10T08:00:00.25-00:00", zone, "2026-03-10T08:00:00.25Z");
        }
    }

    #[test]
    fn local_times_are_in_the_zone() {
        check("2026-03-10T08:00", "UTC", "2026-03-10T08:00:00Z");
        check("2026-03-10T08:00", "Asia/Shanghai", "2026-03-10T00:00:00Z");
        check("2026-03-10 08:00:01.5", "Asia/Shanghai", "2026-03-10T00:00:01.5Z");
        check("2026-03-10T08:00", "America/New_York", "2026-03-10T12:00:00Z");
    }

    #[test]
    fn fractions_of_a_millisecond_are_rounded_up() {
        check("2026-03-10T08:00:00.000000001Z", "UTC", "2026-03-10T08:00:00.001Z");
        check("2026-03-10T08:00:00.001000000Z", "UTC", "2026-03-10T08:00:00.001Z");
        check("2026-03-10T07:59:59.9999Z", "UTC", "2026-03-10T08:00:00Z");
    }

    #[test]
    fn days_have_23_to_25_hours_when_clocks_change() {
        check_day("2026-03-10", "UTC", "2026-03-10T00:00:00Z", 24);
        check_day("2026-03-10", "+08:00", "2026-03-09T16:00:00Z", 24);
        check_day("2026-03-29", "Europe/Berlin", "2026-03-28T23:00:00Z", 23);
        check_day("2026-10-25", "Europe/Berlin", "2026-10-24T22:00:00Z", 25);
        check_day("2026-03-08", "America/New_York", "2026-03-08T05:00:00Z", 23);
        check_day("2026-11-01", "America/New_York", "2026-11-01T04:00:00Z", 25);
        // Clocks change at midnight.
        check_day("2018-11-04", "America/Sao_Paulo", "2018-11-04T03:00:00Z", 23);
        check_day("2018-02-17", "America/Sao_Paulo", "2018-02-17T02:00:00Z", 25);
        // This day was skipped.
        check_day("2011-12-30", "Pacific/Apia", "2011-12-30T10:00:00Z", 0);
    }

    #[test]
    fn a_skipped_or_repeated_time_has_the_offset_from_before() {
        check("2026-03-29T02:30", "Europe/Berlin", "2026-03-29T01:30:00Z");
        check("2026-10-25T02:30", "Europe/Berlin", "2026-10-25T00:30:00Z");
    }

    #[test]
    fn invalid_times_are_refused() {
        for text in ["", "now", "2026", "2026-3-10", "20260310", "2026-02-29", "2026-13-01"] {
            check_none(text);
        }
        for text in ["-000001-01-01", "10000-01-01", "+275760-09-13", "275760-09-13T00:00:00Z"] {
            check_none(text);
        }
        for time in ["", "8:00", "08", "24:00", "08:60", "08:00:60", "08:00:00.", "08:00:00,5"] {
            check_none(&format!("2026-03-10T{time}"));
        }
        for offset in ["+8", "+0800", "+24:00", "+08:60", "ZZ", "Z+08:00", "[Asia/Shanghai]", " "] {
            check_none(&format!("2026-03-10T08:00:00{offset}"));
        }
        for text in
            ["2026-03-10Z", "2026-03-10+08:00", " 2026-03-10", "2026-03-10_08:00", "٢٠٢٦-03-10"]
        {
            check_none(text);
        }
        check_none("2026-03-10T08:00:00.0000000001Z");
    }

    #[test]
    fn times_are_of_1970_to_9999() {
        check("1970-01-01", "UTC", "1970-01-01T00:00:00Z");
        check("1969-12-31T19:00", "America/New_York", "1970-01-01T00:00:00Z");
        check("9999-12-31T23:59:59.999Z", "UTC", "last");
        check("9999-12-31T23:59:59.999", "Asia/Shanghai", "last");
        check_outside("0000-01-01", "UTC");
        check_outside("1969-12-31T23:59:59Z", "UTC");
        check_outside("1970-01-01", "Asia/Shanghai");
        check_outside("9999-12-31T23:59:59.999-00:01", "UTC");
        check_outside("9999-12-31T20:00", "America/New_York");
        let end = |zone: &str| {
            TimeParam::parse("9999-12-31").unwrap().end(&Zone::parse(zone).unwrap()).unwrap()
        };
        assert_eq!((end("UTC"), end("America/New_York")), (EventTime::END, EventTime::END));
        assert_eq!(EventTime::END.since(end("Asia/Shanghai")), Some(8 * 3_600_000));
    }
}
