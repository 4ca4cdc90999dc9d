//! Checks that each fact is found by all its keys, and that each index entry leads to its fact.

use attribution::facts::event::{EventTime, Family};
use attribution::facts::keys::FactKey;
use attribution::facts::match_keys::{self, BUCKET_MS};
use attribution::ledger::record::FactRecord;
use attribution::rules::policy::DAY_MS;

use super::expected_entries::{Entries, entries, marker_value};
use super::table_scan::{Entry, Found, LookedUp};
use super::{Check, Checker, Problem, at};
use crate::StoreError;
use crate::embedded::tables::Tables;
use crate::layout::codec;
use crate::layout::key::{self, FactTableKey, Key};

impl Checker<'_> {
    pub fn check_index(&mut self) -> Result<(), StoreError> {
        for family in Family::ALL {
            let table = Tables::name_of(family);
            if self.fixes.is_none() {
                self.scan_table(Check::Index, table, |checker, chunk| {
                    checker.check_entries(family, &chunk)?;
                    checker.check_facts(family, &chunk)
                })?;
                continue;
            }
            // Two scans, so that the first does not delete entries that the second puts.
            self.scan_table(Check::Index, table, |checker, chunk| {
                checker.check_entries(family, &chunk)
            })?;
            self.scan_table(Check::Index, table, |checker, chunk| {
                checker.check_facts(family, &chunk)
            })?;
        }
        Ok(())
    }

    /// Checks that facts decode, are stored under their identities and have all their index entries.
    fn check_facts(&mut self, family: Family, chunk: &[Entry]) -> Result<(), StoreError> {
        let table = Tables::name_of(family);
        let mut expected: Vec<(FactKey, FactRecord, Entries)> = Vec::new();
        for (key, value) in chunk {
            let Some(FactTableKey::FactRecord { pid, .. }) = key::decode_fact(key) else {
                continue;
            };
            self.report.add_checked(Check::Facts, 1);
            let Ok(record) = codec::fact_record::decode(family, pid, value) else {
                self.find(Problem::FactUnreadable, || at(table, key));
                continue;
            };
            let fact = match_keys::fact_key(family, pid, record.id());
            if key::record(&fact)[..] != **key {
                self.find(Problem::FactMisplaced, || at(table, key));
                continue;
            }
            if self.policy.app(pid).is_some() && !self.expiry.has_expired(pid, &record) {
                let entries = entries(&fact, &record);
                expected.push((fact, record, entries));
            }
        }
        let wanted = expected.iter().flat_map(|(_, _, entries)| {
            entries.by_id.iter().chain(&entries.probabilistic).chain(&entries.markers).copied()
        });
        let found = self.look_up(table, wanted.collect())?;
        for (fact, record, entries) in expected {
            self.check_found(&fact, &record, &entries, &found);
        }
        Ok(())
    }

    fn check_found(
        &mut self,
        fact: &FactKey,
        record: &FactRecord,
        entries: &Entries,
        found: &LookedUp,
    ) {
        let is = |key: &Key, value: &[u8]| match found.of(key) {
            Found::Value(found) => **found == *value,
            Found::Nothing => false,
            // Reported with its file.
            Found::Unreadable => true,
        };
        let marker = marker_value();
        let mut missing: Vec<(Problem, Key, &[u8])> = Vec::new();
        let by_id = entries.by_id.iter().filter(|key| !is(key, &entries.value));
        missing.extend(by_id.map(|key| (Problem::EntryMissing, *key, &*entries.value)));
        self.report.add_checked(Check::Index, entries.by_id.len());
        let has_probabilistic = entries.probabilistic.iter().any(|key| is(key, &entries.value));
        if has_probabilistic {
            let probabilistic = entries.probabilistic.iter().filter(|key| !is(key, &entries.value));
            missing.extend(probabilistic.map(|key| (Problem::EntryMissing, *key, &*entries.value)));
            let markers = entries.markers.iter().filter(|key| !is(key, &marker));
            missing.extend(markers.map(|key| (Problem::MarkerMissing, *key, &*marker)));
            let count = entries.probabilistic.len() + entries.markers.len();
            self.report.add_checked(Check::Index, count);
        } else if !entries.probabilistic.is_empty() {
            let app = self.policy.app(fact.pid);
            self.report.without_probabilistic +=
                u64::from(app.is_some_and(|app| app.probabilistic));
        }
        for (problem, key, value) in missing {
            let named = self.named(fact, record);
            self.find_and(
                problem,
                || named,
                |batch, tables| {
                    batch.put_cf(tables.facts(fact.family), key, value);
                },
            );
        }
    }

    /// Checks that entries decode and belong to the facts that they lead to.
    fn check_entries(&mut self, family: Family, chunk: &[Entry]) -> Result<(), StoreError> {
        let table = Tables::name_of(family);
        let mut entries_of_facts: Vec<(Key, &[u8], EventTime, FactKey)> = Vec::new();
        for (key, value) in chunk {
            if let Some(FactTableKey::FactRecord { .. }) = key::decode_fact(key) {
                continue;
            }
            self.report.add_checked(Check::Index, 1);
            match self.entry(family, key, value) {
                EntryKind::OfFact(key, time, fact) => {
                    entries_of_facts.push((key, value, time, fact));
                }
                EntryKind::Marker | EntryKind::Expired => {}
                EntryKind::Damaged => self.remove_entry(Problem::EntryUnreadable, family, key),
            }
        }
        let records = entries_of_facts.iter().map(|(_, _, _, fact)| key::record(fact)).collect();
        let records = self.look_up(table, records)?;
        for (key, value, time, fact) in entries_of_facts {
            let record = match records.of(&key::record(&fact)) {
                Found::Nothing => {
                    self.remove_entry(Problem::EntryToNowhere, family, &key);
                    continue;
                }
                Found::Unreadable => {
                    self.report.unchecked += 1;
                    continue;
                }
                Found::Value(record) => codec::fact_record::decode(family, fact.pid, record),
            };
            // Unreadable records are reported by the check of facts.
            let Ok(record) = record else { continue };
            if record.time() != time {
                self.report.stale += 1;
                continue;
            }
            let entries = entries(&fact, &record);
            let is_expected = entries.by_id.contains(&key) || entries.probabilistic.contains(&key);
            if !is_expected || *entries.value != *value {
                self.remove_entry(Problem::EntryOfAnother, family, &key);
            }
        }
        Ok(())
    }

    fn entry(&self, family: Family, key: &[u8], value: &[u8]) -> EntryKind {
        let (Ok(key), Ok((id, lookback_ms))) = (Key::try_from(key), codec::index_value(value))
        else {
            return EntryKind::Damaged;
        };
        let Some(entry) = key::decode_index(family, &key, id) else {
            return EntryKind::Damaged;
        };
        if id == 0 {
            let is_day = entry.time.millis() % BUCKET_MS == 0;
            return if is_day { EntryKind::Marker } else { EntryKind::Damaged };
        }
        // The lookback is rounded up to days, so the fact itself may have expired up to a day earlier.
        let lookback_ms = lookback_ms.map(|ms| ms.saturating_sub(DAY_MS));
        if entry.time < self.expiry.oldest(entry.fact.pid, family, lookback_ms) {
            return EntryKind::Expired;
        }
        EntryKind::OfFact(key, entry.time, entry.fact)
    }

    fn remove_entry(&mut self, problem: Problem, family: Family, key: &[u8]) {
        let named = || at(Tables::name_of(family), key);
        self.find_and(problem, named, |batch, tables| batch.delete_cf(tables.facts(family), key));
    }
}

enum EntryKind {
    OfFact(Key, EventTime, FactKey),
    Marker,
    /// The next compaction removes it.
    Expired,
    Damaged,
}
