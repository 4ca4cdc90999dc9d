//! The format of a segment: one record after the other, without a header.
//!
//! A record is the segment's marker, the length and the xxh3 of its content, and the content: the topic, the length of
//! the key, the key and the event. The topic has one byte; numbers have 8 bytes, little-endian. The marker is random
//! and part of the file's name. It leads to the records after damage, and nobody who sends an event can put a record
//! into it.

use std::mem;

use ingest::TopicKind;
use xxhash_rust::xxh3::xxh3_64;

const NUMBER_BYTES: usize = 8;
/// Marker, length, hash, topic, and length of the key.
const OVERHEAD_BYTES: usize = 4 * NUMBER_BYTES + 1;

/// An event for Kafka.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub topic: TopicKind,
    pub key: Box<str>,
    /// JSON.
    pub value: Vec<u8>,
}

impl Event {
    /// Returns the length of the event's record.
    pub fn record_bytes(&self) -> u64 {
        (OVERHEAD_BYTES + self.key.len() + self.value.len()) as u64
    }
}

/// The content of a segment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    pub events: Vec<Event>,
    /// Bytes before and between records that are not of one.
    pub damaged_bytes: u64,
    /// Bytes after the last record.
    pub tail_bytes: u64,
}

/// Appends the record of an event.
pub(super) fn encode(event: &Event, marker: u64, out: &mut Vec<u8>) {
    let mut content = Vec::with_capacity(OVERHEAD_BYTES + event.key.len() + event.value.len());
    content.push(event.topic as u8);
    content.extend((event.key.len() as u64).to_le_bytes());
    content.extend(event.key.as_bytes());
    content.extend(&event.value);
    for number in [marker, content.len() as u64, xxh3_64(&content)] {
        out.extend(number.to_le_bytes());
    }
    out.extend(content);
}

/// Finds all records of a segment.
pub(super) fn scan(bytes: &[u8], marker: u64) -> Scan {
    let (mut scan, mut rest, mut unread) = (Scan::default(), bytes, 0);
    while !rest.is_empty() {
        let length = match parse(rest, marker) {
            Some((event, length)) => {
                scan.events.push(event);
                scan.damaged_bytes += mem::take(&mut unread);
                length
            }
            None => {
                let length = until_marker(rest, marker);
                unread += length as u64;
                length
            }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    scan.tail_bytes = unread;
    scan
}

/// Returns the first record and its length; `None` if the bytes do not begin with a record.
fn parse(bytes: &[u8], marker: u64) -> Option<(Event, usize)> {
    let mut rest = bytes;
    if take_number(&mut rest)? != marker {
        return None;
    }
    let (length, hash) = (take_number(&mut rest)?, take_number(&mut rest)?);
    let mut content = take(&mut rest, length)?;
    if xxh3_64(content) != hash {
        return None;
    }
    let topic = *take(&mut content, 1)?.first()?;
    let key_length = take_number(&mut content)?;
    let key = std::str::from_utf8(take(&mut content, key_length)?).ok()?;
    let topic = TopicKind::ALL.into_iter().find(|kind| *kind as u8 == topic)?;
    let event = Event { topic, key: key.into(), value: content.to_vec() };
    Some((event, bytes.len() - rest.len()))
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER_BYTES>()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(taken)
}

/// Returns the distance to the next marker that is not at the beginning, or to the end.
fn until_marker(bytes: &[u8], marker: u64) -> usize {
    let (marker, after) = (marker.to_le_bytes(), bytes.get(1..).unwrap_or_default());
    let found = after.windows(NUMBER_BYTES).position(|window| window == marker);
    found.map_or(bytes.len(), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: u64 = 0x0123_4567_89ab_cdef;

    fn event(value: &str) -> Event {
        Event { topic: TopicKind::Effects, key: "app-x".into(), value: value.into() }
    }

    fn segment(events: &[Event]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for event in events {
            let before = bytes.len() as u64;
            encode(event, MARKER, &mut bytes);
            assert_eq!(bytes.len() as u64, before + event.record_bytes());
        }
        bytes
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let mut events = TopicKind::ALL.map(|topic| Event { topic, ..event("{}") }).to_vec();
        events.push(Event { key: "应用".into(), ..event("") });
        events.push(event(&String::from_utf8_lossy(&segment(&[event("nested")]))));
        let scanned = scan(&segment(&events), MARKER);
        assert_eq!(scanned, Scan { events, damaged_bytes: 0, tail_bytes: 0 });
        assert_eq!(scan(b"", MARKER), Scan::default());
    }

    #[test]
    fn a_torn_record_at_the_end_is_a_tail() {
        let events = [event("first"), event("second")];
        let bytes = segment(&events);
        let first = segment(&events[..1]).len();
        for length in first..bytes.len() {
            let scanned = scan(&bytes[..length], MARKER);
            let tail_bytes = (length - first) as u64;
            let expected = Scan { events: vec![event("first")], damaged_bytes: 0, tail_bytes };
            assert_eq!(scanned, expected, "{length}");
        }
    }

    #[test]
    fn damage_hides_no_other_record() {
        let events = ["first", "other", "third"].map(event);
        let bytes = segment(&events);
        let record = bytes.len() / 3;
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x10;
            let scanned = scan(&damaged, MARKER);
            let hit = position / record;
            let kept: Vec<_> =
                (0..3).filter(|index| *index != hit).map(|index| events[index].clone()).collect();
            assert_eq!(scanned.events, kept, "{position}");
            let lost = if hit == 2 { scanned.tail_bytes } else { scanned.damaged_bytes };
            assert_eq!(lost, record as u64, "{position}");
        }
    }

    /// What is appended to an event by its sender does not become an event after damage.
    #[test]
    fn a_record_of_another_marker_is_not_read() {
        let bytes = segment(&[event("first")]);
        let expected = Scan { tail_bytes: bytes.len() as u64, ..Scan::default() };
        assert_eq!(scan(&bytes, MARKER + 1), expected);
    }
}
