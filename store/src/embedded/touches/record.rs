//! The record of a table of touches in `meta`, and the choice of the table for a day.

use std::collections::BTreeMap;

use attribution::facts::event::{EventTime, Family, Pid};
use attribution::rules::policy::{DAY_MS, LOOKBACK_MAX_MS};

use crate::expiry::Expiry;
use crate::layout::codec::{Input, event_time};

/// The start of the keys of these records, followed by the number of the table as u32.
pub const TOUCH_TABLE: &[u8] = b"touch_table/";

/// The UTC day of an event time, counted from 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(pub u32);

impl Day {
    pub fn of(time: EventTime) -> Self {
        // The last event time is in the year 9999, about day 3,000,000.
        Self((time.millis() / DAY_MS) as u32)
    }

    /// The last millisecond of the day.
    fn end(self) -> EventTime {
        EventTime::default().plus((u64::from(self.0) + 1) * DAY_MS - 1)
    }
}

/// The first and the last day of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Days {
    pub first: Day,
    pub last: Day,
}

impl Days {
    pub fn one(day: Day) -> Self {
        Self { first: day, last: day }
    }

    pub fn contain(&self, day: Day) -> bool {
        (self.first..=self.last).contains(&day)
    }

    /// True if a day is in both.
    pub fn overlap(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    pub fn count(&self) -> u32 {
        self.last.0.abs_diff(self.first.0).saturating_add(1)
    }

    /// Returns the days with another one.
    pub fn with(self, day: Day) -> Self {
        Self { first: self.first.min(day), last: self.last.max(day) }
    }
}

/// Which days a table has, and until when its touches are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRecord {
    pub days: Days,
    apps: BTreeMap<Pid, AppTouches>,
}

/// The touches of one app in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AppTouches {
    last: Day,
    /// The longest lookback that a touch has of its own, in days, rounded up.
    lookback_days: u8,
}

impl TableRecord {
    pub fn new(day: Day) -> Self {
        Self { days: Days::one(day), apps: BTreeMap::new() }
    }

    /// Adds a touch. Returns whether this changes the record.
    pub fn add(&mut self, pid: Pid, day: Day, lookback_ms: Option<u64>) -> bool {
        let lookback_ms = lookback_ms.unwrap_or(0).min(LOOKBACK_MAX_MS);
        let lookback_days = lookback_ms.div_ceil(DAY_MS) as u8;
        let added = AppTouches { last: day, lookback_days };
        let before = (self.days, self.apps.get(&pid).copied());
        self.days = self.days.with(day);
        let app = self.apps.entry(pid).or_insert(added);
        app.last = app.last.max(day);
        app.lookback_days = app.lookback_days.max(lookback_days);
        before != (self.days, Some(*app))
    }

    /// Returns the record of the touches of both.
    pub fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        union.days = union.days.with(other.days.first).with(other.days.last);
        for (pid, AppTouches { last, lookback_days }) in &other.apps {
            union.add(*pid, *last, Some(u64::from(*lookback_days) * DAY_MS));
        }
        union
    }

    /// Checks whether no decision can need a touch of the table any more. A record without apps is damage, and says
    /// nothing about that.
    pub fn has_expired(&self, expiry: &Expiry) -> bool {
        let has_expired = |(pid, app): (&Pid, &AppTouches)| {
            let lookback_ms = u64::from(app.lookback_days) * DAY_MS;
            app.last.end() < expiry.oldest_record(*pid, Family::Touch, Some(lookback_ms))
        };
        !self.apps.is_empty() && self.apps.iter().all(has_expired)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(8 + 9 * self.apps.len());
        value.extend(self.days.first.0.to_be_bytes());
        value.extend(self.days.last.0.to_be_bytes());
        for (pid, app) in &self.apps {
            value.extend(pid.0.to_be_bytes());
            value.extend(app.last.0.to_be_bytes());
            value.push(app.lookback_days);
        }
        value
    }

    /// `None` if the bytes are not a record.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let mut input = Input::new(value);
        let days = Days { first: day(&mut input)?, last: day(&mut input)? };
        let mut record = Self { days, apps: BTreeMap::new() };
        while !input.rest().is_empty() {
            let pid = Pid(u32::from_be_bytes(input.bytes().ok()?));
            let (last, lookback_days) = (day(&mut input)?, input.byte().ok()?);
            record.apps.insert(pid, AppTouches { last, lookback_days });
        }
        let is_possible = |app: &AppTouches| days.contain(app.last);
        (days.first <= days.last && record.apps.values().all(is_possible)).then_some(record)
    }
}

fn day(input: &mut Input<'_>) -> Option<Day> {
    let day = u32::from_be_bytes(input.bytes().ok()?);
    event_time(u64::from(day) * DAY_MS).map(|_| Day(day))
}

/// The table for a day that no table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// The table at this index, whose days are extended.
    Extended(usize),
    New,
}

/// The number of days that may share a new day's table, by the number of tables: days get tables of their own while
/// there are few. By default touches are needed for 14 days, so there are at most 17 while the low watermark is up to
/// date. With very old, very shuffled or never expiring touches, weeks share one, then months and years, and
/// finally all days between two other tables, so their number is bounded.
const SHARED_DAYS: [(usize, u32); 5] =
    [(24, 1), (32, 7), (40, 28), (48, 364), (usize::MAX, u32::MAX)];

/// The number of days that share a table as long as no day has many touches. Each table costs time when a store is
/// opened, and when it is created or dropped.
const QUIET_DAYS: u32 = 7;

/// Chooses the table for a day that none of the tables has. `tables` are their days, newest first, without overlap.
/// `is_busy` says whether days have so many touches that they are worth tables of their own.
pub fn place(tables: &[Days], day: Day, is_busy: bool) -> Placement {
    let shared = SHARED_DAYS.iter().find(|(count, _)| tables.len() < *count);
    let shared_days = shared.map_or(u32::MAX, |(_, days)| *days);
    let shared_days = if is_busy { shared_days } else { shared_days.max(QUIET_DAYS) };
    let is_near = |other: Day| other.0 / shared_days == day.0 / shared_days;
    let older = tables.partition_point(|days| days.first > day);
    if tables.get(older).is_some_and(|days| is_near(days.first)) {
        return Placement::Extended(older);
    }
    let newer = older.checked_sub(1);
    let is_newer_near =
        newer.and_then(|index| tables.get(index)).is_some_and(|it| is_near(it.last));
    match newer.filter(|_| is_newer_near) {
        Some(index) => Placement::Extended(index),
        None => Placement::New,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use attribution::rules::policy::{AppPolicy, Policy};

    use super::*;

    const X: Pid = Pid(1);
    const Y: Pid = Pid(2);

    /// Returns the tables after touches of these days, newest first.
    fn placed(days: impl IntoIterator<Item = u32>, is_busy: bool) -> Vec<Days> {
        let mut tables: Vec<Days> = Vec::new();
        for day in days.into_iter().map(Day) {
            if tables.iter().any(|table| table.contain(day)) {
                continue;
            }
            match place(&tables, day, is_busy) {
                Placement::Extended(index) => tables[index] = tables[index].with(day),
                Placement::New => {
                    tables.push(Days::one(day));
                    tables.sort_by_key(|table| std::cmp::Reverse(table.first));
                }
            }
        }
        tables
    }

    #[track_caller]
    fn check_disjoint(tables: &[Days]) {
        assert!(tables.iter().all(|days| days.first <= days.last), "{tables:?}");
        assert!(tables.windows(2).all(|pair| pair[0].first > pair[1].last), "{tables:?}");
        assert!(tables.len() <= 48, "{}", tables.len());
    }

    #[test]
    fn days_overlap_if_they_have_one_in_common() {
        let days = |first, last| Days { first: Day(first), last: Day(last) };
        for other in [days(5, 7), days(1, 5), days(7, 9), days(6, 6), days(1, 9)] {
            assert!(days(5, 7).overlap(other) && other.overlap(days(5, 7)), "{other:?}");
        }
        for other in [days(1, 4), days(8, 9)] {
            assert!(!days(5, 7).overlap(other) && !other.overlap(days(5, 7)), "{other:?}");
        }
    }

    #[test]
    fn few_busy_days_have_tables_of_their_own() {
        let tables = placed(19_000..19_024, true);
        assert_eq!(tables.len(), 24);
        assert!(tables.iter().all(|days| days.first == days.last));
        check_disjoint(&tables);
    }

    #[test]
    fn quiet_days_share_the_tables_of_their_weeks() {
        // Day 19,005 is the first of a week.
        let expected = [(19_026, 19_029), (19_019, 19_025), (19_012, 19_018), (19_005, 19_011)];
        let expected = expected.map(|(first, last)| Days { first: Day(first), last: Day(last) });
        assert_eq!(placed(19_005..19_030, false), expected);
        assert_eq!(placed((19_005..19_030).rev(), false), expected);
    }

    #[test]
    fn the_number_of_tables_is_bounded_in_every_order() {
        for is_busy in [false, true] {
            check_disjoint(&placed(0..20_000, is_busy));
            check_disjoint(&placed((0..20_000).rev(), is_busy));
            // A step that is coprime to the number of days visits all of them.
            check_disjoint(&placed((0..20_000).map(|n| n * 7_919 % 20_000), is_busy));
            let ends = (0..100_u32).map(|n| if n.is_multiple_of(2) { n } else { 2_900_000 - n });
            check_disjoint(&placed(ends, is_busy));
        }
    }

    #[test]
    fn many_days_share_the_tables_of_their_weeks() {
        let tables = placed(7_000..7_100, true);
        let long = tables.iter().filter(|days| days.first != days.last);
        let weeks: BTreeSet<u32> = long.map(|days| days.first.0 / 7).collect();
        assert!(weeks.len() >= 8, "{tables:?}");
        check_disjoint(&tables);
    }

    #[test]
    fn records_are_decoded_as_they_were_encoded() {
        let mut record = TableRecord::new(Day(19_000));
        assert!(record.add(X, Day(19_000), None));
        assert!(!record.add(X, Day(19_000), Some(0)));
        assert!(record.add(X, Day(19_002), Some(DAY_MS + 1)));
        assert!(!record.add(X, Day(19_001), Some(2 * DAY_MS)));
        assert!(record.add(Y, Day(18_999), Some(u64::MAX)));
        assert_eq!(record.days, Days { first: Day(18_999), last: Day(19_002) });
        let value = record.encode();
        assert_eq!(TableRecord::decode(&value), Some(record.clone()));
        assert_eq!(TableRecord::decode(&value[..value.len() - 1]), None, "cut");
        assert_eq!(TableRecord::decode(&[0xff; 8]), None, "days after the year 9999");
        let mut crossed = value;
        crossed[..4].copy_from_slice(&20_000_u32.to_be_bytes());
        assert_eq!(TableRecord::decode(&crossed), None, "the first day is after the last");
        let other = TableRecord::new(Day(19_010));
        assert_eq!(record.union(&other).days.last, Day(19_010));
        assert_eq!(record.union(&record), record);
    }

    /// An app keeps touches for 14 days and ten minutes, by default.
    #[test]
    fn a_table_expires_when_its_last_touch_does() {
        let mut app = AppPolicy::new(X, "x");
        app.fraud.clicks_per_device_max = 0;
        let expiry = Expiry::new(&Policy::new(vec![app], vec![]), |_| None);
        let mut record = TableRecord::new(Day(100));
        record.add(X, Day(100), None);
        let last = Day(100).end();
        let kept_ms = 14 * DAY_MS + 10 * 60_000;
        expiry.until().advance(last.plus(kept_ms));
        assert!(!record.has_expired(&expiry), "a touch of the last millisecond is needed");
        let mut long = record.clone();
        long.add(X, Day(100), Some(29 * DAY_MS + 1));
        let mut other = record.clone();
        other.add(Y, Day(100), None);
        expiry.until().advance(last.plus(kept_ms + 1));
        assert!(record.has_expired(&expiry));
        assert!(!long.has_expired(&expiry));
        expiry.until().advance(last.plus(kept_ms + 23 * DAY_MS));
        assert!(!long.has_expired(&expiry), "30 days and the horizon have not passed");
        expiry.until().advance(last.plus(kept_ms + 23 * DAY_MS + 1));
        assert!(long.has_expired(&expiry));
        assert!(!other.has_expired(&expiry), "touches of unknown apps are kept for ever");
        assert!(!TableRecord::new(Day(100)).has_expired(&expiry), "the record lacks its apps");
    }
}
