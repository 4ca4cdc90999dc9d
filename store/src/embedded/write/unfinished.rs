//! What an interrupted batch has left to be decided, in `meta`: events and searches for effects. The entry exists only
//! until the batch is committed.

use attribution::facts::event::{Family, Pid};
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::facts::match_keys;
use attribution::ledger::Unfinished;
use attribution::ledger::index::Scan;
use attribution::ledger::record::FactRecord;
use rocksdb::WriteBatch;

use crate::StoreError;
use crate::embedded::tables::Tables;
use crate::layout::codec::{Input, event_time};
use crate::layout::key::{self, FactTableKey, KEY_BYTES};

pub const UNFINISHED: &[u8] = b"unfinished";

/// Number of entries of the first page of each search.
const PAGE: usize = 256;

/// Returns what is stored.
///
/// # Errors
/// [`StoreError::Corrupt`] if it is unreadable.
pub fn load(tables: &Tables) -> Result<Unfinished, StoreError> {
    let value = tables.db.get_cf(&tables.meta(), UNFINISHED)?.unwrap_or_default();
    decode(&value)
}

/// Replaces what is stored.
pub fn put(batch: &mut WriteBatch, tables: &Tables, unfinished: &Unfinished) {
    if unfinished.is_empty() {
        batch.delete_cf(&tables.meta(), UNFINISHED);
    } else {
        batch.put_cf(&tables.meta(), UNFINISHED, encode(unfinished));
    }
}

/// Checks whether one of the searches finds this fact.
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

fn encode(Unfinished { events, searches }: &Unfinished) -> Vec<u8> {
    let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
    let mut value = count.to_be_bytes().to_vec();
    for event in events.iter().take(count as usize) {
        value.push(event.family as u8);
        value.extend(key::record(event));
    }
    for Scan { key, pid, oldest, newest, .. } in searches {
        value.extend(key.0.to_be_bytes());
        value.extend(pid.0.to_be_bytes());
        value.extend(oldest.millis().to_be_bytes());
        value.extend(newest.millis().to_be_bytes());
    }
    value
}

pub fn decode(value: &[u8]) -> Result<Unfinished, StoreError> {
    let (mut input, mut unfinished) = (Input::new(value), Unfinished::default());
    if value.is_empty() {
        return Ok(unfinished);
    }
    let count = u32::from_be_bytes(input.bytes().map_err(|_| damage())?);
    for _ in 0..count {
        unfinished.events.push(event(&mut input).ok_or_else(damage)?);
    }
    while !input.rest().is_empty() {
        unfinished.searches.push(search(&mut input).ok_or_else(damage)?);
    }
    Ok(unfinished)
}

fn event(input: &mut Input<'_>) -> Option<FactKey> {
    let family = *Family::ALL.get(usize::from(input.byte().ok()?))?;
    match key::decode_fact(input.take(KEY_BYTES).ok()?)? {
        FactTableKey::FactRecord { id, pid, tag } if family != Family::Touch => {
            Some(FactKey { family, id: MatchKey(id), pid, tag })
        }
        _ => None,
    }
}

fn search(input: &mut Input<'_>) -> Option<Scan> {
    let key = MatchKey(input.u64().ok()?);
    let pid = Pid(u32::from_be_bytes(input.bytes().ok()?));
    let (oldest, newest) = (event_time(input.u64().ok()?)?, event_time(input.u64().ok()?)?);
    Some(Scan { family: Family::Effect, key, pid, oldest, newest, after: None, limit: PAGE })
}

fn damage() -> StoreError {
    StoreError::corrupt("the list of what is left to be decided")
}

#[cfg(test)]
mod tests {
    use attribution::facts::event::EventTime;

    use super::*;

    #[test]
    fn what_is_left_is_decoded_as_it_was_encoded() {
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
        let event = |family| FactKey { family, id: MatchKey(3), pid: Pid(7), tag: 5 };
        let unfinished = Unfinished {
            events: vec![event(Family::Activation), event(Family::Effect)],
            searches: vec![search(u64::MAX, EventTime::MAX), search(1, time(6))],
        };
        let value = encode(&unfinished);
        assert_eq!(value.len(), 4 + 2 * 25 + 2 * 28);
        assert_eq!(decode(&value).unwrap(), unfinished);
        assert!(decode(&[]).unwrap().is_empty());
        assert!(decode(&value[..value.len() - 1]).is_err(), "cut in a search");
        assert!(decode(&value[..20]).is_err(), "cut in an event");
        let late = [&[0; 4][..], &[0xff; 28]].concat();
        assert!(decode(&late).is_err(), "a time after the year 9999");
        let touch = encode(&Unfinished { events: vec![event(Family::Touch)], searches: vec![] });
        assert!(decode(&touch).is_err(), "touches have no decisions");
    }
}
