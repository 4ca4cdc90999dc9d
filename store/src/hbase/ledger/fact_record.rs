//! What stands in the row of a home.
//!
//! | column | value |
//! |---|---|
//! | `v` | how many rows go (u8), each with its key and its revision u32, and then the home, as embedded |
//! | `o` and a hash u64 | a fact that the home's own took the place of, as a home without decision |

use attribution::facts::event::{Fact, Family, Pid};
use attribution::ledger::record::FactRecord;
use xxhash_rust::xxh3::xxh3_64;

use super::cells::VALUE;
use crate::StoreError;
use crate::layout::codec;
use crate::layout::key::{KEY_BYTES, RowKey};

const OUTGOING: u8 = b'o';

/// A row that is shown no more, and may still be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone {
    pub row: RowKey,
    pub revision: u32,
}

/// Of all that go the last ones, where they are more than the count can say.
pub fn encode(record: &FactRecord, gone: &[Gone]) -> Vec<u8> {
    let gone = &gone[gone.len().saturating_sub(usize::from(u8::MAX))..];
    let mut value = Vec::with_capacity(384);
    value.push(u8::try_from(gone.len()).unwrap_or(u8::MAX));
    for Gone { row, revision } in gone {
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
) -> Result<(FactRecord, Vec<Gone>), StoreError> {
    let (gone, record) = split(value).ok_or_else(|| StoreError::corrupt("a home"))?;
    Ok((codec::fact_record::decode(family, pid, record)?, gone))
}

/// As an embedded store has it.
pub fn bare(value: &[u8]) -> Result<&[u8], StoreError> {
    split(value).map(|(_, record)| record).ok_or_else(|| StoreError::corrupt("a home"))
}

/// Of the home as an embedded store has it, where no row went.
pub fn with_nothing_gone(record: &[u8]) -> Vec<u8> {
    [&[0][..], record].concat()
}

fn split(value: &[u8]) -> Option<(Vec<Gone>, &[u8])> {
    let (count, mut rest) = value.split_first()?;
    let mut gone = Vec::new();
    for _ in 0..*count {
        let (row, after) = rest.split_at_checked(KEY_BYTES)?;
        let (revision, after) = after.split_first_chunk()?;
        gone.push(Gone { row: RowKey::decode(row)?, revision: u32::from_be_bytes(*revision) });
        rest = after;
    }
    Some((gone, rest))
}

/// The column and value of a fact that another takes the place of.
pub fn outgoing(fact: &Fact) -> (Vec<u8>, Vec<u8>) {
    let mut value = Vec::with_capacity(256);
    codec::fact_record::encode(&fact.clone().into(), &mut value);
    let column = [&[OUTGOING][..], &xxh3_64(&value).to_be_bytes()].concat();
    (column, value)
}

/// Of the columns of a home's row: its value, and the facts that went.
pub fn read(
    family: Family,
    pid: Pid,
    columns: &[(Vec<u8>, Vec<u8>)],
) -> Result<(Option<&[u8]>, Vec<Fact>), StoreError> {
    let mut facts = Vec::new();
    for (_, value) in columns.iter().filter(|(column, _)| column.first() == Some(&OUTGOING)) {
        facts.push(codec::fact_record::decode(family, pid, value)?.into());
    }
    let value = columns.iter().find(|(column, _)| column == VALUE);
    Ok((value.map(|(_, value)| value.as_slice()), facts))
}
