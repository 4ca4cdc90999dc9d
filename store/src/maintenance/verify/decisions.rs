//! Every decision is the one that a fresh look makes, and every event has its row.

use std::collections::BTreeMap;

use attribution::facts::event::Family;
use attribution::facts::keys::FactKey;
use attribution::facts::{device_ids, match_keys};
use attribution::ledger::DecisionWrite;
use attribution::ledger::record::{CurrentRow, FactRecord, RowRef};
use attribution::rules::row::{EventType, Row, seq};
use attribution::worker::{Recomputed, recompute, recompute_with_followers};

use super::event::{Event, is_of_itself};
use super::expected::Expected;
use super::row_digest::RowDigest;
use super::rows::row_key;
use super::snapshot_facts::CurrentRow as PresentFacts;
use super::stored_row::{self, digest, is_written_so};
use super::table_scan::{Entry, Found};
use super::{Check, Checker, Problem};
use crate::StoreError;
use crate::apps::spread::App;
use crate::embedded::open::column_families::EVENTS;
use crate::embedded::tables::Tables;
use crate::layout::codec;
use crate::layout::codec::row::RowView;
use crate::layout::key::{self, FactPlace, KEY_BYTES, RowKey};
use crate::layout::row_ref::row_place;

/// Events that are decided on together.
const TOGETHER: usize = 512;

impl Checker<'_> {
    pub fn check_events(&mut self) -> Result<(), StoreError> {
        for family in [Family::Activation, Family::Effect] {
            self.scan_table(Check::Decisions, Tables::name_of(family), |checker, chunk| {
                chunk.chunks(TOGETHER).try_for_each(|part| checker.check_part(family, part))
            })?;
        }
        Ok(())
    }

    fn check_part(&mut self, family: Family, part: &[Entry]) -> Result<(), StoreError> {
        let mut events = self.events(family, part);
        self.decide(&mut events)?;
        let keys = events.iter().filter_map(|event| event.row).map(|row| row.encode()).collect();
        let rows = self.look_up(EVENTS, keys)?;
        let mut wrong: Vec<FactKey> = Vec::new();
        for event in events {
            let found = event.row.map_or(&Found::Nothing, |row| rows.of(&row.encode()));
            let witness = RowDigest::of(&event, found);
            let decision = self.judge_decision(&event, witness.as_ref());
            let row = self.judge_row(&event, found, decision);
            if decision.is_none() && row.is_none() {
                continue;
            }
            let is_kept = witness.is_some() && event.has_other_row();
            let is_held = match decision {
                Some(Problem::FactAltered) => true,
                Some(Problem::DecisionDiffers) => {
                    self.is_loss(&event)?;
                    true
                }
                Some(Problem::DecisionLost) => self.is_loss(&event)?,
                _ => false,
            };
            let is_told = self.fixes.is_some() && is_kept && !self.told_events.insert(event.fact);
            if is_told && row.is_none() && decision == Some(Problem::DecisionDiffers) {
                continue;
            }
            let is_open = event.recomputed.is_some() && decision.is_some() && !is_held && !is_kept;
            let is_good = is_held && row.is_none();
            let right = if is_open || is_good { None } else { self.right(&event, found) };
            let right = right.as_ref().map(|right| self.written(right));
            let can_repair = is_open || right.is_some();
            let named = self.named(&event.fact, &event.record);
            let problems = decision.map(|problem| (problem, can_repair && !is_held));
            for (problem, can_repair) in problems.into_iter().chain(row.map(|of| (of, can_repair)))
            {
                match can_repair {
                    true => self.find_and(problem, || named.clone(), |_, _| ()),
                    false => self.find(problem, || named.clone()),
                }
            }
            if is_kept && !is_told && decision == Some(Problem::DecisionAltered) {
                self.find_other(|| named);
            }
            if let (Some(row), Some(_)) = (event.row, row) {
                self.told_rows.insert(row.encode());
            }
            if let (Some(batch), Some(right)) = (&mut self.fixes, right) {
                right.put(batch, &self.tables);
            }
            wrong.extend(Some(event.fact).filter(|_| is_open));
        }
        self.decide_again(&wrong)
    }

    /// The events of a part of a table that can be read. Those that can not are told of as facts.
    fn events(&mut self, family: Family, part: &[Entry]) -> Vec<Event> {
        let mut events = Vec::new();
        for (key, value) in part {
            let Some(FactPlace::FactRecord { pid, .. }) = key::decode_fact(key) else { continue };
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

    /// Decides on those that are not final.
    fn decide(&mut self, events: &mut [Event]) -> Result<(), StoreError> {
        let is_open = |event: &&Event| {
            let pid = event.fact.pid;
            self.policy.app(pid).is_some()
                && event.record.time() >= self.expiry.changeable_from(pid)
                && !self.expiry.has_expired(pid, &event.record)
        };
        let open: Vec<FactKey> = events.iter().filter(is_open).map(|event| event.fact).collect();
        self.report.looked(Check::Decisions, events.len());
        self.report.finals += (events.len() - open.len()) as u64;
        let mut recomputed = self.recomputed(&open)?;
        for event in events {
            event.recomputed = recomputed.remove(&event.fact);
        }
        Ok(())
    }

    /// Where one of them can not be decided on, the others are all the same.
    fn recomputed(
        &mut self,
        keys: &[FactKey],
    ) -> Result<BTreeMap<FactKey, Recomputed>, StoreError> {
        let by_key = |one: Recomputed| (one.write.key, one);
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

    fn facts(&self) -> PresentFacts {
        PresentFacts { tables: self.tables.clone(), expiry: self.expiry.clone() }
    }

    fn judge_decision(&mut self, event: &Event, witness: Option<&RowDigest>) -> Option<Problem> {
        let Some(current_row) = event.record.current_row() else { return Some(Problem::Undecided) };
        if witness.is_some_and(|witness| !witness.is_of(&event.record)) {
            return Some(Problem::FactAltered);
        }
        let recomputed = event.recomputed.as_ref().filter(|recomputed| recomputed.is_other());
        if event.row.is_none() || !is_of_itself(&event.record, current_row) {
            return Some(Problem::DecisionAltered);
        }
        recomputed?;
        if self.options.have_settings_changed {
            self.report.otherwise += 1;
            return None;
        }
        Some(match (event.has_other_row(), witness) {
            (false, _) => Problem::DecisionAltered,
            (true, Some(_)) => Problem::DecisionDiffers,
            (true, None) => Problem::DecisionLost,
        })
    }

    /// A decision was altered, and its row, which is whole, is not what would be decided now.
    fn find_other(&mut self, named: impl FnOnce() -> String) {
        if self.options.have_settings_changed {
            self.report.otherwise += 1;
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
            // It had gone by its age before retention became longer.
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
        let is_its = is_altered || is_row_of(event, (&key, &view), value, current_row);
        (!is_its).then_some(Problem::RowDiffers)
    }

    /// Whether a decision may differ because a fact is lost: then the one that stands is the better.
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

    /// Decides on wrong ones again, with what follows from it, and writes that.
    fn decide_again(&mut self, wrong: &[FactKey]) -> Result<(), StoreError> {
        if self.fixes.is_none() || wrong.is_empty() {
            return Ok(());
        }
        self.write_fixes()?;
        let Ok(decided) = recompute_with_followers(&mut self.facts(), self.policy, wrong) else {
            // Something that they need is damaged itself.
            self.report.unchecked += wrong.len() as u64;
            return Ok(());
        };
        for recomputed in decided {
            if self.is_witnessed(&recomputed)? {
                continue;
            }
            let DecisionWrite { key, record, row, replaced } = recomputed.write;
            let base = || key::partition("", self.settings.partitions);
            let app = self.app(key.pid).unwrap_or_else(|| App::new(base()));
            let replaced = replaced.and_then(|current_row| {
                row_key(&app, (key.pid, seq_of(&record)), &current_row, self.settings.partitions)
            });
            let written = self.written(&Expected { fact: key, record, row, replaced, app });
            if let Some(batch) = &mut self.fixes {
                written.put(batch, &self.tables);
            }
        }
        self.write_fixes()
    }

    /// Whether a decision that follows from a wrong one would take the place of a row that is as
    /// it was decided. It is told of and left: that row says what was true.
    fn is_witnessed(&mut self, recomputed: &Recomputed) -> Result<bool, StoreError> {
        let Some(record) = recomputed.standing.clone().filter(|_| recomputed.has_other_row())
        else {
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
        if self.told_events.insert(fact) {
            let named = self.named(&fact, &event.record);
            self.find_other(|| named);
        }
        Ok(true)
    }
}

/// Whether the row is what was decided, byte for byte.
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
            && is_noted(&row, value, &current_row.place)
            && digest(&row, original) == current_row.digest
            && is_written_so(&row, value)
    })
}

/// Whether the home notes of the row what it is.
fn is_noted(row: &Row, value: &[u8], place: &RowRef) -> bool {
    *place == row_place(row, place.fanout_bits, KEY_BYTES + value.len())
}

fn seq_of(record: &FactRecord) -> u64 {
    let event_type = match record {
        FactRecord::Effect(_) => EventType::Effect,
        _ => EventType::Activation,
    };
    seq(event_type, record.id())
}
