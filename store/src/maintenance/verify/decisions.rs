//! Checks that each decision equals the recomputed one, and that each event has the row of its decision.

use std::collections::BTreeMap;

use attribution::facts::event::Family;
use attribution::facts::keys::FactKey;
use attribution::facts::{device_ids, match_keys};
use attribution::ledger::DecisionWrite;
use attribution::ledger::record::{CurrentRow, FactRecord, RowMeta};
use attribution::rules::row::{EventType, Row, seq};
use attribution::worker::{Recomputed, recompute, recompute_with_later_activations};

use super::event::{Event, is_consistent};
use super::expected::Expected;
use super::row_digest::RowDigest;
use super::rows::row_key;
use super::snapshot_facts::SnapshotFacts;
use super::stored_row::{self, digest, is_encoding_of};
use super::table_scan::{Entry, Found};
use super::{Check, Checker, Problem};
use crate::StoreError;
use crate::apps::record::App;
use crate::embedded::open::column_families::EVENTS;
use crate::embedded::tables::Tables;
use crate::layout::codec;
use crate::layout::codec::row::RowView;
use crate::layout::key::{self, FactTableKey, KEY_BYTES, RowKey};
use crate::layout::row_meta::row_meta;

/// Events whose decisions are recomputed together.
const EVENTS_PER_BATCH: usize = 512;

impl Checker<'_> {
    pub fn check_events(&mut self) -> Result<(), StoreError> {
        for family in [Family::Activation, Family::Effect] {
            self.scan_table(Check::Decisions, Tables::name_of(family), |checker, chunk| {
                chunk.chunks(EVENTS_PER_BATCH).try_for_each(|part| checker.check_part(family, part))
            })?;
        }
        Ok(())
    }

    fn check_part(&mut self, family: Family, part: &[Entry]) -> Result<(), StoreError> {
        let mut events = self.events(family, part);
        self.decide(&mut events)?;
        let keys = events.iter().filter_map(|event| event.row).map(|row| row.encode()).collect();
        let rows = self.look_up(EVENTS, keys)?;
        let mut to_recompute: Vec<FactKey> = Vec::new();
        for event in events {
            let found = event.row.map_or(&Found::Nothing, |row| rows.of(&row.encode()));
            let intact_row = RowDigest::of(&event, found);
            let decision = self.judge_decision(&event, intact_row.as_ref());
            let row = self.judge_row(&event, found, decision);
            if decision.is_none() && row.is_none() {
                continue;
            }
            let keeps_row = intact_row.is_some() && event.has_row_change();
            let keeps_decision = match decision {
                Some(Problem::FactAltered) => true,
                Some(Problem::DecisionDiffers) => {
                    self.is_loss(&event)?;
                    true
                }
                Some(Problem::DecisionLost) => self.is_loss(&event)?,
                _ => false,
            };
            let is_reported =
                self.fixes.is_some() && keeps_row && !self.reported_events.insert(event.fact);
            if is_reported && row.is_none() && decision == Some(Problem::DecisionDiffers) {
                continue;
            }
            let is_recomputed =
                event.recomputed.is_some() && decision.is_some() && !keeps_decision && !keeps_row;
            let is_intact = keeps_decision && row.is_none();
            let expected =
                if is_recomputed || is_intact { None } else { self.expected(&event, found) };
            let expected = expected.as_ref().map(|expected| self.encode_expected(expected));
            let can_repair = is_recomputed || expected.is_some();
            let named = self.named(&event.fact, &event.record);
            let problems = decision.map(|problem| (problem, can_repair && !keeps_decision));
            for (problem, can_repair) in problems.into_iter().chain(row.map(|of| (of, can_repair)))
            {
                match can_repair {
                    true => self.find_and(problem, || named.clone(), |_, _| ()),
                    false => self.find(problem, || named.clone()),
                }
            }
            if keeps_row && !is_reported && decision == Some(Problem::DecisionAltered) {
                self.find_differing_row(|| named);
            }
            if let (Some(row), Some(_)) = (event.row, row) {
                self.reported_rows.insert(row.encode());
            }
            if let (Some(batch), Some(expected)) = (&mut self.fixes, expected) {
                expected.put(batch, &self.tables);
            }
            to_recompute.extend(Some(event.fact).filter(|_| is_recomputed));
        }
        self.repair_decisions(&to_recompute)
    }

    /// The readable events of a part of a table. Unreadable ones are reported by the check of facts.
    fn events(&mut self, family: Family, part: &[Entry]) -> Vec<Event> {
        let mut events = Vec::new();
        for (key, value) in part {
            let Some(FactTableKey::FactRecord { pid, .. }) = key::decode_fact(key) else {
                continue;
            };
            let Ok(record) = codec::fact_record::decode(family, pid, value) else { continue };
            let fact = match_keys::fact_key(family, pid, record.id());
            if key::record(&fact)[..] != **key {
                continue;
            }
            let base =
                || Some(key::partition(&self.policy.app(pid)?.key, self.settings.partitions));
            let Some(app) = self.app(pid).or_else(|| base().map(App::new)) else {
                self.report.unchecked += 1;
                continue;
            };
            let partitions = self.settings.partitions;
            let row = record.current_row().and_then(|current_row| {
                row_key(&app, (pid, seq_of(&record)), current_row, partitions)
            });
            events.push(Event { fact, record, app, row, recomputed: None });
        }
        events
    }

    /// Recomputes the decisions that are not final.
    fn decide(&mut self, events: &mut [Event]) -> Result<(), StoreError> {
        let is_open = |event: &&Event| {
            let pid = event.fact.pid;
            self.policy.app(pid).is_some()
                && event.record.time() >= self.expiry.changeable_from(pid)
                && !self.expiry.has_expired(pid, &event.record)
        };
        let open: Vec<FactKey> = events.iter().filter(is_open).map(|event| event.fact).collect();
        self.report.add_checked(Check::Decisions, events.len());
        self.report.final_decisions += (events.len() - open.len()) as u64;
        let mut recomputed = self.recomputed(&open)?;
        for event in events {
            event.recomputed = recomputed.remove(&event.fact);
        }
        Ok(())
    }

    /// Recomputes decisions. If that fails because of damage, each is recomputed by itself, and those that fail are
    /// left out.
    fn recomputed(
        &mut self,
        keys: &[FactKey],
    ) -> Result<BTreeMap<FactKey, Recomputed>, StoreError> {
        let by_key = |recomputed: Recomputed| (recomputed.write.key, recomputed);
        if let Ok(decided) = recompute(&mut self.facts(), self.policy, keys) {
            return Ok(decided.into_iter().map(by_key).collect());
        }
        let mut all = BTreeMap::new();
        for key in keys {
            match recompute(&mut self.facts(), self.policy, &[*key]) {
                Ok(decided) => all.extend(decided.into_iter().map(by_key)),
                Err(failure) => {
                    self.report.unchecked += 1;
                    if let StoreError::Engine(failure) = failure {
                        self.note_failure(failure)?;
                    }
                }
            }
        }
        Ok(all)
    }

    fn facts(&self) -> SnapshotFacts {
        SnapshotFacts { tables: self.tables.clone(), expiry: self.expiry.clone() }
    }

    fn judge_decision(&mut self, event: &Event, intact_row: Option<&RowDigest>) -> Option<Problem> {
        let Some(current_row) = event.record.current_row() else { return Some(Problem::Undecided) };
        if intact_row.is_some_and(|row| !row.is_of(&event.record)) {
            return Some(Problem::FactAltered);
        }
        let recomputed = event.recomputed.as_ref().filter(|recomputed| recomputed.has_changed());
        if event.row.is_none() || !is_consistent(&event.record, current_row) {
            return Some(Problem::DecisionAltered);
        }
        recomputed?;
        if self.options.have_settings_changed {
            self.report.differing += 1;
            return None;
        }
        Some(match (event.has_row_change(), intact_row) {
            (false, _) => Problem::DecisionAltered,
            (true, Some(_)) => Problem::DecisionDiffers,
            (true, None) => Problem::DecisionLost,
        })
    }

    /// Reports an intact row that differs from the recomputed decision.
    fn find_differing_row(&mut self, named: impl FnOnce() -> String) {
        if self.options.have_settings_changed {
            self.report.differing += 1;
        } else {
            self.find(Problem::DecisionDiffers, named);
        }
    }

    fn judge_row(
        &mut self,
        event: &Event,
        found: &Found,
        decision: Option<Problem>,
    ) -> Option<Problem> {
        let (key, current_row) = (event.row?, event.record.current_row()?);
        if key.event_time < event.app.oldest {
            return None;
        }
        let value = match found {
            // The row had expired before retention became longer.
            Found::Nothing if key.event_time < self.expiry.floor(key.pid).rows => return None,
            Found::Nothing => return Some(Problem::RowMissing),
            Found::Unreadable => {
                self.report.unchecked += 1;
                return None;
            }
            Found::Value(value) => value,
        };
        let Ok(view) = RowView::decode(value) else { return Some(Problem::RowUnreadable) };
        let altered = [Some(Problem::DecisionAltered), Some(Problem::FactAltered)];
        let is_altered = altered.contains(&decision);
        let is_expected = is_altered || is_row_of(event, (&key, &view), value, current_row);
        (!is_expected).then_some(Problem::RowDiffers)
    }

    /// True if a decision may differ because a fact is lost. The stored decision is then the better one.
    fn is_loss(&mut self, event: &Event) -> Result<bool, StoreError> {
        let credited = match &event.record {
            FactRecord::Activation(record) => {
                record.decision.as_ref().and_then(|of| of.credit.touch.as_ref())
            }
            _ => None,
        };
        if let Some(touch) = credited.filter(|touch| !touch.click_id.is_empty()) {
            let pid = event.fact.pid;
            let id = device_ids::click_id(&touch.click_id).unwrap_or_default();
            let key = key::record(&match_keys::fact_key(Family::Touch, pid, id));
            let touches = self.look_up(Tables::name_of(Family::Touch), vec![key])?;
            if matches!(touches.of(&key), Found::Nothing) {
                let named = self.named(&event.fact, &event.record);
                self.find(Problem::TouchMissing, || named);
                return Ok(true);
            }
        }
        let losses = [Problem::FactUnreadable, Problem::FactMisplaced, Problem::EntryToNowhere];
        Ok(losses.iter().any(|loss| self.report.found.contains_key(loss)))
    }

    /// Recomputes and writes wrong decisions, and those that depend on them.
    fn repair_decisions(&mut self, wrong: &[FactKey]) -> Result<(), StoreError> {
        if self.fixes.is_none() || wrong.is_empty() {
            return Ok(());
        }
        self.write_fixes()?;
        let Ok(decided) = recompute_with_later_activations(&mut self.facts(), self.policy, wrong)
        else {
            // Facts that they need are damaged too.
            self.report.unchecked += wrong.len() as u64;
            return Ok(());
        };
        for recomputed in decided {
            if self.has_intact_row(&recomputed)? {
                continue;
            }
            let DecisionWrite { key, record, row, replaced } = recomputed.write;
            let base = || key::partition("", self.settings.partitions);
            let app = self.app(key.pid).unwrap_or_else(|| App::new(base()));
            let replaced = replaced.and_then(|current_row| {
                row_key(&app, (key.pid, seq_of(&record)), &current_row, self.settings.partitions)
            });
            let encoded = self.encode_expected(&Expected { fact: key, record, row, replaced, app });
            if let Some(batch) = &mut self.fixes {
                encoded.put(batch, &self.tables);
            }
        }
        self.write_fixes()
    }

    /// True if a decision that depends on a wrong one would replace an intact row. It is reported and not written,
    /// because the row shows the decision that was right.
    fn has_intact_row(&mut self, recomputed: &Recomputed) -> Result<bool, StoreError> {
        let Some(record) = recomputed.stored.clone().filter(|_| recomputed.has_row_change()) else {
            return Ok(false);
        };
        let fact = recomputed.write.key;
        let (Some(app), Some(current_row)) = (self.app(fact.pid), record.current_row()) else {
            return Ok(false);
        };
        let row = row_key(&app, (fact.pid, seq_of(&record)), current_row, self.settings.partitions);
        let Some(row) = row else { return Ok(false) };
        let rows = self.look_up(EVENTS, vec![row.encode()])?;
        let event = Event { fact, record, app, row: Some(row), recomputed: None };
        if RowDigest::of(&event, rows.of(&row.encode())).is_none() {
            return Ok(false);
        }
        if self.reported_events.insert(fact) {
            let named = self.named(&fact, &event.record);
            self.find_differing_row(|| named);
        }
        Ok(true)
    }
}

/// True if the row is the one that was decided, byte for byte.
fn is_row_of(
    event: &Event,
    (key, view): (&RowKey, &RowView<'_>),
    value: &[u8],
    current_row: &CurrentRow,
) -> bool {
    let original = match &event.record {
        FactRecord::Activation(record) => {
            record.decision.as_ref().and_then(|of| of.original.as_deref())
        }
        _ => None,
    };
    stored_row::row(key, view).is_some_and(|row| {
        row.revision == current_row.revision
            && row.status == current_row.status
            && has_row_meta(&row, value, &current_row.row_meta)
            && digest(&row, original) == current_row.digest
            && is_encoding_of(&row, value)
    })
}

/// True if the row reference of the record matches the row.
fn has_row_meta(row: &Row, value: &[u8], stored: &RowMeta) -> bool {
    *stored == row_meta(row, stored.fanout_bits, KEY_BYTES + value.len())
}

fn seq_of(record: &FactRecord) -> u64 {
    let event_type = match record {
        FactRecord::Effect(_) => EventType::Effect,
        _ => EventType::Activation,
    };
    seq(event_type, record.id())
}
