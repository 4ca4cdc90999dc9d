//! The encoding of values: a layout version, then varints and length-prefixed text, as drawn in `docs/format.md`.
//!
//! Decoding checks everything: damaged bytes are an error, never a panic, and never a wrong value if the damage can be
//! detected.

pub mod fact;
pub mod fact_record;
pub mod outbox;
pub mod row;
pub mod touch;

use attribution::encoding::{self, TRUNCATED};
pub(crate) use attribution::encoding::{put_text, put_varint};
use attribution::facts::event::{EventTime, Pairs, Purpose, TextPairs, TouchKind};
use attribution::rules::policy::{DAY_MS, LOOKBACK_MAX_MS};

use crate::StoreError;

/// Kinds of touch by their stored code.
const TOUCH_KINDS: [TouchKind; 2] = [TouchKind::Impression, TouchKind::Click];

/// Purposes of touches by their stored code.
const PURPOSES: [Purpose; 2] = [Purpose::Ua, Purpose::Retargeting];

/// A signed number as a zigzag varint.
pub(crate) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_varint(out, ((number << 1) ^ (number >> 63)) as u64);
}

/// Event times end before the year 10000.
pub(crate) fn event_time(millis: u64) -> Option<EventTime> {
    i64::try_from(millis).ok().and_then(EventTime::from_millis)
}

pub(crate) fn put_pairs(out: &mut Vec<u8>, pairs: &Pairs) {
    encoding::put_pairs(out, TextPairs::from(pairs));
}

/// 0 for none, else the time plus one.
pub(crate) fn put_time(out: &mut Vec<u8>, time: Option<EventTime>) {
    put_varint(out, time.map_or(0, |time| time.millis() + 1));
}

/// Reads values from encoded bytes.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, StoreError> {
        let [byte] = self.bytes()?;
        Ok(byte)
    }

    #[inline]
    pub fn bytes<const LEN: usize>(&mut self) -> Result<[u8; LEN], StoreError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(truncated)?;
        self.rest = rest;
        Ok(*bytes)
    }

    #[inline]
    pub fn varint(&mut self) -> Result<u64, StoreError> {
        let (value, rest) = encoding::split_varint(self.rest).map_err(StoreError::corrupt)?;
        self.rest = rest;
        Ok(value)
    }

    /// Eight bytes, big-endian.
    pub fn u64(&mut self) -> Result<u64, StoreError> {
        self.bytes().map(u64::from_be_bytes)
    }

    /// Reads a number of [`put_signed`].
    pub fn signed(&mut self) -> Result<i64, StoreError> {
        let zigzag = self.varint()?;
        Ok((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }

    #[inline]
    pub fn varint_u32(&mut self) -> Result<u32, StoreError> {
        u32::try_from(self.varint()?)
            .map_err(|_| StoreError::corrupt("a number of more than 32 bits"))
    }

    #[inline]
    pub fn text(&mut self) -> Result<&'a str, StoreError> {
        let (text, rest) = encoding::split_text(self.rest).map_err(StoreError::corrupt)?;
        self.rest = rest;
        Ok(text)
    }

    #[inline]
    pub fn len(&mut self) -> Result<usize, StoreError> {
        usize::try_from(self.varint()?).map_err(|_| truncated())
    }

    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], StoreError> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or_else(truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// The bytes that have not been read.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn boxed(&mut self) -> Result<Box<str>, StoreError> {
        self.text().map(Box::from)
    }

    pub fn pairs(&mut self) -> Result<Pairs, StoreError> {
        let count = self.varint()?;
        let mut pairs = Pairs::new();
        for _ in 0..count {
            pairs.push((self.boxed()?, self.boxed()?));
        }
        Ok(pairs)
    }

    #[inline]
    pub fn time(&mut self) -> Result<Option<EventTime>, StoreError> {
        match self.varint()? {
            0 => Ok(None),
            plus_one => event_time(plus_one - 1)
                .map(Some)
                .ok_or_else(|| StoreError::corrupt("a time after the year 9999")),
        }
    }

    pub fn some_time(&mut self) -> Result<EventTime, StoreError> {
        self.time()?.ok_or_else(|| StoreError::corrupt("a missing time"))
    }

    /// Fails unless all bytes have been read.
    pub fn end(self) -> Result<(), StoreError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(StoreError::corrupt(format!("{} bytes after the value", self.rest.len())))
        }
    }
}

/// Appends the value of an index entry: the id of the fact and, for a touch with a lookback of its own, the lookback in
/// days, rounded up, by which the entry expires.
pub(crate) fn put_index_value(out: &mut Vec<u8>, id: u64, lookback_ms: Option<u64>) {
    out.extend_from_slice(&id.to_be_bytes());
    out.extend(lookback_ms.map(|ms| ms.min(LOOKBACK_MAX_MS).div_ceil(DAY_MS) as u8));
}

/// Decodes the value of an index entry: the id, and the lookback rounded up to days.
pub(crate) fn index_value(value: &[u8]) -> Result<(u64, Option<u64>), StoreError> {
    let damage = || StoreError::corrupt("an index entry's value");
    let (id, days) = value.split_first_chunk::<8>().ok_or_else(damage)?;
    let lookback_ms = match days {
        [] => None,
        [days] => Some(u64::from(*days) * DAY_MS),
        _ => return Err(damage()),
    };
    Ok((u64::from_be_bytes(*id), lookback_ms))
}

/// The id from the value of an index entry.
pub(crate) fn index_id(value: &[u8]) -> Result<u64, StoreError> {
    index_value(value).map(|(id, _)| id)
}

/// The entry of a code table at a stored number.
#[inline]
pub(crate) fn choose<T: Copy>(table: &[T], number: u8) -> Result<T, StoreError> {
    table.get(usize::from(number)).copied().ok_or_else(|| unknown_code(number))
}

/// The code of a value: its index in the table plus one; 0 for none.
pub(crate) fn code<T: PartialEq>(table: &[T], value: Option<&T>) -> u8 {
    let index = value.and_then(|value| table.iter().position(|entry| entry == value));
    index.and_then(|index| u8::try_from(index + 1).ok()).unwrap_or(0)
}

/// Reads a [`code`] that is never 0.
pub(crate) fn chosen<T: Copy>(table: &[T], input: &mut Input<'_>) -> Result<T, StoreError> {
    match input.byte()? {
        0 => Err(StoreError::corrupt("a missing code")),
        number => choose(table, number - 1),
    }
}

#[inline]
pub(crate) fn choose_option<T: Copy>(table: &[T], number: u8) -> Result<Option<T>, StoreError> {
    match number {
        0 => Ok(None),
        number => choose(table, number - 1).map(Some),
    }
}

#[cold]
fn unknown_code(number: u8) -> StoreError {
    StoreError::corrupt(format!("an unknown code: {number}"))
}

#[cold]
fn truncated() -> StoreError {
    StoreError::corrupt(TRUNCATED)
}
