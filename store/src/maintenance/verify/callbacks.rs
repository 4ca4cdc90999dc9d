//! Checks that the outbox is readable, that its due index leads to all pending entries, and that its tallies match the
//! entries.

use std::collections::BTreeMap;

use attribution::outbox::record::{Counts, EndpointId, OutboxRecord, Tally};
use rocksdb::WriteBatch;

use super::findings::Findings;
use super::report::{Check, Problem, at};
use super::snapshot::Snapshot;
use super::table_scan::{Found, look_up, scan_table};
use crate::StoreError;
use crate::embedded::open::column_families::OUTBOX;
use crate::layout::codec;
use crate::layout::key::Key;
use crate::layout::outbox::{self as keys, DUE_BYTES, OutboxTableKey, RECORD_BYTES};

/// The key of an entry of the due index, as stored.
type StoredDue = [u8; DUE_BYTES];
/// The key of a record.
type RecordKey = [u8; RECORD_BYTES];

/// What the table says of each endpoint.
#[derive(Default)]
struct Sums {
    stored: Counts,
    pending: BTreeMap<EndpointId, u64>,
    /// A record is unreadable, so its entries are not counted.
    has_unreadable: bool,
}

pub fn check_callbacks(
    snapshot: &Snapshot<'_>,
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    let mut sums = Sums::default();
    scan_table(snapshot, findings, Check::Callbacks, OUTBOX, |findings, chunk| {
        findings.report.add_checked(Check::Callbacks, chunk.len());
        let (mut records, mut dues) = (Vec::new(), Vec::new());
        for (key, value) in chunk {
            match keys::decode(key) {
                None => {
                    let tables = &snapshot.tables;
                    findings.repair_by_delete(Problem::CallbackKeyUnreadable, tables, OUTBOX, key);
                }
                Some(OutboxTableKey::Count(endpoint)) => {
                    let tally = codec::outbox::decode_tally(value).unwrap_or_default();
                    sums.stored.insert(endpoint, tally);
                }
                Some(OutboxTableKey::Due(..)) => dues.push(&key[..]),
                Some(OutboxTableKey::Record(event)) => match codec::outbox::decode(&event, value) {
                    Ok(record) => records.push(record),
                    Err(_) => {
                        sums.has_unreadable = true;
                        findings.add(Problem::CallbackUnreadable, || at(OUTBOX, key));
                    }
                },
            }
        }
        sums.add(&records);
        check_dues(snapshot, &dues, findings)?;
        check_records(snapshot, &records, findings)
    })?;
    sums.check(snapshot, findings);
    findings.write_fixes(&snapshot.tables)
}

/// Checks that entries of the due index lead to records that are due then.
fn check_dues(
    snapshot: &Snapshot<'_>,
    dues: &[&[u8]],
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    let targets = dues.iter().filter_map(|key| match keys::decode(key)? {
        OutboxTableKey::Due(due) => Some((key, due)),
        OutboxTableKey::Record(_) | OutboxTableKey::Count(_) => None,
    });
    let targets: Vec<_> = targets.collect();
    let records = targets.iter().filter_map(|(_, due)| record_key(&due.event));
    let found = look_up(snapshot, OUTBOX, records.collect::<Vec<_>>(), findings)?;
    for (key, due) in targets {
        let is_right = match record_key(&due.event).and_then(|key| found.get(&key)) {
            // An unreadable record is reported by itself.
            Some(Found::Unreadable) => continue,
            Some(Found::Value(value)) => match codec::outbox::decode(&due.event, value) {
                Ok(record) => keys::due_keys(&record).any(|known| known == due),
                Err(_) => continue,
            },
            None => false,
        };
        if !is_right {
            let tables = &snapshot.tables;
            findings.repair_by_delete(Problem::CallbackDueWrong, tables, OUTBOX, key);
        }
    }
    Ok(())
}

/// Checks that records with pending entries are in the due index.
fn check_records(
    snapshot: &Snapshot<'_>,
    records: &[OutboxRecord],
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    let dues = records.iter().flat_map(keys::due_keys);
    let dues: Vec<StoredDue> = dues.filter_map(|due| keys::due(&due).try_into().ok()).collect();
    let found = look_up(snapshot, OUTBOX, dues.iter().copied(), findings)?;
    for key in dues.iter().filter(|key| !found.contains_key(*key)) {
        let table = snapshot.tables.outbox();
        findings.repair(
            Problem::CallbackDueWrong,
            || at(OUTBOX, key),
            |batch| batch.put_cf(&table, key, b""),
        );
    }
    Ok(())
}

fn record_key(event: &Key) -> Option<RecordKey> {
    keys::record_of(event).try_into().ok()
}

impl Sums {
    fn add(&mut self, records: &[OutboxRecord]) {
        for entry in records.iter().flat_map(|record| &record.entries) {
            let pending = self.pending.entry(entry.endpoint.clone()).or_default();
            *pending += u64::from(entry.is_pending());
        }
    }

    /// Checks that what was made is what was finished and what is pending. What was finished is not known otherwise,
    /// because records expire.
    fn check(mut self, snapshot: &Snapshot<'_>, findings: &mut Findings<'_>) {
        if self.has_unreadable || findings.files.has_damage_in(&[OUTBOX]) {
            findings.report.unchecked += 1;
            return;
        }
        for endpoint in self.stored.keys() {
            self.pending.entry(endpoint.clone()).or_default();
        }
        for (endpoint, pending) in self.pending {
            let tally = self.stored.get(&endpoint).copied().unwrap_or_default();
            let made = tally.finished().saturating_add(pending);
            if tally.made == made {
                continue;
            }
            let (table, key) = (snapshot.tables.outbox(), keys::count(&endpoint));
            let repaired = codec::outbox::encode_tally(&Tally { made, ..tally });
            let place = || format!("endpoint {}", endpoint.as_str());
            let fix = |batch: &mut WriteBatch| batch.put_cf(&table, key, repaired);
            findings.repair(Problem::CallbackCountDiffers, place, fix);
        }
    }
}
