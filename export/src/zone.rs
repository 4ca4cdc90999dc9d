//! Time zones by their IANA name, and times written in one.

use attribution::event::EventTime;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};

use crate::nearest::nearest;

/// A time zone of those that the program carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    zone: TimeZone,
    name: Box<str>,
}

/// Holds no time.
const EMPTY: Interval = Interval { from_ms: 0, until_ms: 0, offset_minutes: 0 };
const INTERVALS_KEPT: usize = 4;
const DAY_MS: i64 = 86_400_000;

/// Writes times in one zone, remembering where its offset changes.
#[derive(Debug)]
pub struct TimeWriter {
    /// `None`: UTC.
    zone: Option<TimeZone>,
    kept: [Interval; INTERVALS_KEPT],
    /// The place of the next interval to keep.
    next: usize,
}

/// A span of time in which a zone keeps one offset, half open.
#[derive(Debug, Clone, Copy)]
struct Interval {
    from_ms: i64,
    until_ms: i64,
    /// Few offsets had seconds, the last of them in 1972, and RFC 3339 has none: they are
    /// rounded, and the local time with them, so that the instant stays exact.
    offset_minutes: i32,
}

impl Zone {
    pub fn utc() -> Self {
        Self { zone: TimeZone::UTC, name: "UTC".into() }
    }

    /// # Errors
    /// The nearest name, where no zone has this one, in any case.
    pub fn parse(name: &str) -> Result<Self, String> {
        let zones = TimeZoneDatabase::bundled();
        let found = zones.get(name).ok().filter(|zone| !zone.is_unknown());
        let Some(zone) = found else {
            let names: Vec<String> = zones.available().map(|name| name.to_string()).collect();
            // Most people know their zone by its city.
            let city = names.iter().find(|known| {
                known.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(name))
            });
            let nearest = || nearest(name, names.iter().map(String::as_str));
            return Err(city.map(String::as_str).or_else(nearest).unwrap_or_default().into());
        };
        let name = zone.iana_name().unwrap_or(name).into();
        Ok(Self { zone, name })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// How far a local time is ahead of UTC. One that a change of offset skips, or repeats, has
    /// the offset from before the change.
    pub(crate) fn offset(&self, local: DateTime) -> SignedDuration {
        let offset = match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Gap { before, .. } | AmbiguousOffset::Fold { before, .. } => before,
        };
        SignedDuration::from_secs(offset.seconds().into())
    }
}

impl TimeWriter {
    pub fn new(zone: &Zone) -> Self {
        let is_utc = zone.zone == TimeZone::UTC;
        Self { zone: (!is_utc).then(|| zone.zone.clone()), kept: [EMPTY; INTERVALS_KEPT], next: 0 }
    }

    /// Appends the time as `2026-03-10T12:00:00.000Z`, or with the offset of the zone.
    pub fn write(&mut self, time: EventTime, out: &mut Vec<u8>) {
        let utc_ms = time.millis().cast_signed();
        let Some(zone) = &self.zone else {
            return write_utc(utc_ms, out);
        };
        let kept = self.kept.iter().find(|interval| interval.contains(utc_ms)).copied();
        let interval = kept.unwrap_or_else(|| {
            let interval = Interval::around(zone, utc_ms);
            self.kept[self.next] = interval;
            self.next = (self.next + 1) % INTERVALS_KEPT;
            interval
        });
        let local_ms = utc_ms + i64::from(interval.offset_minutes) * 60_000;
        if local_ms > EventTime::MAX.millis().cast_signed() {
            // There is no year 10000 in RFC 3339; this is the same instant.
            return write_utc(utc_ms, out);
        }
        let mut text = *b"0000-00-00T00:00:00.000+00:00";
        put_local(&mut text, local_ms);
        if interval.offset_minutes < 0 {
            text[23] = b'-';
        }
        let minutes = interval.offset_minutes.unsigned_abs();
        put(&mut text[24..26], minutes / 60);
        put(&mut text[27..29], minutes % 60);
        out.extend_from_slice(&text);
    }
}

impl Interval {
    fn contains(&self, utc_ms: i64) -> bool {
        self.from_ms <= utc_ms && utc_ms < self.until_ms
    }

    fn around(zone: &TimeZone, utc_ms: i64) -> Self {
        // The last hours of the year 9999 are after jiff's last instant: no zone changes there.
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

fn write_utc(utc_ms: i64, out: &mut Vec<u8>) {
    let mut text = *b"0000-00-00T00:00:00.000Z";
    put_local(&mut text, utc_ms);
    out.extend_from_slice(&text);
}

/// Fills in all digits up to the milliseconds.
#[inline]
fn put_local<const LEN: usize>(text: &mut [u8; LEN], local_ms: i64) {
    let (year, month, day) = civil(local_ms.div_euclid(DAY_MS));
    // Below a day, so it fits.
    let of_day_ms = local_ms.rem_euclid(DAY_MS) as u32;
    put(&mut text[..4], year);
    put(&mut text[5..7], month);
    put(&mut text[8..10], day);
    put(&mut text[11..13], of_day_ms / 3_600_000);
    put(&mut text[14..16], of_day_ms / 60_000 % 60);
    put(&mut text[17..19], of_day_ms / 1_000 % 60);
    put(&mut text[20..23], of_day_ms % 1_000);
}

/// The last digits of a number, as many as there is room for.
#[inline]
fn put(digits: &mut [u8], mut value: u32) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// Year, month and day of a day counted from 1970, of the years 1969 to 9999.
///
/// Years are taken to begin in March, so that the leap day is a year's last and the months
/// before any of them are always equally long: 153 days in five.
#[inline]
fn civil(day: i64) -> (u32, u32, u32) {
    /// From 0000-03-01 to 1970-01-01.
    const TO_1970: i64 = 719_468;
    const DAYS_OF_400_YEARS: u32 = 146_097;
    let day = (day + TO_1970) as u32;
    let of_cycle = day % DAYS_OF_400_YEARS;
    // A leap day is the last of its 4, and of its 400, years, and is missing from its 100.
    let leap_days = of_cycle / 1_460 - of_cycle / 36_524 + of_cycle / 146_096;
    let year_of_cycle = (of_cycle - leap_days) / 365;
    let of_year = of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let months_from_march = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * months_from_march + 2) / 5 + 1;
    let year = year_of_cycle + 400 * (day / DAYS_OF_400_YEARS);
    if months_from_march < 10 {
        (year, months_from_march + 3, day_of_month)
    } else {
        (year + 1, months_from_march - 9, day_of_month)
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use proptest::prelude::*;

    use super::*;

    fn written(zone: &str, millis: u64) -> String {
        let mut out = Vec::new();
        let time = EventTime::default().plus(millis);
        TimeWriter::new(&Zone::parse(zone).unwrap()).write(time, &mut out);
        String::from_utf8(out).unwrap()
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
    }

    #[track_caller]
    fn check_unknown(name: &str, nearest: &str) {
        assert_eq!(Zone::parse(name), Err(nearest.into()));
    }

    #[test]
    fn zones_have_iana_names() {
        assert_eq!(Zone::parse("asia/shanghai").unwrap().name(), "Asia/Shanghai");
        assert_eq!(Zone::parse("utc").unwrap(), Zone::utc());
        check_unknown("Asia/Shangai", "Asia/Shanghai");
        check_unknown("Europe/Berlim", "Europe/Berlin");
        check_unknown("shanghai", "Asia/Shanghai");
        check_unknown("Etc/Unknown", "Etc/UCT");
    }

    proptest! {
        #[test]
        fn a_kept_interval_gives_what_jiff_gives(
            millis in prop::collection::vec(0..4_102_444_800_000i64, 1..20),
            name in prop::sample::select(vec!["Europe/Berlin", "America/New_York", "Africa/Casablanca"]),
        ) {
            let zone = Zone::parse(name).unwrap();
            let mut writer = TimeWriter::new(&zone);
            for millis in millis {
                let mut out = Vec::new();
                writer.write(EventTime::from_millis(millis).unwrap(), &mut out);
                let time = Timestamp::from_millisecond(millis).unwrap();
                let expected = time.to_zoned(zone.zone.clone()).strftime("%Y-%m-%dT%H:%M:%S.%3f%:z");
                prop_assert_eq!(String::from_utf8(out).unwrap(), expected.to_string());
            }
        }

        #[test]
        fn days_are_those_of_the_calendar(day in -1..2_932_896i64) {
            let expected = date(1970, 1, 1) + SignedDuration::from_hours(24 * day);
            let expected = (expected.year() as u32, expected.month() as u32, expected.day() as u32);
            prop_assert_eq!(civil(day), expected);
        }
    }
}
