//! Checks that each decision equals the recomputed one, and that each event has the row of its decision.

use std::collections::{BTreeMap, BTreeSet};

use attribution::facts::event::{Family, Pid};
use attribution::facts::keys::FactKey;
use attribution::facts::{device_ids, match_keys};
use attribution::ledger::Unfinished;
use attribution::ledger::record::{CurrentRow, FactRecord};
use attribution::worker::{Recomputed, recompute};

use super::event::{Event, IntactRow, is_consistent};
use super::expected::{Expected, add_differing_row, repair_decisions};
use super::fact_tables::FactTable;
use super::findings::Findings;
use super::report::{Check, Problem, Report};
use super::snapshot::Snapshot;
use super::stored_row::{self, digest, is_encoding_of};
use super::table_scan::{Entry, Found, look_up, scan_table};
use crate::StoreError;
use crate::apps::record::App;
use crate::embedded::open::column_families::EVENTS;
use crate::embedded::tables::Tables;
use crate::embedded::write::unfinished;
use crate::layout::codec;
use crate::layout::codec::row::RowView;
use crate::layout::key::{self, FactTableKey, KEY_BYTES, Key, RowKey};
use crate::layout::row_meta::row_meta;

/// Events whose decisions are recomputed together.
const EVENTS_PER_BATCH: usize = 512;

#[derive(Default)]
struct Reported {
    /// Events whose intact rows differ from recomputed decisions. Such a row may be found before its event is checked.
    events: BTreeSet<FactKey>,
    /// Keys of wrong rows.
    rows: BTreeSet<Key>,
}

/// Returns the keys of the wrong rows that were reported with their events.
pub fn check_events(
    snapshot: &Snapshot<'_>,
    findings: &mut Findings<'_>,
) -> Result<BTreeSet<Key>, StoreError> {
    let mut reported = Reported::default();
    for family in [Family::Activation, Family::Effect] {
        let table = Tables::name_of(family);
        scan_table(snapshot, findings, Check::Decisions, table, |findings, chunk| {
            chunk.chunks(EVENTS_PER_BATCH).try_for_each(|part| {
                let events = read_events(snapshot, family, part, &mut findings.report);
                check_batch(snapshot, events, &mut reported, findings)
            })
        })?;
    }
    Ok(reported.rows)
}

/// The readable events of a part of a table. Unreadable ones are reported by the check of facts.
fn read_events(
    snapshot: &Snapshot<'_>,
    family: Family,
    part: &[Entry],
    report: &mut Report,
) -> Vec<Event> {
    let partitions = snapshot.settings.partitions;
    let mut events = Vec::new();
    for (key, value) in part {
        let Some(FactTableKey::FactRecord { pid, .. }) = key::decode_fact(key) else { continue };
        let Ok(record) = codec::fact_record::decode(family, pid, value) else { continue };
        let fact = match_keys::fact_key(record.id_space(), pid, record.id());
        if key::record(&fact)[..] != **key {
            continue;
        }
        let new_app = || {
            let app = snapshot.policy.app(pid)?;
            Some(App::new(key::partition(&app.key, partitions)))
        };
        match snapshot.app(pid).or_else(new_app) {
            Some(app) => events.push(Event::new(fact, record, app, partitions)),
            None => report.unchecked += 1,
        }
    }
    events
}

fn check_batch(
    snapshot: &Snapshot<'_>,
    mut events: Vec<Event>,
    reported: &mut Reported,
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    recompute_open(snapshot, &mut events, findings)?;
    let keys = events.iter().filter_map(|event| event.row).map(|row| row.encode());
    let rows = look_up(snapshot, EVENTS, keys, findings)?;
    let mut wrong: Vec<FactKey> = Vec::new();
    for event in events {
        let row = event.row.and_then(|row| rows.get(&row.encode()));
        if check_event(snapshot, &event, row, reported, findings)? {
            wrong.push(event.fact);
        }
    }
    repair_decisions(snapshot, &wrong, &mut reported.events, findings)
}

/// Recomputes the decisions that are not final.
fn recompute_open(
    snapshot: &Snapshot<'_>,
    events: &mut [Event],
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    let is_open = |event: &Event| {
        let pid = event.fact.pid;
        snapshot.policy.app(pid).is_some()
            && event.record.time() >= snapshot.expiry.changeable_from(pid)
            && !snapshot.expiry.has_expired(pid, &event.record)
    };
    let Unfinished { events: left, searches } =
        findings.unless_damaged(&snapshot.tables, snapshot.unfinished())?.unwrap_or_default();
    // While activations are left, any event of their app may depend on one of them.
    let left: BTreeSet<Pid> = left.into_iter().map(|event| event.pid).collect();
    let is_left = |event: &Event| {
        left.contains(&event.fact.pid) || unfinished::finds(&searches, &event.fact, &event.record)
    };
    findings.report.add_checked(Check::Decisions, events.len());
    let mut open = Vec::new();
    for event in events.iter_mut() {
        let is_undecided = event.record.current_row().is_none();
        let is_final = !is_open(event);
        event.is_unfinished = is_left(event) && (is_undecided || !is_final);
        match (event.is_unfinished, is_final) {
            (true, _) => findings.report.unfinished_effects += 1,
            (false, true) => findings.report.final_decisions += 1,
            (false, false) => open.push(event.fact),
        }
    }
    let mut recomputed = recompute_all(snapshot, &open, findings)?;
    for event in events {
        event.recomputed = recomputed.remove(&event.fact);
    }
    Ok(())
}

/// Recomputes decisions. If that fails because of damage, each is recomputed by itself, and those that fail are left
/// out.
fn recompute_all(
    snapshot: &Snapshot<'_>,
    keys: &[FactKey],
    findings: &mut Findings<'_>,
) -> Result<BTreeMap<FactKey, Recomputed>, StoreError> {
    let by_key = |recomputed: Recomputed| (recomputed.write.key, recomputed);
    if let Ok(decided) = recompute(&mut snapshot.facts(), snapshot.policy, keys) {
        return Ok(decided.into_iter().map(by_key).collect());
    }
    let mut all = BTreeMap::new();
    for key in keys {
        match recompute(&mut snapshot.facts(), snapshot.policy, &[*key]) {
            Ok(decided) => all.extend(decided.into_iter().map(by_key)),
            Err(failure) => {
                findings.report.unchecked += 1;
                if let StoreError::Engine(failure) = failure {
                    findings.note_failure(&snapshot.tables, failure)?;
                }
            }
        }
    }
    Ok(all)
}

/// Checks an event and its row. Returns true if its decision must be recomputed and written.
fn check_event(
    snapshot: &Snapshot<'_>,
    event: &Event,
    found: Option<&Found>,
    reported: &mut Reported,
    findings: &mut Findings<'_>,
) -> Result<bool, StoreError> {
    if event.is_unfinished && event.record.current_row().is_none() {
        return Ok(false);
    }
    let intact_row = IntactRow::of(event, found);
    let decision = decision_problem(snapshot, event, intact_row.as_ref(), &mut findings.report);
    let row = row_problem(snapshot, event, found, decision, &mut findings.report);
    if decision.is_none() && row.is_none() {
        return Ok(false);
    }
    let keeps_row = intact_row.is_some() && event.has_row_change();
    let keeps_decision = match decision {
        Some(Problem::FactAltered) => true,
        Some(Problem::DecisionDiffers) => {
            is_fact_lost(snapshot, event, findings)?;
            true
        }
        Some(Problem::DecisionLost) => is_fact_lost(snapshot, event, findings)?,
        _ => false,
    };
    let is_repair = findings.fixes.is_some();
    let is_reported = is_repair && keeps_row && !reported.events.insert(event.fact);
    if is_reported && row.is_none() && decision == Some(Problem::DecisionDiffers) {
        return Ok(false);
    }
    let must_recompute =
        event.recomputed.is_some() && decision.is_some() && !keeps_decision && !keeps_row;
    let is_intact = keeps_decision && row.is_none();
    let expected =
        if must_recompute || is_intact { None } else { Expected::of(snapshot, event, found) };
    let is_repaired = is_repair && (must_recompute || expected.is_some());
    let named = snapshot.fact_name(&event.fact, &event.record);
    let problems = decision.map(|problem| (problem, is_repaired && !keeps_decision));
    for (problem, is_repaired) in problems.into_iter().chain(row.map(|of| (of, is_repaired))) {
        findings.report.add(problem, is_repaired, || named.clone());
    }
    if keeps_row && !is_reported && decision == Some(Problem::DecisionAltered) {
        add_differing_row(snapshot, || named, &mut findings.report);
    }
    reported.rows.extend(event.row.filter(|_| row.is_some()).map(|row| row.encode()));
    if let (Some(batch), Some(expected)) = (&mut findings.fixes, expected) {
        expected.put(snapshot, batch);
    }
    Ok(must_recompute)
}

fn decision_problem(
    snapshot: &Snapshot<'_>,
    event: &Event,
    intact_row: Option<&IntactRow>,
    report: &mut Report,
) -> Option<Problem> {
    let Some(current_row) = event.record.current_row() else { return Some(Problem::Undecided) };
    if intact_row.is_some_and(|row| !row.is_of(&event.record)) {
        return Some(Problem::FactAltered);
    }
    if event.row.is_none() || !is_consistent(&event.record, current_row) {
        return Some(Problem::DecisionAltered);
    }
    event.recomputed.as_ref().filter(|recomputed| recomputed.has_changed())?;
    if snapshot.options.have_settings_changed {
        report.differing += 1;
        return None;
    }
    Some(match (event.has_row_change(), intact_row) {
        (false, _) => Problem::DecisionAltered,
        (true, Some(_)) => Problem::DecisionDiffers,
        (true, None) => Problem::DecisionLost,
    })
}

fn row_problem(
    snapshot: &Snapshot<'_>,
    event: &Event,
    found: Option<&Found>,
    decision: Option<Problem>,
    report: &mut Report,
) -> Option<Problem> {
    let (key, current_row) = (event.row?, event.record.current_row()?);
    if key.event_time < event.app.oldest {
        return None;
    }
    let value = match found {
        // The row had expired before retention became longer.
        None if key.event_time < snapshot.expiry.floor(key.pid).rows => return None,
        None => return Some(Problem::RowMissing),
        Some(Found::Unreadable) => {
            report.unchecked += 1;
            return None;
        }
        Some(Found::Value(value)) => value,
    };
    let Ok(view) = RowView::decode(value) else { return Some(Problem::RowUnreadable) };
    let is_altered = matches!(decision, Some(Problem::DecisionAltered | Problem::FactAltered));
    let is_expected = is_altered || is_row_of(event, &key, &view, value, current_row);
    (!is_expected).then_some(Problem::RowDiffers)
}

/// True if a decision may differ because a fact is lost. The stored decision is then the better one.
fn is_fact_lost(
    snapshot: &Snapshot<'_>,
    event: &Event,
    findings: &mut Findings<'_>,
) -> Result<bool, StoreError> {
    let credited = match &event.record {
        FactRecord::Activation(record) => {
            record.decision.as_ref().and_then(|of| of.credit.touch.as_ref())
        }
        _ => None,
    };
    if let Some(touch) = credited.filter(|touch| !touch.click_id.is_empty()) {
        let id = device_ids::click_id(&touch.click_id).unwrap_or_default();
        let key = key::record(&match_keys::fact_key(touch.kind, event.fact.pid, id));
        let mut is_stored = false;
        for table in FactTable::of_family(snapshot, Family::Touch) {
            is_stored |= !table.records(snapshot, [key], findings)?.is_empty();
        }
        if !is_stored {
            findings.add(Problem::TouchMissing, || snapshot.fact_name(&event.fact, &event.record));
            return Ok(true);
        }
    }
    let losses = [Problem::FactUnreadable, Problem::FactMisplaced, Problem::EntryToNowhere];
    Ok(losses.iter().any(|loss| findings.report.found.contains_key(loss)))
}

/// True if the row is the one that was decided, byte for byte.
fn is_row_of(
    event: &Event,
    key: &RowKey,
    view: &RowView<'_>,
    value: &[u8],
    current_row: &CurrentRow,
) -> bool {
    let original = match &event.record {
        FactRecord::Activation(record) => {
            record.decision.as_ref().and_then(|of| of.original.as_deref())
        }
        _ => None,
    };
    let stored = &current_row.row_meta;
    stored_row::row(key, view).is_some_and(|row| {
        row.revision == current_row.revision
            && row.status == current_row.status
            && *stored == row_meta(&row, stored.fanout_bits, KEY_BYTES + value.len())
            && digest(&row, original) == current_row.digest
            && is_encoding_of(&row, value)
    })
}
