//! Time zones by their IANA name, and times written in one.

use attribution::facts::event::EventTime;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};

use crate::query::nearest::nearest;

/// A time zone of those that the program carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    zone: TimeZone,
    name: Box<str>,
}

/// By whichever it is asked for, it is one zone, and written with `Z`.
const UTC_NAMES: [&str; 8] =
    ["UTC", "UCT", "Universal", "Zulu", "Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu"];
/// Holds no time.
const EMPTY: Interval = Interval { from_ms: 0, until_ms: 0, offset_minutes: 0 };
const INTERVALS_KEPT: usize = 4;
/// Of the days around one, in which the times of a row mostly are; a power of two.
const DAYS_KEPT: usize = 16;
const DAY_MS: i64 = 86_400_000;
/// The numbers below 100 in two digits.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [*b"00"; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

/// How times are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeForm {
    /// `2026-03-10T12:00:00.000Z`, or with the offset of the zone.
    Rfc3339,
    /// `2026-03-10 12:00:00`, of the zone and without saying so.
    Plain,
}

/// Writes times in one zone, remembering where its offset changes, and the dates of days.
#[derive(Debug)]
pub struct TimeWriter {
    form: TimeForm,
    /// `None`: UTC.
    zone: Option<TimeZone>,
    kept: [Interval; INTERVALS_KEPT],
    /// The place of the next interval to keep.
    next: usize,
    dates: Dates,
}

/// The dates of days, each as it was last written: at the place of the day's number, modulo.
#[derive(Debug)]
struct Dates([(i64, [u8; 10]); DAYS_KEPT]);

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
        let name: Box<str> = zone.iana_name().unwrap_or(name).into();
        Ok(if UTC_NAMES.contains(&&*name) { Self::utc() } else { Self { zone, name } })
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
        Self::in_form(zone, TimeForm::Rfc3339)
    }

    pub(crate) fn in_form(zone: &Zone, form: TimeForm) -> Self {
        let is_utc = zone.zone == TimeZone::UTC;
        Self {
            form,
            zone: (!is_utc).then(|| zone.zone.clone()),
            kept: [EMPTY; INTERVALS_KEPT],
            next: 0,
            dates: Dates([(i64::MIN, [0; 10]); DAYS_KEPT]),
        }
    }

    /// Appends the time.
    #[inline]
    pub fn write(&mut self, time: EventTime, out: &mut Vec<u8>) {
        let utc_ms = time.millis().cast_signed();
        match self.interval(utc_ms) {
            interval if self.form == TimeForm::Plain => {
                let offset_minutes = interval.map_or(0, |interval| interval.offset_minutes);
                let local_ms = utc_ms + i64::from(offset_minutes) * 60_000;
                // The last hours of the year 9999 have no date east of London.
                self.dates.write_plain(local_ms.min(EventTime::MAX.millis().cast_signed()), out);
            }
            None => self.dates.write_utc(utc_ms, out),
            Some(interval) => self.write_within(interval, utc_ms, out),
        }
    }

    /// The day of the date that a time is written with, counted from 1970, and the offset in
    /// minutes.
    pub(crate) fn day(&mut self, time: EventTime) -> (i64, i32) {
        let utc_ms = time.millis().cast_signed();
        let offset_minutes = self.interval(utc_ms).map_or(0, |interval| interval.offset_minutes);
        let local_ms = utc_ms + i64::from(offset_minutes) * 60_000;
        match local_ms > EventTime::MAX.millis().cast_signed() {
            // As it is written.
            true => (utc_ms.div_euclid(DAY_MS), 0),
            false => (local_ms.div_euclid(DAY_MS), offset_minutes),
        }
    }

    /// The one that the time is in; `None` for UTC.
    #[inline]
    fn interval(&mut self, utc_ms: i64) -> Option<Interval> {
        let zone = self.zone.as_ref()?;
        let kept = self.kept.iter().find(|interval| interval.contains(utc_ms)).copied();
        Some(kept.unwrap_or_else(|| {
            let interval = Interval::around(zone, utc_ms);
            self.kept[self.next] = interval;
            self.next = (self.next + 1) % INTERVALS_KEPT;
            interval
        }))
    }

    fn write_within(&mut self, interval: Interval, utc_ms: i64, out: &mut Vec<u8>) {
        let local_ms = utc_ms + i64::from(interval.offset_minutes) * 60_000;
        if local_ms > EventTime::MAX.millis().cast_signed() {
            // There is no year 10000 in RFC 3339; this is the same instant.
            return self.dates.write_utc(utc_ms, out);
        }
        let mut text = *b"0000-00-00T00:00:00.000+00:00";
        self.dates.put_local(&mut text, local_ms);
        if interval.offset_minutes < 0 {
            text[23] = b'-';
        }
        let minutes = interval.offset_minutes.unsigned_abs();
        put_pair(&mut text, 24, minutes / 60);
        put_pair(&mut text, 27, minutes % 60);
        out.extend_from_slice(&text);
    }
}

/// A time as RFC 3339 has it, which has no year 10000: the end of all times is told as the last.
pub(crate) fn in_utc(time: EventTime) -> String {
    let mut text = Vec::new();
    TimeWriter::new(&Zone::utc()).write(time.min(EventTime::MAX), &mut text);
    String::from_utf8_lossy(&text).into_owned()
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

impl Dates {
    fn write_utc(&mut self, utc_ms: i64, out: &mut Vec<u8>) {
        let mut text = *b"0000-00-00T00:00:00.000Z";
        self.put_local(&mut text, utc_ms);
        out.extend_from_slice(&text);
    }

    fn write_plain(&mut self, local_ms: i64, out: &mut Vec<u8>) {
        let mut text = *b"0000-00-00 00:00:00.000";
        self.put_local(&mut text, local_ms);
        out.extend_from_slice(&text[..19]);
    }

    /// Fills in all digits up to the milliseconds.
    #[inline]
    fn put_local<const LEN: usize>(&mut self, text: &mut [u8; LEN], local_ms: i64) {
        text[..10].copy_from_slice(self.date(local_ms.div_euclid(DAY_MS)));
        // Below a day, so it fits.
        let of_day_ms = local_ms.rem_euclid(DAY_MS) as u32;
        let (of_day_s, ms) = (of_day_ms / 1_000, of_day_ms % 1_000);
        put_pair(text, 11, of_day_s / 3_600);
        put_pair(text, 14, of_day_s / 60 % 60);
        put_pair(text, 17, of_day_s % 60);
        // Below 10, so one digit.
        text[20] = PAIRS[(ms / 100) as usize][1];
        put_pair(text, 21, ms % 100);
    }

    /// The date of a day counted from 1970.
    #[inline]
    fn date(&mut self, day: i64) -> &[u8; 10] {
        let (kept_day, date) = &mut self.0[day.rem_euclid(DAYS_KEPT as i64) as usize];
        if *kept_day != day {
            (*kept_day, *date) = (day, date_text(day));
        }
        date
    }
}

/// The date of a day counted from 1970.
pub(crate) fn date_text(day: i64) -> [u8; 10] {
    let (year, month, day) = civil(day);
    let mut text = *b"0000-00-00";
    put_pair(&mut text, 0, year / 100);
    put_pair(&mut text, 2, year % 100);
    put_pair(&mut text, 5, month);
    put_pair(&mut text, 8, day);
    text
}

/// Two digits, at a place.
#[inline]
fn put_pair<const LEN: usize>(text: &mut [u8; LEN], place: usize, value: u32) {
    text[place..place + 2].copy_from_slice(&PAIRS[value as usize]);
}

/// Year, month and day of a day counted from 1970, of the years 1969 to 9999.
///
/// Years are taken to begin in March, so that the leap day is a year's last and the months
/// before any of them are always equally long: 153 days in five.
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

    #[test]
    fn days_at_one_place_keep_apart() {
        let mut writer = TimeWriter::new(&Zone::utc());
        let mut check = |day: i64, expected: &str| {
            let mut out = Vec::new();
            writer.write(EventTime::from_millis(day * DAY_MS + 3_723_004).unwrap(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{expected}T01:02:03.004Z"));
        };
        for _ in 0..2 {
            check(0, "1970-01-01");
            check(DAYS_KEPT as i64, "1970-01-17");
            check(1, "1970-01-02");
        }
    }

    #[track_caller]
    fn check_unknown(name: &str, nearest: &str) {
        assert_eq!(Zone::parse(name), Err(nearest.into()));
    }

    #[test]
    fn zones_have_iana_names() {
        assert_eq!(Zone::parse("asia/shanghai").unwrap().name(), "Asia/Shanghai");
        for name in ["utc", "Etc/UTC", "zulu", "etc/uct", "Universal"] {
            assert_eq!(Zone::parse(name).unwrap(), Zone::utc(), "{name}");
        }
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
