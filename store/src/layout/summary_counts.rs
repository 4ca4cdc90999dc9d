//! Counts and revenue of rows by app, quarter of an hour and the dimensions of a summary.
//!
//! The days of all present time zones begin at a quarter of an hour, so a day of any zone is a sum of counts. Every
//! write batch updates the counts of its rows by merges; removals are merged as negative counts.

use std::ops::Range;

use attribution::facts::event::{EventTime, Pid, SpreadId};
use attribution::rules::row::{EventType, InstallType, Row, Status};
use rocksdb::MergeOperands;
use xxhash_rust::xxh3::Xxh3Default;

use super::codec::row::{RowView, TextCell};
use super::codec::{Input, choose, choose_option, code, event_time, put_signed, put_varint};
use super::decimal_sum::Amount;
use super::key::RowKey;

/// The span of event time that a count covers.
pub const QUARTER_MS: u64 = 15 * 60_000;

/// pid u32 · quarters of an hour since 1970 u32.
pub const PREFIX_BYTES: usize = 8;

/// The dimensions that the rows of a count share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummaryKey<'a> {
    pub pid: Pid,
    /// Any time within the quarter; after decoding, its start.
    pub time: EventTime,
    pub spreadid: SpreadId,
    pub what: Dimensions<'a>,
}

/// The part of a [`SummaryKey`] that is not in a row's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dimensions<'a> {
    pub event_type: EventType,
    pub status: Status,
    pub install_type: Option<InstallType>,
    pub event_name: &'a str,
    pub currency: &'a str,
}

/// The number of rows and the sum of their revenue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub rows: i64,
    pub revenue: Amount,
}

impl<'a> Dimensions<'a> {
    pub fn of(row: &'a Row) -> Self {
        Self {
            event_type: row.event_type,
            status: row.status,
            install_type: row.install_type,
            event_name: &row.event_name,
            currency: &row.currency,
        }
    }

    pub fn of_view(row: &RowView<'a>) -> Self {
        Self {
            event_type: row.event_type,
            status: row.status,
            install_type: row.install_type,
            event_name: row.text(TextCell::EventName),
            currency: row.text(TextCell::Currency),
        }
    }
}

impl<'a> SummaryKey<'a> {
    pub fn new(key: &RowKey, what: Dimensions<'a>) -> Self {
        Self { pid: key.pid, time: key.event_time, spreadid: key.spreadid, what }
    }

    /// pid u32 · quarter u32 · spreadid u32 · event type, status, code of the install type · length of the currency,
    /// currency · the effect's name.
    pub fn encode(&self) -> Vec<u8> {
        let Dimensions { event_type, status, install_type, event_name, currency } = &self.what;
        let mut key = Vec::with_capacity(16 + currency.len() + event_name.len());
        key.extend_from_slice(&prefix(self.pid, self.time));
        key.extend_from_slice(&self.spreadid.0.to_be_bytes());
        key.push(code(&EventType::ALL, Some(event_type)).saturating_sub(1));
        key.push(code(&Status::ALL, Some(status)).saturating_sub(1));
        key.push(code(&InstallType::ALL, install_type.as_ref()));
        put_varint(&mut key, currency.len() as u64);
        key.extend_from_slice(currency.as_bytes());
        if *event_type == EventType::Effect {
            key.extend_from_slice(event_name.as_bytes());
        }
        key
    }

    /// `None` if the bytes are not such a key.
    pub fn decode(key: &'a [u8]) -> Option<Self> {
        let mut input = Input::new(key);
        let mut number = || input.bytes().ok().map(u32::from_be_bytes);
        let (pid, quarter, spreadid) = (Pid(number()?), number()?, SpreadId(number()?));
        let time = event_time(u64::from(quarter) * QUARTER_MS)?;
        let [event_type, status, install_type] = input.bytes().ok()?;
        let event_type = choose(&EventType::ALL, event_type).ok()?;
        let currency = input.text().ok()?;
        let name = std::str::from_utf8(input.rest()).ok()?;
        let event_name = match event_type {
            EventType::Effect => name,
            EventType::Activation if name.is_empty() => event_type.name(),
            EventType::Activation => return None,
        };
        let what = Dimensions {
            event_type,
            status: choose(&Status::ALL, status).ok()?,
            install_type: choose_option(&InstallType::ALL, install_type).ok()?,
            event_name,
            currency,
        };
        Some(Self { pid, time, spreadid, what })
    }
}

/// The first key of an app at or after the quarter that contains a time.
pub fn prefix(pid: Pid, time: EventTime) -> [u8; PREFIX_BYTES] {
    // Event times end before the year 10000, so quarters fit into 32 bits.
    let quarter = u32::try_from(time.millis() / QUARTER_MS).unwrap_or(u32::MAX);
    (u64::from(pid.0) << 32 | u64::from(quarter)).to_be_bytes()
}

/// The start of the quarter of an hour that contains a time.
pub fn quarter_start(time: EventTime) -> EventTime {
    time.minus(time.millis() % QUARTER_MS)
}

/// The largest part of a range that consists of whole quarters of an hour; `None` if it contains none.
pub fn whole_quarters(range: Range<EventTime>) -> Option<Range<EventTime>> {
    let first = event_time(range.start.millis().next_multiple_of(QUARTER_MS))?;
    let end = quarter_start(range.end);
    (first < end).then_some(first..end)
}

/// A hash of the dimensions that change only if the fact of an event is replaced; never 0.
pub fn fact_hash(event_name: &str, currency: &str, revenue: &str) -> u64 {
    let mut hasher = Xxh3Default::new();
    for text in [event_name, currency, revenue] {
        hasher.update(&(text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.digest().max(1)
}

impl Totals {
    /// The totals of one row. Revenue that is not a decimal counts as 0; decoding refuses such events.
    pub fn row(revenue: &str) -> Self {
        Self { rows: 1, revenue: Amount::parse(revenue).unwrap_or_default() }
    }

    /// Wraps around on overflow, like [`Cell::add`](super::hourly_counts::Cell::add).
    pub fn add(&mut self, other: &Self) {
        self.rows = self.rows.wrapping_add(other.rows);
        self.revenue.add(&other.revenue);
    }

    pub fn negated(&self) -> Self {
        Self { rows: self.rows.wrapping_neg(), revenue: self.revenue.negated() }
    }

    pub fn is_zero(&self) -> bool {
        self.rows == 0 && self.revenue.is_zero()
    }

    /// Rows as a zigzag varint; revenue as the shortest decimal, empty for 0.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(12);
        put_signed(&mut value, self.rows);
        if !self.revenue.is_zero() {
            value.extend_from_slice(self.revenue.to_string().as_bytes());
        }
        value
    }

    /// `None` if the bytes are not an encoded count.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let mut input = Input::new(value);
        let rows = input.signed().ok()?;
        let revenue = Amount::parse(std::str::from_utf8(input.rest()).ok()?)?;
        Some(Self { rows, revenue })
    }
}

/// RocksDB's merge operator for counts. Damaged values count as 0, so that they do not fail compactions; `adtrail
/// verify` finds them.
pub fn merge(_key: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut sum = existing.and_then(Totals::decode).unwrap_or_default();
    for count in operands.iter().filter_map(Totals::decode) {
        sum.add(&count);
    }
    Some(sum.encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> EventTime {
        EventTime::from_millis(millis).unwrap()
    }

    fn summary_key<'a>(time: EventTime, event_name: &'a str, currency: &'a str) -> SummaryKey<'a> {
        let what = Dimensions {
            event_type: EventType::Effect,
            status: Status::Attributed,
            install_type: Some(InstallType::Reinstall),
            event_name,
            currency,
        };
        SummaryKey { pid: Pid(7), time, spreadid: SpreadId(9), what }
    }

    #[test]
    fn encoded_keys_decode_to_the_same_value() {
        let start = at(1_773_100_800_000);
        for (name, currency) in [("purchase", "CNY"), ("", ""), ("a\0b", "\0"), ("é,\"", "元")] {
            let key = summary_key(start.plus(QUARTER_MS - 1), name, currency).encode();
            assert_eq!(SummaryKey::decode(&key), Some(summary_key(start, name, currency)));
            assert!(key.starts_with(&prefix(Pid(7), start)));
            assert!(key[..] < prefix(Pid(7), start.plus(QUARTER_MS))[..]);
            assert_eq!(SummaryKey::decode(&key[..15]), None);
        }
        let mut activation = summary_key(start, "activation", "");
        activation.what.event_type = EventType::Activation;
        activation.what.install_type = None;
        let key = activation.encode();
        assert_eq!(SummaryKey::decode(&key), Some(activation));
        assert_eq!(SummaryKey::decode(&[&key[..], b"x"].concat()), None);
        assert_eq!(key.len(), 16);
    }

    #[test]
    fn whole_quarters_are_the_inner_part_of_a_range() {
        let quarter = QUARTER_MS as i64;
        let check = |from, to, expected: Option<(i64, i64)>| {
            let expected = expected.map(|(from, to)| at(from * quarter)..at(to * quarter));
            assert_eq!(whole_quarters(at(from)..at(to)), expected);
        };
        check(0, quarter, Some((0, 1)));
        check(1, 3 * quarter - 1, Some((1, 2)));
        check(1, 2 * quarter - 1, None);
        check(5, 5, None);
        check(2 * quarter, quarter, None);
        let all = EventTime::default()..EventTime::END;
        assert_eq!(whole_quarters(all.clone()), Some(all));
        assert_eq!(whole_quarters(EventTime::MAX..EventTime::END), None);
        assert_eq!(prefix(Pid(1), EventTime::END).len(), PREFIX_BYTES);
    }

    #[test]
    fn adjacent_texts_are_kept_apart() {
        let keys = [("ab", "c"), ("b", "ca"), ("b", "c")];
        let keys = keys.map(|(name, currency)| summary_key(at(0), name, currency).encode());
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
        assert_ne!(fact_hash("ab", "c", ""), fact_hash("a", "bc", ""));
    }

    #[test]
    fn encoded_counts_decode_to_the_same_value() {
        let mut count = Totals::row("9.90");
        assert_eq!(count.encode(), b"\x029.9");
        count.add(&Totals::row(""));
        count.add(&Totals::row("-20"));
        assert_eq!(Totals::decode(&count.encode()), Some(count));
        assert_eq!((count.rows, count.revenue.to_string()), (3, "-10.1".into()));
        count.add(&count.negated());
        assert!(count.is_zero());
        assert_eq!(Totals::decode(&count.encode()), Some(count));
        assert_eq!(Totals::decode(b""), None);
        assert_eq!(Totals::decode(b"\x02x"), None);
    }
}
