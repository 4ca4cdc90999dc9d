//! Checks the tables of touches: references lead to contents and contents have references, the record of each table
//! covers its touches, and no number will be used twice.

use std::collections::BTreeMap;

use attribution::facts::event::{Family, Pid};
use attribution::facts::keys::FactKey;
use attribution::facts::match_keys;
use attribution::ledger::record::FactRecord;
use attribution::rules::policy::DAY_MS;

use super::fact_tables::FactTable;
use super::findings::Findings;
use super::report::{Check, Problem, at};
use super::snapshot::Snapshot;
use super::table_scan::{Entry, Found, look_up};
use crate::StoreError;
use crate::embedded::open::column_families::META;
use crate::embedded::touches::record::{Day, TableRecord};
use crate::embedded::touches::tables::{self, record_name};
use crate::embedded::touches::write::{TOUCH_NUMBER, reserved_number};
use crate::layout::codec::fact_record;
use crate::layout::codec::touch::{self, TouchRef, split_contents};
use crate::layout::key::{self, FactTableKey, Key};

/// A touch as it is stored.
pub struct StoredTouch {
    /// The key of its contents.
    number: u64,
    pub fact: FactKey,
    pub record: FactRecord,
}

/// Decodes contents and its identity.
fn decode(value: &[u8]) -> Option<(FactKey, FactRecord)> {
    let (pid, record) = split_contents(value).ok()?;
    let record = fact_record::decode(Family::Touch, pid, record).ok()?;
    Some((match_keys::fact_key(record.id_space(), pid, record.id()), record))
}

/// Checks that the references of a table decode, and lead to the contents of their touches.
pub fn check_references(
    snapshot: &Snapshot<'_>,
    table: &FactTable,
    chunk: &[Entry],
    numbers: &mut UsedNumbers,
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    let Some((_, contents)) = &table.contents else { return Ok(()) };
    let tables = &snapshot.tables;
    let mut references: Vec<(&[u8], Pid, TouchRef)> = Vec::new();
    for (key, value) in chunk {
        let Some(FactTableKey::FactRecord { pid, .. }) = key::decode_fact(key) else { continue };
        findings.report.add_checked(Check::Index, 1);
        match TouchRef::decode(value) {
            Ok(touch) => references.push((key, pid, touch)),
            Err(_) => {
                findings.repair_by_delete(Problem::EntryUnreadable, tables, &table.index, key);
            }
        }
    }
    let keys = references.iter().map(|(.., touch)| touch.number.to_be_bytes());
    let found = look_up(snapshot, contents, keys, findings)?;
    for (key, pid, touch) in references {
        let problem = match found.get(&touch.number.to_be_bytes()) {
            // A compaction has removed the contents.
            None if has_expired(snapshot, pid, &touch) => {
                numbers.add(touch.number);
                continue;
            }
            None => Problem::EntryToNowhere,
            Some(Found::Unreadable) => {
                numbers.add(touch.number);
                findings.report.unchecked += 1;
                continue;
            }
            // Unreadable contents are reported by the check of facts.
            Some(Found::Value(value)) => match decode(value) {
                Some((fact, _)) if key::record(&fact)[..] != *key => Problem::EntryOfAnother,
                _ => continue,
            },
        };
        findings.repair_by_delete(problem, tables, &table.index, key);
    }
    Ok(())
}

/// The lookback is rounded up to days, so the contents may have been removed up to a day earlier.
fn has_expired(snapshot: &Snapshot<'_>, pid: Pid, touch: &TouchRef) -> bool {
    let lookback_ms = touch.lookback_ms().map(|ms| ms.saturating_sub(DAY_MS));
    touch.time < snapshot.expiry.oldest(pid, Family::Touch, lookback_ms)
}

/// Decodes the contents of a table, and checks that each has its reference. Returns the touches that have not expired.
pub fn check_contents(
    snapshot: &Snapshot<'_>,
    table: &FactTable,
    chunk: &[Entry],
    numbers: &mut UsedNumbers,
    findings: &mut Findings<'_>,
) -> Result<Vec<StoredTouch>, StoreError> {
    let Some((_, contents)) = &table.contents else { return Ok(Vec::new()) };
    let mut touches: Vec<StoredTouch> = Vec::new();
    for (key, value) in chunk {
        findings.report.add_checked(Check::Facts, 1);
        let number = touch::number(key).ok();
        number.iter().for_each(|number| numbers.add(*number));
        match number.zip(decode(value)) {
            Some((number, (fact, record))) if !snapshot.expiry.has_expired(fact.pid, &record) => {
                touches.push(StoredTouch { number, fact, record });
            }
            Some(_) => {}
            None => findings.add(Problem::FactUnreadable, || at(contents, key)),
        }
    }
    let keys = touches.iter().map(|touch| key::record(&touch.fact));
    let found = look_up(snapshot, &table.index, keys, findings)?;
    let mut placed = Vec::with_capacity(touches.len());
    for touch in touches {
        if check_reference_of(snapshot, table, &touch, &found, findings)? {
            placed.push(touch);
        }
    }
    Ok(placed)
}

/// Returns false if another touch is stored under the identity.
fn check_reference_of(
    snapshot: &Snapshot<'_>,
    table: &FactTable,
    touch: &StoredTouch,
    found: &BTreeMap<Key, Found>,
    findings: &mut Findings<'_>,
) -> Result<bool, StoreError> {
    let StoredTouch { number, fact, record } = touch;
    let expected = TouchRef::new(*number, record.time(), record.lookback_ms()).encode();
    let key = key::record(fact);
    let is_other = match found.get(&key) {
        // Reported with its file.
        Some(Found::Unreadable) => return Ok(true),
        Some(Found::Value(value)) if **value == *expected => return Ok(true),
        Some(Found::Value(value)) => {
            TouchRef::decode(value).is_ok_and(|other| other.number != *number)
        }
        None => !references_elsewhere(snapshot, table, &[key], findings)?.is_empty(),
    };
    if is_other {
        let contents = table.contents.as_ref().map_or("", |(_, name)| name.as_str());
        findings.add(Problem::FactMisplaced, || at(contents, &number.to_be_bytes()));
        return Ok(false);
    }
    findings.repair(
        Problem::EntryMissing,
        || snapshot.fact_name(fact, record),
        |batch| {
            batch.put_cf(&snapshot.tables.table(&table.index), key, expected);
        },
    );
    Ok(true)
}

/// The references to touches, by the keys of their records, in all other tables of the family; none if the family has
/// one table.
pub fn references_elsewhere(
    snapshot: &Snapshot<'_>,
    table: &FactTable,
    keys: &[Key],
    findings: &mut Findings<'_>,
) -> Result<BTreeMap<Key, Found>, StoreError> {
    let mut found = BTreeMap::new();
    if keys.is_empty() {
        return Ok(found);
    }
    for other in FactTable::of_family(snapshot, table.family) {
        if other.index != table.index {
            found.extend(look_up(snapshot, &other.index, keys.iter().copied(), findings)?);
        }
    }
    Ok(found)
}

/// The numbers of contents in all tables, and those to which references still lead after a compaction has removed the
/// contents.
#[derive(Default)]
pub struct UsedNumbers {
    greatest: Option<u64>,
}

impl UsedNumbers {
    fn add(&mut self, number: u64) {
        self.greatest = self.greatest.max(Some(number));
    }

    /// Checks that the store continues after these numbers.
    pub fn check(
        self,
        snapshot: &Snapshot<'_>,
        findings: &mut Findings<'_>,
    ) -> Result<(), StoreError> {
        let tables = &snapshot.tables;
        findings.report.add_checked(Check::Index, 1);
        let unused = self.greatest.map_or(0, |number| number + 1);
        let is_valid = match reserved_number(&tables.db) {
            Err(StoreError::Corrupt { .. }) => false,
            reserved => {
                let reserved = findings.unless_damaged(tables, reserved)?;
                reserved.is_none_or(|reserved| reserved >= unused)
            }
        };
        if !is_valid {
            findings.repair(
                Problem::TouchNumberWrong,
                || at(META, TOUCH_NUMBER),
                |batch| batch.put_cf(&tables.meta(), TOUCH_NUMBER, unused.to_be_bytes()),
            );
        }
        findings.write_fixes(tables)
    }
}

/// What the record of a table must cover.
#[derive(Default)]
pub struct Covered(Option<TableRecord>);

impl Covered {
    pub fn add(&mut self, touch: &StoredTouch) {
        let (pid, record) = (touch.fact.pid, &touch.record);
        let day = Day::of(record.time());
        let covered = self.0.get_or_insert_with(|| TableRecord::new(day));
        covered.add(pid, day, record.lookback_ms());
    }

    /// Checks the record of a table.
    pub fn check(
        self,
        snapshot: &Snapshot<'_>,
        table: &FactTable,
        findings: &mut Findings<'_>,
    ) -> Result<(), StoreError> {
        let (Some(covered), Some((number, _))) = (self.0, &table.contents) else { return Ok(()) };
        let tables = &snapshot.tables;
        findings.report.add_checked(Check::Index, 1);
        if !tables.touches.are_days_known() {
            // Reported as the reason why the store does not open.
            return Ok(());
        }
        let records = findings.unless_damaged(tables, tables::records(&tables.db))?;
        let Some(stored) = records.and_then(|mut records| records.remove(number)) else {
            return Ok(());
        };
        let union = stored.union(&covered);
        if union == stored {
            return Ok(());
        }
        let name = record_name(*number);
        let named = || at(META, &name);
        let others = tables.touches.all();
        if others.iter().any(|other| other.number != *number && other.days.overlap(union.days)) {
            // A touch is in a table of other days. With such a record the store would not open.
            findings.add(Problem::TouchTableWrong, named);
            return Ok(());
        }
        findings.repair(Problem::TouchTableWrong, named, |batch| {
            batch.put_cf(&tables.meta(), &name, union.encode());
        });
        findings.write_fixes(tables)?;
        // Decisions are recomputed from all touches.
        tables.touches.set_days(*number, union.days);
        Ok(())
    }
}
