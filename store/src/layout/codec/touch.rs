//! The values of tables of touches.

use attribution::facts::event::{EventTime, Pid};
use attribution::rules::policy::{DAY_MS, LOOKBACK_MAX_MS};

use super::{Input, event_time};
use crate::StoreError;

/// The greatest number of contents: greater ones are damage, and counting on from this one never overflows.
pub const NUMBER_MAX: u64 = 1 << 63;

/// Decodes a number of contents.
pub fn number(bytes: &[u8]) -> Result<u64, StoreError> {
    let number = bytes.try_into().ok().map(u64::from_be_bytes);
    let number = number.filter(|number| *number <= NUMBER_MAX);
    number.ok_or_else(|| StoreError::corrupt("the number of a touch"))
}

/// Refers to the contents of a touch in the same table. Stored under the key of the touch's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TouchRef {
    /// The key of the contents.
    pub number: u64,
    pub time: EventTime,
    /// The touch's own lookback, rounded up to days.
    pub lookback_days: Option<u8>,
}

impl TouchRef {
    pub fn new(number: u64, time: EventTime, lookback_ms: Option<u64>) -> Self {
        let days = |ms: u64| ms.min(LOOKBACK_MAX_MS).div_ceil(DAY_MS) as u8;
        Self { number, time, lookback_days: lookback_ms.map(days) }
    }

    pub fn lookback_ms(&self) -> Option<u64> {
        self.lookback_days.map(|days| u64::from(days) * DAY_MS)
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&self.time.millis().to_be_bytes());
        out.extend(self.lookback_days);
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(17);
        self.put(&mut value);
        value
    }

    pub fn decode(value: &[u8]) -> Result<Self, StoreError> {
        let mut input = Input::new(value);
        let (number, millis) = (self::number(&input.bytes::<8>()?)?, input.u64()?);
        let time = event_time(millis).ok_or_else(|| StoreError::corrupt("the time of a touch"))?;
        let lookback_days = if input.rest().is_empty() { None } else { Some(input.byte()?) };
        input.end()?;
        Ok(Self { number, time, lookback_days })
    }
}

/// Encodes the contents of a touch: its app, and the value of its fact record.
pub fn put_contents(out: &mut Vec<u8>, pid: Pid, record: &[u8]) {
    out.extend_from_slice(&pid.0.to_be_bytes());
    out.extend_from_slice(record);
}

/// Splits contents into the app and the value of the fact record.
pub fn split_contents(contents: &[u8]) -> Result<(Pid, &[u8]), StoreError> {
    let split = contents.split_first_chunk();
    let (pid, record) = split.ok_or_else(|| StoreError::corrupt("the contents of a touch"))?;
    Ok((Pid(u32::from_be_bytes(*pid)), record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lookback_ms: Option<u64>, expected_days: Option<u8>) {
        let time = EventTime::default().plus(7);
        let found = TouchRef::new(1 << 40, time, lookback_ms);
        assert_eq!(found.lookback_days, expected_days);
        let value = found.encode();
        assert_eq!(TouchRef::decode(&value).unwrap(), found);
        assert!(TouchRef::decode(&value[..15]).is_err(), "cut");
        assert!(TouchRef::decode(&[&value[..], &[1, 1]].concat()).is_err(), "extended");
    }

    #[test]
    fn references_are_decoded_as_they_were_encoded() {
        check(None, None);
        check(Some(0), Some(0));
        check(Some(DAY_MS + 1), Some(2));
        check(Some(u64::MAX), Some(90));
        let mut value = TouchRef::new(NUMBER_MAX, EventTime::default(), None).encode();
        assert!(TouchRef::decode(&value).is_ok());
        value[7] = 1;
        assert!(TouchRef::decode(&value).is_err(), "a number that is too great");
        value[..9].fill(0xff);
        value[0] = 0;
        assert!(TouchRef::decode(&value).is_err(), "a time after the year 9999");
    }

    #[test]
    fn numbers_that_are_too_great_are_damage() {
        for valid in [0, 7, NUMBER_MAX] {
            assert_eq!(number(&valid.to_be_bytes()).unwrap(), valid);
        }
        for damaged in [&[0xff; 8][..], &(NUMBER_MAX + 1).to_be_bytes(), &[0; 7], &[0; 9]] {
            assert!(number(damaged).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn contents_begin_with_the_app() {
        let mut value = Vec::new();
        put_contents(&mut value, Pid(7), b"record");
        assert_eq!(split_contents(&value).unwrap(), (Pid(7), &b"record"[..]));
        assert!(split_contents(&value[..3]).is_err());
    }
}
