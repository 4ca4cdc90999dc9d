//! Writes times in a time zone.

use std::io::Write;

use attribution::facts::event::EventTime;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

use super::zone::Zone;
use crate::format::csv::cell::write_bytes;

/// Contains no time.
const EMPTY: Interval = Interval { from_ms: 0, until_ms: 0, offset_minutes: 0 };
const INTERVALS_CACHED: usize = 4;
/// Dates in the cache; the times of a row are mostly within days of each other. A power of two.
const DAYS_CACHED: usize = 16;
const DAY_MS: i64 = 86_400_000;
/// A time with its offset has 29 characters; 32 bytes are copied at once.
const TEXT_LEN: usize = 32;
/// The numbers from 0 to 99 as two digits.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [*b"00"; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

/// The format of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeForm {
    /// `2026-03-10T12:00:00.000Z`, or with the offset of the zone.
    Rfc3339,
    /// `2026-03-10 12:00:00`, in the zone, without an offset.
    Plain,
}

/// Writes times in one zone. It caches intervals of constant offset, and dates.
#[derive(Debug)]
pub struct TimeWriter {
    form: TimeForm,
    /// `None` for UTC.
    zone: Option<TimeZone>,
    cached: [Interval; INTERVALS_CACHED],
    /// Index at which the next interval is cached.
    next: usize,
    dates: Dates,
}

/// A cache of formatted dates, indexed by the number of the day modulo its size.
#[derive(Debug)]
struct Dates([(i64, [u8; 10]); DAYS_CACHED]);

/// A half-open interval in which a zone keeps one offset.
#[derive(Debug, Clone, Copy)]
struct Interval {
    from_ms: i64,
    until_ms: i64,
    /// Few offsets had seconds, the last of them in 1972, and RFC 3339 has none: they are rounded, and the local time
    /// with them, so that the instant stays exact.
    offset_minutes: i32,
}

impl TimeWriter {
    pub fn new(zone: &Zone) -> Self {
        Self::in_form(zone, TimeForm::Rfc3339)
    }

    pub(crate) fn in_form(zone: &Zone, form: TimeForm) -> Self {
        let is_utc = zone.zone == TimeZone::UTC;
        Self {
            form,
            zone: (!is_utc).then(|| zone.zone.clone()),
            cached: [EMPTY; INTERVALS_CACHED],
            next: 0,
            dates: Dates([(i64::MIN, *b"0000-00-00"); DAYS_CACHED]),
        }
    }

    /// Appends the time.
    #[inline]
    pub fn write(&mut self, time: EventTime, out: &mut Vec<u8>) {
        let (local_ms, offset_minutes) = self.local(time);
        let mut text = *b"0000-00-00T00:00:00.000+00:00   ";
        self.dates.put_local(&mut text, local_ms);
        let len = match (self.form, offset_minutes) {
            (TimeForm::Plain, _) => {
                text[10] = b' ';
                19
            }
            (TimeForm::Rfc3339, None) => {
                text[23] = b'Z';
                24
            }
            (TimeForm::Rfc3339, Some(minutes)) => {
                text[23] = if minutes < 0 { b'-' } else { b'+' };
                put_pair(&mut text, 24, minutes.unsigned_abs() / 60);
                put_pair(&mut text, 27, minutes.unsigned_abs() % 60);
                29
            }
        };
        write_bytes(&text, len, out);
    }

    /// Returns the time as [`TimeWriter::write`] writes it.
    pub(crate) fn text(&mut self, time: EventTime) -> String {
        let mut text = Vec::new();
        self.write(time, &mut text);
        String::from_utf8(text).unwrap_or_default()
    }

    /// Returns the local day of a time, in days since 1970-01-01, and the offset in minutes.
    pub(crate) fn day(&mut self, time: EventTime) -> (i64, i32) {
        let (local_ms, offset_minutes) = self.local(time);
        (local_ms.div_euclid(DAY_MS), offset_minutes.unwrap_or(0))
    }

    /// Returns the local time in milliseconds, and its offset in minutes; `None` for UTC.
    #[inline]
    fn local(&mut self, time: EventTime) -> (i64, Option<i32>) {
        let utc_ms = time.millis().cast_signed();
        let Some(Interval { offset_minutes, .. }) = self.interval(utc_ms) else {
            return (utc_ms, None);
        };
        let local_ms = utc_ms + i64::from(offset_minutes) * 60_000;
        // RFC 3339 has no year 10000; the same instant can be written in UTC.
        match local_ms > EventTime::MAX.millis().cast_signed() {
            true => (utc_ms, None),
            false => (local_ms, Some(offset_minutes)),
        }
    }

    /// Returns the interval of a time; `None` for UTC.
    #[inline]
    fn interval(&mut self, utc_ms: i64) -> Option<Interval> {
        let zone = self.zone.as_ref()?;
        let cached = self.cached.iter().find(|interval| interval.contains(utc_ms)).copied();
        Some(cached.unwrap_or_else(|| {
            let interval = Interval::around(zone, utc_ms);
            self.cached[self.next] = interval;
            self.next = (self.next + 1) % INTERVALS_CACHED;
            interval
        }))
    }
}

/// Formats a time in UTC. RFC 3339 has no year 10000, so [`EventTime::END`] is written as the millisecond before it.
pub(crate) fn in_utc(time: EventTime) -> String {
    TimeWriter::new(&Zone::utc()).text(time.min(EventTime::MAX))
}

pub(crate) fn now() -> EventTime {
    EventTime::from_millis(Timestamp::now().as_millisecond()).unwrap_or_default()
}

impl Interval {
    fn contains(&self, utc_ms: i64) -> bool {
        self.from_ms <= utc_ms && utc_ms < self.until_ms
    }

    fn around(zone: &TimeZone, utc_ms: i64) -> Self {
        // The last hours of the year 9999 are after jiff's last instant; no zone changes there.
        let at = Timestamp::from_millisecond(utc_ms).unwrap_or(Timestamp::MAX);
        let after = at.checked_add(SignedDuration::from_nanos(1)).unwrap_or(at);
        let from = zone.preceding(after).next().map(|change| change.timestamp());
        let until = zone.following(at).next().map(|change| change.timestamp());
        let seconds = zone.to_offset(at).seconds();
        Self {
            from_ms: from.map_or(i64::MIN, Timestamp::as_millisecond),
            until_ms: until.map_or(i64::MAX, Timestamp::as_millisecond),
            offset_minutes: (seconds + 30).div_euclid(60),
        }
    }
}

impl Dates {
    /// Fills in the date and the time of day, up to milliseconds.
    #[inline]
    fn put_local(&mut self, text: &mut [u8; TEXT_LEN], local_ms: i64) {
        text[..10].copy_from_slice(self.text(local_ms.div_euclid(DAY_MS)));
        // Less than a day, so it fits.
        let of_day_ms = local_ms.rem_euclid(DAY_MS) as u32;
        let (of_day_s, ms) = (of_day_ms / 1_000, of_day_ms % 1_000);
        put_pair(text, 11, of_day_s / 3_600);
        put_pair(text, 14, of_day_s / 60 % 60);
        put_pair(text, 17, of_day_s % 60);
        // Less than 10, so one digit.
        text[20] = PAIRS[(ms / 100) as usize][1];
        put_pair(text, 21, ms % 100);
    }

    #[inline]
    fn text(&mut self, day: i64) -> &[u8; 10] {
        let (kept_day, text) = &mut self.0[day.rem_euclid(DAYS_CACHED as i64) as usize];
        if *kept_day != day {
            *kept_day = day;
            // Ten characters; writing to memory cannot fail.
            let _ = write!(&mut text[..], "{}", date(day));
        }
        text
    }
}

/// Returns the date of a day since 1970-01-01.
pub(crate) fn date(day: i64) -> Date {
    Date::constant(1970, 1, 1).checked_add(day.days()).unwrap_or(Date::MAX)
}

/// Writes two digits at an index.
#[inline]
fn put_pair(text: &mut [u8; TEXT_LEN], index: usize, value: u32) {
    text[index..index + 2].copy_from_slice(&PAIRS[value as usize]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(zone: &str, millis: u64) -> String {
        TimeWriter::new(&Zone::parse(zone).unwrap()).text(EventTime::default().plus(millis))
    }

    #[track_caller]
    fn check(zone: &str, utc: &str, expected: &str) {
        let millis = utc.parse::<Timestamp>().unwrap().as_millisecond();
        assert_eq!(written(zone, millis.cast_unsigned()), expected);
    }

    #[test]
    fn times_are_written_in_their_zone() {
        check("UTC", "2026-03-10T12:00:00Z", "2026-03-10T12:00:00.000Z");
        check("utc", "1970-01-01T00:00:00.009Z", "1970-01-01T00:00:00.009Z");
        check("Asia/Shanghai", "2026-03-10T16:00:00.123Z", "2026-03-11T00:00:00.123+08:00");
        check("Europe/London", "2026-01-10T12:00:00Z", "2026-01-10T12:00:00.000+00:00");
        check("America/St_Johns", "2026-01-10T00:00:00Z", "2026-01-09T20:30:00.000-03:30");
        check("America/New_York", "1970-01-01T00:00:00Z", "1969-12-31T19:00:00.000-05:00");
        check("Africa/Monrovia", "1971-01-01T00:00:00Z", "1970-12-31T23:16:00.000-00:44");
        check("UTC", "2024-02-29T23:59:59.999Z", "2024-02-29T23:59:59.999Z");
        check("+08:00", "2026-03-10T16:00:00.123Z", "2026-03-11T00:00:00.123+08:00");
        check("-0530", "2026-03-10T00:00:00Z", "2026-03-09T18:30:00.000-05:30");
        check("+00:00", "2026-03-10T12:00:00Z", "2026-03-10T12:00:00.000Z");
    }

    #[test]
    fn the_offset_changes_at_its_instant() {
        check("Europe/Berlin", "2026-03-29T00:59:59.999Z", "2026-03-29T01:59:59.999+01:00");
        check("Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-29T03:00:00.000+02:00");
        check("Europe/Berlin", "2026-10-25T00:59:59.999Z", "2026-10-25T02:59:59.999+02:00");
        check("Europe/Berlin", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00.000+01:00");
    }

    #[test]
    fn the_last_times_are_written() {
        let last = EventTime::MAX.millis();
        assert_eq!(written("UTC", last), "9999-12-31T23:59:59.999Z");
        assert_eq!(written("Asia/Shanghai", last), "9999-12-31T23:59:59.999Z");
        assert_eq!(written("America/New_York", last), "9999-12-31T18:59:59.999-05:00");
        assert_eq!(written("+23:59", last), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn days_with_one_cache_index_do_not_mix() {
        let mut writer = TimeWriter::new(&Zone::utc());
        let mut check = |day: i64, expected: &str| {
            let time = EventTime::from_millis(day * DAY_MS + 3_723_004).unwrap();
            assert_eq!(writer.text(time), format!("{expected}T01:02:03.004Z"));
        };
        for _ in 0..2 {
            check(0, "1970-01-01");
            check(DAYS_CACHED as i64, "1970-01-17");
            check(1, "1970-01-02");
        }
    }

    proptest! {
        #[test]
        fn cached_intervals_agree_with_jiff(
            millis in prop::collection::vec(0..4_102_444_800_000i64, 1..20),
            name in prop::sample::select(vec!["Europe/Berlin", "America/New_York", "Africa/Casablanca"]),
        ) {
            let zone = Zone::parse(name).unwrap();
            let mut writer = TimeWriter::new(&zone);
            for millis in millis {
                let written = writer.text(EventTime::from_millis(millis).unwrap());
                let time = Timestamp::from_millisecond(millis).unwrap();
                let expected = time.to_zoned(zone.zone.clone()).strftime("%Y-%m-%dT%H:%M:%S.%3f%:z");
                prop_assert_eq!(written, expected.to_string());
            }
        }
    }
}
