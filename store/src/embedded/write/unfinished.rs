//! The searches for effects that an interrupted batch has left to be decided, in `meta`. The entry exists only until
//! the batch is committed.

use attribution::facts::event::{Family, Pid};
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::facts::match_keys;
use attribution::ledger::index::Scan;
use attribution::ledger::record::FactRecord;
use rocksdb::WriteBatch;

use crate::StoreError;
use crate::embedded::tables::Tables;
use crate::layout::codec::{Input, event_time};

pub const UNFINISHED: &[u8] = b"unfinished";

/// Number of entries of the first page of each search.
const PAGE: usize = 256;

/// Returns the stored searches.
///
/// # Errors
/// [`StoreError::Corrupt`] if they are unreadable.
pub fn load(tables: &Tables) -> Result<Vec<Scan>, StoreError> {
    let value = tables.db.get_cf(tables.meta(), UNFINISHED)?.unwrap_or_default();
    decode(&value)
}

/// Stores the searches in place of those before.
pub fn put(batch: &mut WriteBatch, tables: &Tables, searches: &[Scan]) {
    if searches.is_empty() {
        batch.delete_cf(tables.meta(), UNFINISHED);
    } else {
        batch.put_cf(tables.meta(), UNFINISHED, encode(searches));
    }
}

/// Checks whether a search finds this fact.
pub fn finds(searches: &[Scan], fact: &FactKey, record: &FactRecord) -> bool {
    let may_find = |search: &&Scan| {
        (search.family, search.pid) == (fact.family, fact.pid)
            && (search.oldest..=search.newest).contains(&record.time())
    };
    let mut searches = searches.iter().filter(may_find).peekable();
    if searches.peek().is_none() {
        return false;
    }
    let ids = record.device_ids();
    let keys: Vec<MatchKey> = ids.iter().map(match_keys::by_id).collect();
    searches.any(|search| keys.contains(&search.key))
}

fn encode(searches: &[Scan]) -> Vec<u8> {
    let mut value = Vec::new();
    for Scan { key, pid, oldest, newest, .. } in searches {
        value.extend(key.0.to_be_bytes());
        value.extend(pid.0.to_be_bytes());
        value.extend(oldest.millis().to_be_bytes());
        value.extend(newest.millis().to_be_bytes());
    }
    value
}

pub fn decode(value: &[u8]) -> Result<Vec<Scan>, StoreError> {
    let (mut input, mut searches) = (Input::new(value), Vec::new());
    while !input.rest().is_empty() {
        searches.push(search(&mut input).ok_or_else(damage)?);
    }
    Ok(searches)
}

fn search(input: &mut Input<'_>) -> Option<Scan> {
    let key = MatchKey(input.u64().ok()?);
    let pid = Pid(u32::from_be_bytes(input.bytes().ok()?));
    let (oldest, newest) = (event_time(input.u64().ok()?)?, event_time(input.u64().ok()?)?);
    Some(Scan { family: Family::Effect, key, pid, oldest, newest, after: None, limit: PAGE })
}

fn damage() -> StoreError {
    StoreError::corrupt("the list of effects that are left to be decided")
}

#[cfg(test)]
mod tests {
    use attribution::facts::event::EventTime;

    use super::*;

    #[test]
    fn searches_are_decoded_as_they_were_encoded() {
        let time = |millis| EventTime::from_millis(millis).unwrap();
        let search = |key, newest| Scan {
            family: Family::Effect,
            key: MatchKey(key),
            pid: Pid(7),
            oldest: time(5),
            newest,
            after: None,
            limit: PAGE,
        };
        let searches = vec![search(u64::MAX, EventTime::MAX), search(1, time(6))];
        let value = encode(&searches);
        assert_eq!(value.len(), 2 * 28);
        assert_eq!(decode(&value).unwrap(), searches);
        assert!(decode(&[]).unwrap().is_empty());
        assert!(decode(&value[1..]).is_err(), "cut");
        assert!(decode(&[0xff; 28]).is_err(), "a time after the year 9999");
    }
}
