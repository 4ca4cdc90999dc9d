//! The keys of the outbox in an embedded store, specified in `docs/format.md`, and the merge operator of its counts.

use attribution::facts::event::EventTime;
use attribution::facts::keys::FactKey;
use attribution::outbox::record::{EndpointId, OutboxRecord, Tally};
use rocksdb::MergeOperands;

use super::codec::event_time;
use super::codec::outbox::{decode_tally, encode_tally};
use super::key::{self, KEY_BYTES, Key};

const COUNT: u8 = b'c';
const DUE: u8 = b'd';
const RECORD: u8 = b'r';

/// The start of all keys of entries of the due index.
pub const DUE_PREFIX: [u8; 1] = [DUE];
/// The start of all keys of tallies.
pub const COUNT_PREFIX: [u8; 1] = [COUNT];
/// The start of all keys of records.
pub const RECORD_PREFIX: [u8; 1] = [RECORD];

/// The length of a record's key.
pub const RECORD_BYTES: usize = 1 + KEY_BYTES;
/// The length of the key of a due index entry.
pub const DUE_BYTES: usize = 1 + 8 + 8 + KEY_BYTES;

/// A decoded key of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutboxTableKey {
    Record(Key),
    Due(DueKey),
    Count(EndpointId),
}

/// The record has an entry of an endpoint that is due at this time, and none of it earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueKey {
    /// See [`EndpointId::digest`].
    pub endpoint: u64,
    pub time: EventTime,
    pub event: Key,
}

impl DueKey {
    /// Endpoint u64 · due time u64 · the key of the event.
    pub fn encode(&self) -> Vec<u8> {
        let Self { endpoint, time, event } = self;
        [&endpoint.to_be_bytes()[..], &time.millis().to_be_bytes(), event].concat()
    }

    /// `None` if the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (endpoint, bytes) = bytes.split_first_chunk()?;
        let (millis, event) = bytes.split_first_chunk()?;
        Some(Self {
            endpoint: u64::from_be_bytes(*endpoint),
            time: event_time(u64::from_be_bytes(*millis))?,
            event: event.try_into().ok()?,
        })
    }
}

/// The due times of the pending entries of a record, one for each endpoint.
pub fn due_keys(record: &OutboxRecord) -> impl Iterator<Item = DueKey> {
    let event = key::record(&record.event);
    record.dues().map(move |(of, time)| DueKey { endpoint: of.digest(), time, event })
}

pub fn record(event: &FactKey) -> Vec<u8> {
    record_of(&key::record(event))
}

pub fn record_of(event: &Key) -> Vec<u8> {
    [&RECORD_PREFIX[..], event].concat()
}

pub fn due(key: &DueKey) -> Vec<u8> {
    [&DUE_PREFIX[..], &key.encode()].concat()
}

pub fn count(endpoint: &EndpointId) -> Vec<u8> {
    [&COUNT_PREFIX[..], endpoint.as_str().as_bytes()].concat()
}

/// `None` if the bytes are not a key of the outbox.
pub fn decode(bytes: &[u8]) -> Option<OutboxTableKey> {
    match bytes.split_first()? {
        (&RECORD, event) => event.try_into().ok().map(OutboxTableKey::Record),
        (&DUE, due) => DueKey::decode(due).map(OutboxTableKey::Due),
        (&COUNT, name) => {
            std::str::from_utf8(name).ok().map(|name| OutboxTableKey::Count(EndpointId::new(name)))
        }
        _ => None,
    }
}

/// RocksDB's merge operator for tallies. Damaged values count as 0, so that they do not fail compactions; `adtrail
/// verify` finds them.
pub fn merge(_key: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut sum: Tally = existing.and_then(decode_tally).unwrap_or_default();
    operands.iter().filter_map(decode_tally).for_each(|tally| sum.add(&tally));
    Some(encode_tally(&sum))
}

#[cfg(test)]
mod tests {
    use attribution::facts::event::{Family, Pid};
    use attribution::facts::keys::MatchKey;

    use super::*;

    #[test]
    fn keys_are_decoded_as_they_were_encoded() {
        let event = FactKey { family: Family::Effect, id: MatchKey(7), pid: Pid(8), tag: 9 };
        let time = EventTime::default().plus(1_000);
        let key = key::record(&event);
        assert_eq!(decode(&record(&event)), Some(OutboxTableKey::Record(key)));
        let endpoint = EndpointId::new("ü");
        let due_key = DueKey { endpoint: endpoint.digest(), time, event: key };
        assert_eq!(decode(&due(&due_key)), Some(OutboxTableKey::Due(due_key)));
        assert_eq!(decode(&count(&endpoint)), Some(OutboxTableKey::Count(endpoint)));
        for damaged in [&b""[..], b"r", b"d1", b"c\xff", b"x"] {
            assert_eq!(decode(damaged), None, "{damaged:?}");
        }
        assert_eq!(due(&due_key).len(), DUE_BYTES);
        assert_eq!(record(&event).len(), RECORD_BYTES);
    }

    #[test]
    fn due_keys_are_in_the_order_of_their_times() {
        let due = |ms, first| {
            let mut event = [0; KEY_BYTES];
            event[0] = first;
            due(&DueKey { endpoint: 7, time: EventTime::default().plus(ms), event })
        };
        assert!(due(255, u8::MAX) < due(256, 0));
    }
}
