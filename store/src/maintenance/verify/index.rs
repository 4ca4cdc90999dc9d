//! Checks that each fact is found by all its keys, and that each index entry leads to its fact.

use std::collections::BTreeMap;

use attribution::facts::device_ids::DeviceIds;
use attribution::facts::event::{EventTime, Family};
use attribution::facts::keys::{FactKey, MatchKey, MatchKeys};
use attribution::facts::match_keys::{self, BUCKET_MS};
use attribution::ledger::received_md5::ReceivedMd5;
use attribution::ledger::record::FactRecord;
use attribution::rules::policy::DAY_MS;

use super::fact_tables::FactTable;
use super::findings::Findings;
use super::report::{Check, Problem, at};
use super::snapshot::Snapshot;
use super::table_scan::{Entry, Found, look_up, scan_table};
use super::touches::{
    Covered, UsedNumbers, check_contents, check_references, references_elsewhere,
};
use crate::StoreError;
use crate::embedded::open::column_families::META;
use crate::embedded::open::meta::RECEIVED_MD5;
use crate::embedded::tables::Tables;
use crate::embedded::write::received_md5::ReceivedMd5ByApp;
use crate::layout::codec;
use crate::layout::codec::touch::TouchRef;
use crate::layout::key::{self, FactTableKey, Key};

pub fn check_index(snapshot: &Snapshot<'_>, findings: &mut Findings<'_>) -> Result<(), StoreError> {
    let (mut received_md5, mut numbers) = (ReceivedMd5ByApp::default(), UsedNumbers::default());
    for table in FactTable::of_family(snapshot, Family::Touch) {
        check_touches(snapshot, &table, &mut received_md5, &mut numbers, findings)?;
    }
    numbers.check(snapshot, findings)?;
    for family in [Family::Activation, Family::Effect] {
        let table = Tables::name_of(family);
        let of_family = FactTable { family, index: table.to_owned(), contents: None };
        if findings.fixes.is_none() {
            scan_table(snapshot, findings, Check::Index, table, |findings, chunk| {
                check_entries(snapshot, &of_family, chunk, findings)?;
                check_facts(snapshot, family, chunk, &mut received_md5, findings)
            })?;
            continue;
        }
        // Two scans, so that the first does not delete entries that the second puts.
        scan_table(snapshot, findings, Check::Index, table, |findings, chunk| {
            check_entries(snapshot, &of_family, chunk, findings)
        })?;
        scan_table(snapshot, findings, Check::Index, table, |findings, chunk| {
            check_facts(snapshot, family, chunk, &mut received_md5, findings)
        })?;
    }
    check_received_md5(snapshot, &received_md5, findings)
}

/// Checks a table of touches.
fn check_touches(
    snapshot: &Snapshot<'_>,
    table: &FactTable,
    received_md5: &mut ReceivedMd5ByApp,
    numbers: &mut UsedNumbers,
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    let Some((_, contents)) = &table.contents else { return Ok(()) };
    let is_repair = findings.fixes.is_some();
    scan_table(snapshot, findings, Check::Index, &table.index, |findings, chunk| {
        check_references(snapshot, table, chunk, numbers, findings)?;
        if is_repair { Ok(()) } else { check_entries(snapshot, table, chunk, findings) }
    })?;
    let mut covered = Covered::default();
    scan_table(snapshot, findings, Check::Index, contents, |findings, chunk| {
        let touches = check_contents(snapshot, table, chunk, numbers, findings)?;
        touches.iter().for_each(|touch| covered.add(touch));
        let facts = touches.into_iter().map(|touch| (touch.fact, touch.record)).collect();
        check_entries_of_facts(snapshot, &table.index, facts, received_md5, findings)
    })?;
    // Entries lead to touches by references. A repair derives these first, or it would delete the entries of a touch
    // without a reference, and nothing says which probabilistic ones it had.
    if is_repair {
        scan_table(snapshot, findings, Check::Index, &table.index, |findings, chunk| {
            check_entries(snapshot, table, chunk, findings)
        })?;
    }
    covered.check(snapshot, table, findings)
}

/// Checks that the store knows which ids its facts were received with as MD5.
fn check_received_md5(
    snapshot: &Snapshot<'_>,
    expected: &ReceivedMd5ByApp,
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    let tables = &snapshot.tables;
    let mut stored = ReceivedMd5ByApp::default();
    let entries = findings.unless_damaged(tables, tables.meta_entries(RECEIVED_MD5))?;
    for (pid, value) in entries.unwrap_or_default() {
        let name = [RECEIVED_MD5, &pid].concat();
        match (key::decode_pid(&pid), ReceivedMd5::decode(&value)) {
            (Some(pid), Some(received)) => stored.put(pid, received),
            // The facts of an app that is not in the settings are not checked, so any ids may be received as MD5.
            (Some(pid), None) => {
                stored.put(pid, ReceivedMd5::ANY);
                let named = || snapshot.app_name(pid);
                findings.repair(Problem::ReceivedMd5Wrong, named, |batch| {
                    batch.put_cf(&tables.meta(), &name, ReceivedMd5::ANY.encode());
                });
            }
            (None, _) => {
                findings.repair_by_delete(Problem::ReceivedMd5Wrong, tables, META, &name);
            }
        }
    }
    for pid in expected.apps() {
        let known = stored.of(pid);
        let complete = known.union(&expected.of(pid));
        if known != complete {
            let named = || snapshot.app_name(pid);
            findings.repair(Problem::ReceivedMd5Wrong, named, |batch| {
                batch.put_cf(&tables.meta(), key::with_pid(RECEIVED_MD5, pid), complete.encode());
            });
        }
    }
    findings.write_fixes(tables)
}

/// Checks that facts decode, are stored under their identities and have all their index entries.
fn check_facts(
    snapshot: &Snapshot<'_>,
    family: Family,
    chunk: &[Entry],
    received_md5: &mut ReceivedMd5ByApp,
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    let table = Tables::name_of(family);
    let mut facts: Vec<(FactKey, FactRecord)> = Vec::new();
    for (key, value) in chunk {
        let Some(FactTableKey::FactRecord { pid, .. }) = key::decode_fact(key) else { continue };
        findings.report.add_checked(Check::Facts, 1);
        let Ok(record) = codec::fact_record::decode(family, pid, value) else {
            findings.add(Problem::FactUnreadable, || at(table, key));
            continue;
        };
        let fact = match_keys::fact_key(record.id_space(), pid, record.id());
        if key::record(&fact)[..] != **key {
            findings.add(Problem::FactMisplaced, || at(table, key));
            continue;
        }
        if !snapshot.expiry.has_expired(pid, &record) {
            facts.push((fact, record));
        }
    }
    check_entries_of_facts(snapshot, table, facts, received_md5, findings)
}

/// Checks that facts that have not expired have all their index entries.
fn check_entries_of_facts(
    snapshot: &Snapshot<'_>,
    table: &str,
    facts: Vec<(FactKey, FactRecord)>,
    received_md5: &mut ReceivedMd5ByApp,
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    let mut expected: Vec<(FactKey, FactRecord, FactEntries)> = Vec::new();
    for (fact, record) in facts {
        if snapshot.policy.app(fact.pid).is_some() {
            let ids = record.device_ids();
            received_md5.add(fact.pid, &record, ids.received_md5());
            let entries = FactEntries::of(&fact, &record, &ids);
            expected.push((fact, record, entries));
        }
    }
    let wanted = expected.iter().flat_map(|(_, _, entries)| {
        entries.by_id.iter().chain(&entries.probabilistic).chain(&entries.markers).copied()
    });
    let found = look_up(snapshot, table, wanted, findings)?;
    for (fact, record, entries) in expected {
        check_entries_of(snapshot, table, &(fact, record), &entries, &found, findings);
    }
    Ok(())
}

fn check_entries_of(
    snapshot: &Snapshot<'_>,
    table: &str,
    (fact, record): &(FactKey, FactRecord),
    entries: &FactEntries,
    found: &BTreeMap<Key, Found>,
    findings: &mut Findings<'_>,
) {
    let exists = |key: &Key, value: &[u8]| match found.get(key) {
        Some(Found::Value(found)) => **found == *value,
        None => false,
        // Reported with its file.
        Some(Found::Unreadable) => true,
    };
    let marker = marker_value();
    let mut expected = vec![(Problem::EntryMissing, &entries.by_id, &*entries.value)];
    // The filter of a damaged file may still exclude one key, while another is unreadable. So only an entry that was
    // read shows that the others must exist too.
    let is_read = |key: &&Key| matches!(found.get(*key), Some(Found::Value(_)));
    let is_unreadable = |key: &Key| matches!(found.get(key), Some(Found::Unreadable));
    if entries.probabilistic.iter().filter(is_read).any(|key| exists(key, &entries.value)) {
        expected.push((Problem::EntryMissing, &entries.probabilistic, &*entries.value));
        expected.push((Problem::MarkerMissing, &entries.markers, &*marker));
    } else if !entries.probabilistic.is_empty() && !entries.probabilistic.iter().any(is_unreadable)
    {
        let is_on = snapshot.policy.app(fact.pid).is_some_and(|app| app.probabilistic);
        findings.report.without_probabilistic += u64::from(is_on);
    }
    for (problem, keys, value) in expected {
        findings.report.add_checked(Check::Index, keys.len());
        for key in keys.iter().filter(|key| !exists(key, value)) {
            let named = || snapshot.fact_name(fact, record);
            findings.repair(problem, named, |batch| {
                batch.put_cf(&snapshot.tables.table(table), key, value);
            });
        }
    }
}

/// Checks that entries decode and belong to the facts that they lead to.
fn check_entries(
    snapshot: &Snapshot<'_>,
    of_family: &FactTable,
    chunk: &[Entry],
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    let FactTable { family, index: table, .. } = of_family;
    let (tables, family) = (&snapshot.tables, *family);
    let mut entries_of_facts: Vec<(Key, &[u8], EventTime, FactKey)> = Vec::new();
    for (key, value) in chunk {
        if let Some(FactTableKey::FactRecord { .. }) = key::decode_fact(key) {
            continue;
        }
        findings.report.add_checked(Check::Index, 1);
        match decode_entry(snapshot, family, key, value) {
            Some(EntryKind::OfFact(key, time, fact)) => {
                entries_of_facts.push((key, value, time, fact));
            }
            Some(EntryKind::Marker | EntryKind::Expired) => {}
            None => findings.repair_by_delete(Problem::EntryUnreadable, tables, table, key),
        }
    }
    let keys = entries_of_facts.iter().map(|(_, _, _, fact)| key::record(fact));
    let records = of_family.records(snapshot, keys, findings)?;
    let keys = entries_of_facts.iter().map(|(_, _, _, fact)| key::record(fact));
    let missing: Vec<Key> = keys.filter(|key| !records.contains_key(key)).collect();
    let elsewhere = references_elsewhere(snapshot, of_family, &missing, findings)?;
    for (key, value, time, fact) in entries_of_facts {
        let record_key = key::record(&fact);
        let record = match records.get(&record_key) {
            None => {
                match elsewhere.get(&record_key) {
                    Some(Found::Value(value)) if has_other_time(value, time) => {
                        findings.report.stale += 1;
                    }
                    Some(Found::Unreadable) => findings.report.unchecked += 1,
                    _ => findings.repair_by_delete(Problem::EntryToNowhere, tables, table, &key),
                }
                continue;
            }
            Some(Found::Unreadable) => {
                findings.report.unchecked += 1;
                continue;
            }
            Some(Found::Value(record)) => codec::fact_record::decode(family, fact.pid, record),
        };
        // Unreadable records are reported by the check of facts.
        let Ok(record) = record else { continue };
        if record.time() != time {
            findings.report.stale += 1;
            continue;
        }
        let entries = FactEntries::of(&fact, &record, &record.device_ids());
        let is_expected = entries.by_id.contains(&key) || entries.probabilistic.contains(&key);
        if !is_expected || *entries.value != *value {
            findings.repair_by_delete(Problem::EntryOfAnother, tables, table, &key);
        }
    }
    Ok(())
}

/// True if a reference in another table leads to a touch that has replaced the one of an entry.
fn has_other_time(reference: &[u8], time: EventTime) -> bool {
    TouchRef::decode(reference).is_ok_and(|touch| touch.time != time)
}

enum EntryKind {
    OfFact(Key, EventTime, FactKey),
    Marker,
    /// The next compaction removes it.
    Expired,
}

/// `None` if the entry is damaged.
fn decode_entry(
    snapshot: &Snapshot<'_>,
    family: Family,
    key: &[u8],
    value: &[u8],
) -> Option<EntryKind> {
    let key = Key::try_from(key).ok()?;
    let (id, lookback_ms) = codec::index_value(value).ok()?;
    let entry = key::decode_index(family, &key, id)?;
    if id == 0 {
        let is_day = entry.time.millis() % BUCKET_MS == 0;
        return is_day.then_some(EntryKind::Marker);
    }
    // The lookback is rounded up to days, so the fact itself may have expired up to a day earlier.
    let lookback_ms = lookback_ms.map(|ms| ms.saturating_sub(DAY_MS));
    if entry.time < snapshot.expiry.oldest(entry.fact.pid, family, lookback_ms) {
        return Some(EntryKind::Expired);
    }
    Some(EntryKind::OfFact(key, entry.time, entry.fact))
}

/// The expected index entries of a fact.
struct FactEntries {
    /// Keys by device and click ids.
    by_id: Vec<Key>,
    /// Probabilistic keys. They exist only if the fact was recorded while probabilistic matching was on for its app.
    probabilistic: Vec<Key>,
    /// Keys of bucket markers. They exist under the same condition.
    markers: Vec<Key>,
    /// The value of all entries except markers.
    value: Vec<u8>,
}

impl FactEntries {
    fn of(fact: &FactKey, record: &FactRecord, ids: &DeviceIds) -> Self {
        let key = |by: &MatchKey| key::index(*by, fact, record.time());
        let [by_id, all] =
            [false, true].map(|probabilistic| index_keys(record, ids, probabilistic));
        let markers = match record {
            FactRecord::Touch(touch) => match_keys::touch_bucket_markers(touch, ids),
            FactRecord::Activation(record) => {
                match_keys::activation_bucket_markers(&record.fact, ids)
            }
            FactRecord::Effect(_) => Vec::new(),
        };
        let mut value = Vec::with_capacity(9);
        codec::put_index_value(&mut value, fact.id.0, record.lookback_ms());
        Self {
            probabilistic: all.iter().filter(|by| !by_id.contains(by)).map(key).collect(),
            by_id: by_id.iter().map(key).collect(),
            markers: markers
                .iter()
                .map(|(by, marker)| key::index(*by, &marker.fact, marker.time))
                .collect(),
            value,
        }
    }
}

fn index_keys(record: &FactRecord, ids: &DeviceIds, probabilistic: bool) -> MatchKeys {
    match record {
        FactRecord::Touch(touch) => match_keys::touch_index(touch, ids, probabilistic),
        FactRecord::Activation(record) => {
            match_keys::activation_index(&record.fact, ids, probabilistic)
        }
        FactRecord::Effect(_) => ids.iter().map(match_keys::by_id).collect(),
    }
}

/// The value of every bucket marker.
fn marker_value() -> Vec<u8> {
    let mut value = Vec::with_capacity(8);
    codec::put_index_value(&mut value, 0, None);
    value
}
