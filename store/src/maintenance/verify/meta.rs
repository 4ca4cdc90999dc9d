//! Checks the metadata of a store: apps, positions and the low watermark. Regions and totals are checked with the
//! counts.

use std::collections::{BTreeMap, BTreeSet};

use attribution::facts::event::{EventTime, Pid};
use rocksdb::WriteBatch;

use super::counts::has_rows;
use super::findings::Findings;
use super::report::{Check, Problem, at};
use super::snapshot::Snapshot;
use super::table_scan::scan_table;
use crate::StoreError;
use crate::apps::record::{self, App};
use crate::clock::now;
use crate::embedded::open::column_families::{CELLS, META, OFFSETS};
use crate::embedded::open::meta::{self, APP, KNOWN_RECORDS, LAST_RECORDS};
use crate::embedded::write::expiry_floor::EXPIRING;
use crate::embedded::write::regions;
use crate::embedded::write::unfinished::{self, UNFINISHED};
use crate::expiry::floor;
use crate::layout::hourly_counts::{self, Cell, CellKey};
use crate::layout::key::{self, RowKey};

/// Returns the valid records of apps, including those that were derived.
pub fn check_meta(
    snapshot: &Snapshot<'_>,
    findings: &mut Findings<'_>,
) -> Result<BTreeMap<Pid, App>, StoreError> {
    let tables = &snapshot.tables;
    let (mut apps, mut unreadable) = (BTreeMap::new(), BTreeSet::new());
    scan_table(snapshot, findings, Check::Meta, META, |findings, chunk| {
        findings.report.add_checked(Check::Meta, chunk.len());
        for (name, value) in chunk {
            match decode_app(name, value, snapshot.settings.partitions) {
                Some((pid, Some(app))) => drop(apps.insert(pid, app)),
                Some((pid, None)) => drop(unreadable.insert(pid)),
                None if name[..] == *UNFINISHED => {
                    if unfinished::decode(value).is_err() {
                        findings.add(Problem::UnfinishedUnreadable, || at(META, name));
                    }
                }
                None => {
                    if let Some(problem) = entry_problem(name, value) {
                        findings.repair_by_delete(problem, tables, META, name);
                    }
                }
            }
        }
        Ok(())
    })?;
    scan_table(snapshot, findings, Check::Meta, OFFSETS, |findings, chunk| {
        findings.report.add_checked(Check::Meta, chunk.len());
        for (key, value) in chunk {
            let position = key::decode_position(key, value);
            if position.is_none_or(|position| position.next_offset < 0 || position.partition < 0) {
                // Without it the partition is read from its beginning; known events are redeliveries.
                findings.repair_by_delete(Problem::PositionUnreadable, tables, OFFSETS, key);
            }
        }
        Ok(())
    })?;
    let with_rows = pids_of_rows(snapshot, findings)?;
    unreadable.extend(with_rows.iter().filter(|pid| !apps.contains_key(pid)));
    for pid in unreadable {
        let named = || snapshot.app_name(pid);
        match derive_app(snapshot, pid, findings)? {
            Some(app) => {
                apps.insert(pid, app);
                findings.repair(Problem::AppUnreadable, named, put_app(snapshot, pid, app));
            }
            None if with_rows.contains(&pid) => findings.add(Problem::AppUnreadable, named),
            // The app is not in the settings and has no rows, so its record is not needed.
            None => findings.repair(Problem::AppUnreadable, named, |batch| {
                meta::delete_app(batch, tables, pid);
            }),
        }
    }
    for (pid, app) in &mut apps {
        check_oldest(snapshot, *pid, app, findings)?;
    }
    check_consumed_until(snapshot, findings)?;
    findings.write_fixes(tables)?;
    Ok(apps)
}

/// Decodes an app's record, which is `None` if it is damaged. Returns `None` for another entry of `meta`.
fn decode_app(name: &[u8], value: &[u8], partitions: u16) -> Option<(Pid, Option<App>)> {
    let pid = key::decode_pid(name.strip_prefix(APP)?)?;
    Some((pid, App::decode(value).filter(|app| app.is_possible(partitions, now()))))
}

/// The problem of an entry of `meta` that is repaired by deleting the entry.
fn entry_problem(name: &[u8], value: &[u8]) -> Option<Problem> {
    if name.starts_with(APP) {
        // The pid is invalid.
        return Some(Problem::AppUnreadable);
    }
    if let Some(pid) = name.strip_prefix(EXPIRING) {
        // The expiry floor of earlier settings is deleted too.
        return floor::decode(pid, value, now()).is_err().then_some(Problem::AppUnreadable);
    }
    // Without the fingerprint, a recreated topic is not detected until the next commit.
    let is_fingerprint =
        [KNOWN_RECORDS, LAST_RECORDS].iter().any(|prefix| name.starts_with(prefix));
    let is_damaged = is_fingerprint && key::decode_fingerprint(value).is_none();
    is_damaged.then_some(Problem::PositionUnreadable)
}

/// Checks that no counted rows exist before the retention cutoff of an app. If some do, the cutoff is moved back to the
/// first of them.
fn check_oldest(
    snapshot: &Snapshot<'_>,
    pid: Pid,
    app: &mut App,
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    let tables = &snapshot.tables;
    let counted = meta::counted_before(tables, pid, app, snapshot.settings.partitions);
    let counted = findings.unless_damaged(tables, counted)?.unwrap_or_default();
    let Some(oldest) = counted.iter().filter_map(hourly_counts::start).min() else {
        return Ok(());
    };
    let mut have_rows = false;
    for cell in &counted {
        have_rows |= has_rows(snapshot, cell, oldest, findings)?;
    }
    // Without rows, the counts are wrong and not the cutoff.
    if have_rows {
        app.oldest = oldest;
        let fix = put_app(snapshot, pid, *app);
        findings.repair(Problem::AppAhead, || snapshot.app_name(pid), fix);
    }
    Ok(())
}

fn check_consumed_until(
    snapshot: &Snapshot<'_>,
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    match meta::consumed_until(&snapshot.tables) {
        Err(StoreError::Corrupt { .. } | StoreError::AheadOfClock { .. }) => {
            let until = snapshot.expiry.until().get().unwrap_or_default();
            let named = || at(META, meta::CONSUMED_UNTIL);
            findings.repair(Problem::ConsumedUntilWrong, named, |batch| {
                meta::put_consumed_until(batch, &snapshot.tables, until);
            });
            Ok(())
        }
        known => findings.unless_damaged(&snapshot.tables, known).map(drop),
    }
}

/// Derives the low watermark: the hour of the newest row, but at most the time of the last write, as rows may be in the
/// future. A value that is too early only keeps state longer.
pub fn derive_consumed_until(
    snapshot: &Snapshot<'_>,
    findings: &mut Findings<'_>,
) -> Result<Option<EventTime>, StoreError> {
    let mut newest = EventTime::default();
    scan_table(snapshot, findings, Check::Meta, CELLS, |_, chunk| {
        for (key, value) in chunk {
            let has_rows = Cell::decode(value).is_some_and(|cell| cell.rows() > 0);
            let cell = CellKey::try_from(&**key).ok().filter(|_| has_rows);
            newest = newest.max(cell.as_ref().and_then(hourly_counts::start).unwrap_or_default());
        }
        Ok(())
    })?;
    let regions = regions::load(&snapshot.tables).unwrap_or_default();
    let written = regions.iter().map(|region| region.writes.as_of()).max().unwrap_or_default();
    let is_known = written > EventTime::default();
    let until = newest.min(now()).min(if is_known { written } else { newest });
    Ok(Some(until).filter(|until| *until > EventTime::default()))
}

/// The apps that have rows, by one seek per app and partition.
fn pids_of_rows(
    snapshot: &Snapshot<'_>,
    findings: &mut Findings<'_>,
) -> Result<BTreeSet<Pid>, StoreError> {
    let (tables, mut pids) = (&snapshot.tables, BTreeSet::new());
    let mut rows = tables.db.raw_iterator_cf(&tables.events());
    rows.seek_to_first();
    while let Some(key) = rows.key() {
        let Some(key) = RowKey::decode(key) else {
            rows.next();
            continue;
        };
        pids.insert(key.pid);
        let (partition, pid) = match key.pid.0.checked_add(1) {
            Some(pid) => (key.partition, Pid(pid)),
            None if key.partition == u16::MAX => break,
            None => (key.partition + 1, Pid(0)),
        };
        rows.seek(key::row_from(partition, pid, EventTime::default()));
    }
    findings.unless_damaged(tables, rows.status().map_err(StoreError::from))?;
    Ok(pids)
}

/// Derives the record of an app: its fanout from the partitions of its rows, its retention cutoff from the oldest
/// hourly count.
fn derive_app(
    snapshot: &Snapshot<'_>,
    pid: Pid,
    findings: &mut Findings<'_>,
) -> Result<Option<App>, StoreError> {
    let (tables, partitions) = (&snapshot.tables, snapshot.settings.partitions);
    let has_rows = |partition: &u16| {
        let mut rows = tables.db.raw_iterator_cf(&tables.events());
        rows.seek(key::row_from(*partition, pid, EventTime::default()));
        let key = rows.key().and_then(RowKey::decode);
        key.is_some_and(|key| (key.partition, key.pid) == (*partition, pid))
    };
    let found: BTreeSet<u16> = (0..partitions).filter(has_rows).collect();
    let mut oldest: Option<EventTime> = None;
    scan_table(snapshot, findings, Check::Meta, CELLS, |_, chunk| {
        let cells = chunk.iter().filter_map(|(key, _)| CellKey::try_from(&**key).ok());
        for cell in cells.filter(|cell| hourly_counts::pid(cell) == pid) {
            oldest = oldest.into_iter().chain(hourly_counts::start(&cell)).min();
        }
        Ok(())
    })?;
    let by_key = snapshot.policy.app(pid).map(|app| key::partition(&app.key, partitions));
    let bases: Vec<u16> = by_key.into_iter().chain(found.iter().copied()).collect();
    for bits in 0..=record::fanout_bits_limit(partitions) {
        for base in &bases {
            let possible: BTreeSet<u16> = key::fanout_partitions(*base, bits, partitions).collect();
            if found.is_subset(&possible) {
                let mut app = App::new(*base);
                app.set_fanout_bits(bits);
                app.set_oldest(oldest.unwrap_or_default());
                app.reached = app.reached.max(now());
                return Ok(Some(app));
            }
        }
    }
    Ok(None)
}

fn put_app(snapshot: &Snapshot<'_>, pid: Pid, app: App) -> impl FnOnce(&mut WriteBatch) {
    move |batch| meta::put_app(batch, &snapshot.tables, pid, &app)
}
