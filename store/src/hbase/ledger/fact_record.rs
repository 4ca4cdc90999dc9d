//! The columns of a fact record's row.
//!
//! | column | value |
//! |---|---|
//! | `v` | number of replaced rows u8, the key and the revision u32 of each, then the record as in an embedded store |
//! | `o` and a hash u64 | a fact that the record's fact replaced, as a record without decision |

use attribution::facts::event::{Fact, Family, Pid};
use attribution::ledger::record::FactRecord;
use xxhash_rust::xxh3::xxh3_64;

use super::cells::VALUE;
use crate::StoreError;
use crate::layout::codec;
use crate::layout::key::{KEY_BYTES, RowKey};

const SUPERSEDED: u8 = b'o';

/// A row that was replaced and may not be deleted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplacedRow {
    pub row: RowKey,
    pub revision: u32,
}

/// Encodes a record with its replaced rows, at most the last 255 of them.
pub fn encode(record: &FactRecord, replaced: &[ReplacedRow]) -> Vec<u8> {
    let replaced = &replaced[replaced.len().saturating_sub(usize::from(u8::MAX))..];
    let mut value = Vec::with_capacity(384);
    value.push(u8::try_from(replaced.len()).unwrap_or(u8::MAX));
    for ReplacedRow { row, revision } in replaced {
        value.extend(row.encode());
        value.extend(revision.to_be_bytes());
    }
    codec::fact_record::encode(record, &mut value);
    value
}

pub fn decode(
    family: Family,
    pid: Pid,
    value: &[u8],
) -> Result<(FactRecord, Vec<ReplacedRow>), StoreError> {
    let (replaced, record) = split(value).ok_or_else(|| StoreError::corrupt("a fact record"))?;
    Ok((codec::fact_record::decode(family, pid, record)?, replaced))
}

/// The value of the record in an embedded store.
pub fn embedded_value(value: &[u8]) -> Result<&[u8], StoreError> {
    split(value).map(|(_, record)| record).ok_or_else(|| StoreError::corrupt("a fact record"))
}

/// The value for a record of an embedded store, which has no replaced rows.
pub fn from_embedded(record: &[u8]) -> Vec<u8> {
    [&[0][..], record].concat()
}

fn split(value: &[u8]) -> Option<(Vec<ReplacedRow>, &[u8])> {
    let (count, mut rest) = value.split_first()?;
    let mut replaced = Vec::new();
    for _ in 0..*count {
        let (row, after) = rest.split_at_checked(KEY_BYTES)?;
        let (revision, after) = after.split_first_chunk()?;
        let revision = u32::from_be_bytes(*revision);
        replaced.push(ReplacedRow { row: RowKey::decode(row)?, revision });
        rest = after;
    }
    Some((replaced, rest))
}

/// The column and the value of a fact that is replaced.
pub fn superseded(fact: &Fact) -> (Vec<u8>, Vec<u8>) {
    let mut value = Vec::with_capacity(256);
    codec::fact_record::encode(&fact.clone().into(), &mut value);
    let column = [&[SUPERSEDED][..], &xxh3_64(&value).to_be_bytes()].concat();
    (column, value)
}

/// Returns the value of the record and the facts that it replaced, from the columns of its row.
pub fn read(
    family: Family,
    pid: Pid,
    columns: &[(Vec<u8>, Vec<u8>)],
) -> Result<(Option<&[u8]>, Vec<Fact>), StoreError> {
    let mut facts = Vec::new();
    for (_, value) in columns.iter().filter(|(column, _)| column.first() == Some(&SUPERSEDED)) {
        facts.push(codec::fact_record::decode(family, pid, value)?.into());
    }
    let value = columns.iter().find(|(column, _)| column == VALUE);
    Ok((value.map(|(_, value)| value.as_slice()), facts))
}
