//! The byte layout of the keys of rows, facts and positions, specified in `docs/format.md`.
//!
//! Integers are big-endian, so byte order is key order.

use attribution::facts::event::{EventTime, Family, Pid, SpreadId};
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::ledger::index::IndexEntry;
use attribution::ledger::record::{CurrentRow, FactRecord};
use attribution::ledger::{Position, RecordFingerprint};
use attribution::rules::row::{EventType, Row, seq};
use xxhash_rust::xxh3::xxh3_64;

use super::codec::event_time;

/// The length of row keys and of keys of facts.
pub const KEY_BYTES: usize = 24;
/// The prefix of keys of facts that bloom filters cover: id or match key, and pid.
pub const FACT_PREFIX_BYTES: usize = 12;

pub type Key = [u8; KEY_BYTES];

pub(super) const U48_MAX: u64 = (1 << 48) - 1;

/// The key of a row: partition u16 · pid u32 · event time u48 · spreadid u32 · seq u64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    pub partition: u16,
    pub pid: Pid,
    pub event_time: EventTime,
    pub spreadid: SpreadId,
    pub seq: u64,
}

impl RowKey {
    /// The key of a row with a fanout of `2^fanout_bits`; `base` is the first partition of its app.
    pub fn new(row: &Row, base: u16, fanout_bits: u8, partitions: u16) -> Self {
        let Row { pid, event_time, spreadid, seq, .. } = *row;
        let partition = row_partition(base, seq, fanout_bits, partitions);
        Self { partition, pid, event_time, spreadid, seq }
    }

    /// The key of an event's current row, which its record refers to.
    pub fn current(pid: Pid, seq: u64, row: &CurrentRow, base: u16, partitions: u16) -> Self {
        let CurrentRow { event_time, spreadid, .. } = *row;
        let partition = row_partition(base, seq, row.row_meta.fanout_bits, partitions);
        Self { partition, pid, event_time, spreadid, seq }
    }

    pub fn encode(&self) -> Key {
        let mut key = [0; KEY_BYTES];
        key[..2].copy_from_slice(&self.partition.to_be_bytes());
        key[2..6].copy_from_slice(&self.pid.0.to_be_bytes());
        key[6..12].copy_from_slice(&u48(self.event_time.millis()));
        key[12..16].copy_from_slice(&self.spreadid.0.to_be_bytes());
        key[16..].copy_from_slice(&self.seq.to_be_bytes());
        key
    }

    /// `None` if the bytes are not a row key.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let key: &Key = bytes.try_into().ok()?;
        Some(Self {
            partition: u16::from_be_bytes([key[0], key[1]]),
            pid: Pid(read_u32(key, 2)),
            event_time: event_time(read_u48(key, 6))?,
            spreadid: SpreadId(read_u32(key, 12)),
            seq: read_u64(key, 16),
        })
    }
}

/// The key of the current row of an activation or effect, whose app has this first partition; `None` without a row.
pub fn current_row(
    event: &FactKey,
    record: &FactRecord,
    base: u16,
    partitions: u16,
) -> Option<Key> {
    let event_type = match event.family {
        Family::Effect => EventType::Effect,
        Family::Activation | Family::Touch => EventType::Activation,
    };
    let seq = seq(event_type, record.id());
    let row = record.current_row()?;
    Some(RowKey::current(event.pid, seq, row, base, partitions).encode())
}

/// The first partition of an app's rows, and the only one with a fanout of 1.
pub fn partition(app_key: &str, partitions: u16) -> u16 {
    let bucket = xxh3_64(app_key.as_bytes()) % u64::from(partitions.max(1));
    u16::try_from(bucket).unwrap_or_default()
}

/// The partitions of an app with a fanout of `2^fanout_bits`, which are distinct if there are at least that many. Those
/// of a smaller fanout are a prefix of those of a greater one, so raising the fanout moves no row.
pub fn fanout_partitions(base: u16, fanout_bits: u8, partitions: u16) -> impl Iterator<Item = u16> {
    (0..1 << u32::from(fanout_bits)).map(move |bucket| bucket_partition(base, bucket, partitions))
}

/// The partition of a row of an app with a fanout of `2^fanout_bits`.
pub fn row_partition(base: u16, seq: u64, fanout_bits: u8, partitions: u16) -> u16 {
    let bucket = seq & ((1 << u32::from(fanout_bits)) - 1);
    bucket_partition(base, bucket as u32, partitions)
}

/// Buckets are as far apart as possible: halves, then quarters, then eighths around the ring of partitions.
fn bucket_partition(base: u16, bucket: u32, partitions: u16) -> u16 {
    let partitions = u64::from(partitions.max(1));
    let distance = (u64::from(bucket.reverse_bits()) * partitions) >> 32;
    ((u64::from(base) + distance) % partitions) as u16
}

/// Decodes the pid at the end of a key of metadata.
pub fn decode_pid(bytes: &[u8]) -> Option<Pid> {
    bytes.try_into().ok().map(u32::from_be_bytes).map(Pid)
}

/// The key of an app's metadata: a prefix and the pid.
pub fn with_pid(prefix: &[u8], pid: Pid) -> Vec<u8> {
    [prefix, &pid.0.to_be_bytes()].concat()
}

/// The first row key of an app in a partition at or after a time.
pub fn row_from(partition: u16, pid: Pid, event_time: EventTime) -> Key {
    RowKey { partition, pid, event_time, spreadid: SpreadId(0), seq: 0 }.encode()
}

/// The greatest key before this one; the least key itself.
pub fn previous(key: &Key) -> Key {
    let mut previous = *key;
    if key.iter().any(|byte| *byte > 0) {
        for byte in previous.iter_mut().rev() {
            *byte = byte.wrapping_sub(1);
            if *byte < u8::MAX {
                break;
            }
        }
    }
    previous
}

/// The least key after this one; `None` after the greatest.
pub fn next(key: &Key) -> Option<Key> {
    let mut next = *key;
    for byte in next.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(next);
        }
    }
    None
}

/// The key of a fact's record: id u64 · pid u32 · 0 u48 · tag u48. No inverted time is 0.
pub fn record(fact: &FactKey) -> Key {
    fact_key(fact.id, fact.pid, 0, fact.tag)
}

/// The key of an index entry: match key u64 · pid u32 · inverted time u48 · tag u48; its value is the id.
pub fn index(found_by: MatchKey, fact: &FactKey, time: EventTime) -> Key {
    fact_key(found_by, fact.pid, U48_MAX - time.millis(), fact.tag)
}

/// The first index key at or before a time.
pub fn index_from(found_by: MatchKey, pid: Pid, newest: EventTime) -> Key {
    fact_key(found_by, pid, U48_MAX - newest.millis(), 0)
}

/// An exclusive upper bound of index keys at or after a time, without their prefix.
pub fn index_end_column(oldest: EventTime) -> Vec<u8> {
    let inverted = U48_MAX - oldest.millis();
    match inverted {
        U48_MAX => vec![u8::MAX; KEY_BYTES - FACT_PREFIX_BYTES + 1],
        _ => u48(inverted + 1).to_vec(),
    }
}

/// Decodes an index key, with the id from its value; `None` if the key is not one.
pub fn decode_index(family: Family, key: &Key, id: u64) -> Option<IndexEntry> {
    Some(IndexEntry {
        time: event_time(U48_MAX - read_u48(key, 12))?,
        fact: FactKey {
            family,
            id: MatchKey(id),
            pid: Pid(read_u32(key, 8)),
            tag: read_u48(key, 18),
        },
    })
}

/// Groups indexed items by family, for one request per table of facts. Families without items are left out.
pub fn by_family(items: impl Iterator<Item = (usize, Family)>) -> Vec<(Family, Vec<usize>)> {
    let mut groups = Family::ALL.map(|family| (family, Vec::new()));
    for (index, family) in items {
        groups[family as usize].1.push(index);
    }
    groups.into_iter().filter(|(_, indexes)| !indexes.is_empty()).collect()
}

/// A decoded key of a table of facts.
pub enum FactTableKey {
    FactRecord { id: u64, pid: Pid, tag: u64 },
    Index { pid: Pid, time: EventTime, tag: u64 },
}

impl FactTableKey {
    pub fn pid(&self) -> Pid {
        match self {
            Self::FactRecord { pid, .. } | Self::Index { pid, .. } => *pid,
        }
    }
}

/// `None` if the bytes are not a key of a table of facts.
pub fn decode_fact(key: &[u8]) -> Option<FactTableKey> {
    let key: &Key = key.try_into().ok()?;
    let pid = Pid(read_u32(key, 8));
    match read_u48(key, 12) {
        0 => Some(FactTableKey::FactRecord { id: read_u64(key, 0), pid, tag: read_u48(key, 18) }),
        inverted => {
            let time = event_time(U48_MAX - inverted)?;
            Some(FactTableKey::Index { pid, time, tag: read_u48(key, 18) })
        }
    }
}

/// The key of a position: topic · 0 · partition i32.
pub fn position(position: &Position) -> Vec<u8> {
    let mut key = position.topic.as_bytes().to_vec();
    key.push(0);
    key.extend_from_slice(&position.partition.to_be_bytes());
    key
}

/// The value of a fingerprint: offset i64 · digest u64.
pub fn fingerprint(RecordFingerprint { offset, digest }: RecordFingerprint) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&offset.to_be_bytes());
    value[8..].copy_from_slice(&digest.to_be_bytes());
    value
}

pub fn decode_fingerprint(value: &[u8]) -> Option<RecordFingerprint> {
    let (offset, digest) = value.split_first_chunk()?;
    let digest = u64::from_be_bytes(digest.try_into().ok()?);
    Some(RecordFingerprint { offset: i64::from_be_bytes(*offset), digest })
}

/// Decodes the key and the value of a position. Fingerprints are stored separately.
pub fn decode_position(key: &[u8], next_offset: &[u8]) -> Option<Position> {
    let (topic, partition) = key.split_last_chunk::<4>()?;
    let (end, topic) = topic.split_last()?;
    let topic = std::str::from_utf8(topic).ok().filter(|_| *end == 0)?;
    Some(Position {
        topic: topic.into(),
        partition: i32::from_be_bytes(*partition),
        next_offset: i64::from_be_bytes(next_offset.try_into().ok()?),
        known: None,
        last: None,
    })
}

fn fact_key(found_by: MatchKey, pid: Pid, inverted_time: u64, tag: u64) -> Key {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&found_by.0.to_be_bytes());
    key[8..12].copy_from_slice(&pid.0.to_be_bytes());
    key[12..18].copy_from_slice(&u48(inverted_time));
    key[18..].copy_from_slice(&u48(tag));
    key
}

/// The low 48 bits.
fn u48(value: u64) -> [u8; 6] {
    let [_, _, a, b, c, d, e, f] = value.to_be_bytes();
    [a, b, c, d, e, f]
}

fn read_u32(key: &Key, at: usize) -> u32 {
    key[at..at + 4].iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn read_u48(key: &Key, at: usize) -> u64 {
    key[at..at + 6].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn read_u64(key: &Key, at: usize) -> u64 {
    key[at..at + 8].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_distinct_and_those_of_a_smaller_fanout_are_a_prefix() {
        for partitions in [1, 2, 3, 64, 100, 65_535] {
            let bits_max = u16::ilog2(partitions) as u8;
            for bits in 0..=bits_max {
                let found: Vec<u16> = fanout_partitions(partitions - 1, bits, partitions).collect();
                let mut distinct = found.clone();
                distinct.sort_unstable();
                distinct.dedup();
                assert_eq!(distinct.len(), 1 << bits, "{bits} bits of {partitions}");
                assert!(distinct.iter().all(|partition| *partition < partitions));
                let greater: Vec<u16> =
                    fanout_partitions(partitions - 1, bits_max, partitions).collect();
                assert_eq!(greater[..found.len()], found);
                let seq = 0x9e37_79b9_7f4a_7c15;
                assert!(found.contains(&row_partition(partitions - 1, seq, bits, partitions)));
            }
        }
        assert_eq!(fanout_partitions(13, 2, 64).collect::<Vec<_>>(), [13, 45, 29, 61]);
    }

    #[test]
    fn the_partition_of_an_app_never_changes() {
        assert_eq!(partition("app-x", 64), partition("app-x", 64));
        assert_eq!(partition("app-x", 1), 0);
        assert_eq!([partition("app-x", 64), partition("app-y", 64)], [13, 8]);
    }
}
