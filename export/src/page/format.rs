//! Formats numbers, sizes and dates for people.

use attribution::facts::event::EventTime;
use jiff::civil::Date;

use crate::Zone;
pub(super) use crate::format::time::writer::date as day;
use crate::format::time::writer::{TimeForm, TimeWriter};

/// Formats a number like `12,345`.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of rows like `1 row` or `2 rows`.
pub(super) fn rows(rows: u64) -> String {
    format!("{} {}", number(rows), if rows == 1 { "row" } else { "rows" })
}

/// Formats a size like `812 bytes` or `3.4 MB`. Units are powers of 1,000, as in most file managers.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1_000 {
        return format!("{bytes} {}", if bytes == 1 { "byte" } else { "bytes" });
    }
    let (mut value, mut unit) = (bytes as f64 / 1_000.0, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    let unit = UNITS[unit];
    if value < 9.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// Formats a date like `10 Mar 2026`.
pub(super) fn date(date: Date) -> String {
    date.strftime("%-d %b %Y").to_string()
}

/// Returns the current date in the zone.
pub(super) fn today(zone: &Zone, now: EventTime) -> Date {
    day(TimeWriter::new(zone).day(now).0)
}

/// Formats a time in the zone like `2026-03-10 12:00:00`.
pub(super) fn date_time(time: EventTime, zone: &Zone) -> String {
    TimeWriter::in_form(zone, TimeForm::Plain).text(time)
}

/// Formats days like `10 Mar 2026` or `9 Mar 2026 – 10 Mar 2026`.
pub(super) fn days(first: Date, last: Date) -> String {
    if first == last { date(first) } else { format!("{} – {}", date(first), date(last)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        for (value, expected) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")]
        {
            assert_eq!(number(value), expected);
        }
        assert_eq!([rows(1), rows(0)], ["1 row", "0 rows"]);
    }

    #[test]
    fn sizes_have_at_least_two_digits() {
        let check = |bytes, expected| assert_eq!(size(bytes), expected);
        check(0, "0 bytes");
        check(1, "1 byte");
        check(999, "999 bytes");
        check(1_000, "1.0 kB");
        check(9_940, "9.9 kB");
        check(9_960, "10 kB");
        check(999_499, "999 kB");
        check(999_500, "1.0 MB");
        check(3_400_000_000, "3.4 GB");
        check(u64::MAX, "18446744 TB");
    }

    #[test]
    fn days_are_in_the_zone() {
        let time = |text: &str| {
            let time: jiff::Timestamp = text.parse().unwrap();
            EventTime::from_millis(time.as_millisecond()).unwrap()
        };
        let shanghai = Zone::parse("Asia/Shanghai").unwrap();
        let late = time("2026-03-09T20:00:00Z");
        assert_eq!(date(today(&shanghai, late)), "10 Mar 2026");
        assert_eq!(date(today(&Zone::utc(), late)), "9 Mar 2026");
        assert_eq!(date_time(late, &shanghai), "2026-03-10 04:00:00");
        let (first, last) = (day(20_000), day(20_001));
        assert_eq!(
            [days(first, first), days(first, last)],
            ["4 Oct 2024", "4 Oct 2024 – 5 Oct 2024"]
        );
    }
}
