//! A store as past layouts had it, under other hashes of ids: brought under the present ones it is what it was.

use std::collections::BTreeMap;

use adtrail_store::apps::spread::App;
use adtrail_store::layout::codec::fact_record;
use adtrail_store::layout::key::{self, FactPlace, Key, RowKey};
use attribution::facts::event::{Family, Pid};
use attribution::facts::keys::{FactKey, MatchKey};
use attribution::ledger::record::{CurrentRow, FactRecord};
use attribution::rules::row::EventType;

use super::bed::{Bed, Entry, Raw};

const PAST: u32 = 7;
const TABLES: [(Family, &str); 3] =
    [(Family::Touch, "touches"), (Family::Activation, "activations"), (Family::Effect, "effects")];

/// Another hash, of which no bit is that of the present one.
fn past(fact: FactKey) -> FactKey {
    FactKey { id: MatchKey(!fact.id.0), tag: fact.tag ^ 0xffff_ffff_ffff, ..fact }
}

fn past_home(family: Family, pid: Pid, value: &[u8]) -> Vec<u8> {
    let mut record = fact_record::decode(family, pid, value).expect("a home");
    if let FactRecord::Activation(activation) = &mut record {
        activation.changed_by.facts.iter_mut().for_each(|cause| cause.fact = past(cause.fact));
    }
    let mut value = Vec::new();
    fact_record::encode(&record, &mut value);
    value
}

fn past_fact(family: Family, (key, value): &Entry) -> (Key, Vec<u8>) {
    match key::decode_fact(key).expect("a fact's key") {
        FactPlace::FactRecord { id, pid, tag } => {
            let fact = past(FactKey { family, id: MatchKey(id), pid, tag });
            (key::record(&fact), past_home(family, pid, value))
        }
        FactPlace::Index { pid, time, tag } => {
            let (id, lookback) = value.split_first_chunk().expect("an id");
            let id = MatchKey(u64::from_be_bytes(*id));
            let found_by = MatchKey(u64::from_be_bytes(*key.first_chunk().expect("a match")));
            if id == MatchKey(0) {
                return (key[..].try_into().expect("a key"), value.to_vec());
            }
            let fact = past(FactKey { family, id, pid, tag });
            let value = [&fact.id.0.to_be_bytes(), lookback].concat();
            (key::index(found_by, &fact, time), value)
        }
    }
}

/// How far apps were spread when their rows were written, by what is last in their keys.
fn fans(raw: &Raw) -> BTreeMap<u64, u8> {
    let mut fans = BTreeMap::new();
    for (family, table) in TABLES {
        for (key, value) in raw.entries(table) {
            let Some(FactPlace::FactRecord { pid, .. }) = key::decode_fact(&key) else { continue };
            let record = fact_record::decode(family, pid, &value).expect("a home");
            let (event_type, current_row) = match &record {
                FactRecord::Touch(_) => continue,
                FactRecord::Activation(record) => (EventType::Activation, record.current_row),
                FactRecord::Effect(record) => (EventType::Effect, record.current_row),
            };
            if let Some(CurrentRow { place, .. }) = current_row {
                fans.insert(
                    attribution::rules::row::seq(event_type, record.id()),
                    place.fanout_bits,
                );
            }
        }
    }
    fans
}

fn past_row(key: &[u8], apps: &BTreeMap<Pid, App>, fans: &BTreeMap<u64, u8>) -> Key {
    let row = RowKey::decode(key).expect("a row's key");
    let base = apps[&row.pid].base;
    let partition = |seq, fanout| key::row_partition(base, seq, fanout, 8);
    // Without a home the fanout that it was written by is one of those that its place can be by.
    let guess = || if partition(row.seq, 0) == row.partition { 0 } else { 2 };
    let fanout = fans.get(&row.seq).copied().unwrap_or_else(guess);
    let seq = !row.seq;
    RowKey { seq, partition: partition(seq, fanout), ..row }.encode()
}

fn make_past(raw: &Raw, apps: &BTreeMap<Pid, App>) {
    let fans = fans(raw);
    assert!(fans.values().any(|fanout| *fanout == 0) && fans.values().any(|fanout| *fanout == 2));
    let mut causes = 0;
    for (family, table) in TABLES {
        let entries = raw.entries(table);
        entries.iter().for_each(|(key, _)| raw.delete(table, key));
        for entry in &entries {
            let (key, value) = past_fact(family, entry);
            causes += usize::from(value[..] != entry.1[..] && value.len() == entry.1.len());
            raw.put(table, &key, &value);
        }
    }
    assert!(causes > 0);
    let rows = raw.entries("events");
    rows.iter().for_each(|(key, _)| raw.delete("events", key));
    rows.iter().for_each(|(key, value)| raw.put("events", &past_row(key, apps, &fans), value));
    raw.put("meta", b"layout", &PAST.to_be_bytes());
}

fn contents(bed: &Bed) -> Vec<(&'static str, Vec<Entry>)> {
    let mut found = Vec::new();
    bed.damage(|raw| {
        for table in ["touches", "activations", "effects", "events", "brought"] {
            found.push((table, raw.entries(table)));
        }
        found[1].1.iter_mut().for_each(|(key, value)| name_known(raw, key, value));
    });
    found
}

/// Of a cause that is gone nobody knows the present key: it is left out on both sides.
fn name_known(raw: &Raw, key: &[u8], value: &mut Box<[u8]>) {
    let Some(FactPlace::FactRecord { pid, .. }) = key::decode_fact(key) else { return };
    let mut record = fact_record::decode(Family::Activation, pid, value).expect("a home");
    let FactRecord::Activation(activation) = &mut record else { return };
    let causes = &mut activation.changed_by;
    causes.facts.retain(|cause| {
        let (_, table) = TABLES[cause.fact.family as usize];
        raw.0.get_cf(raw.table(table), key::record(&cause.fact)).expect("a look-up").is_some()
    });
    causes.has_more = false;
    let mut known = Vec::new();
    fact_record::encode(&record, &mut known);
    *value = known.into();
}

#[test]
fn what_stands_under_another_hash_is_moved() {
    let bed = Bed::new();
    let store = bed.open();
    let apps = store.reader().apps().expect("its own");
    store.compact();
    drop(store);
    let (export, expected) = (bed.export(), contents(&bed));
    bed.damage(|raw| make_past(raw, &apps));
    let store = bed.open();
    store.compact();
    drop(store);
    let found = contents(&bed);
    for ((table, found), (_, expected)) in found.iter().zip(&expected) {
        let differs = found.iter().zip(expected).filter(|(found, expected)| found != expected);
        let (count, differs) = ((found.len(), expected.len()), differs.count());
        assert!(found == expected, "{table}: {count:?} entries, {differs} differ");
    }
    assert!(bed.export() == export);
    let report = bed.verify();
    assert!(report.is_whole(), "{:?}", report.examples);
}
