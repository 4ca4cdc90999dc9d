//! Every decision is the one that a fresh look makes, and every event has its row.

use std::collections::BTreeMap;

use attribution::event::Family;
use attribution::expiry::changeable_from;
use attribution::ledger::{DecisionWrite, FactKey, Home, Present, RowPlace};
use attribution::row::{EventType, seq};
use attribution::worker::{Afresh, decide_afresh, decide_afresh_with_followers};
use attribution::{compose, matching};
use rocksdb::WriteBatch;

use super::present::Present as PresentFacts;
use super::row::{self, digest, digest_of, is_written_so};
use super::rows::row_key;
use super::walk::{Entry, Found};
use super::{Check, Checker, Problem};
use crate::StoreError;
use crate::app::App;
use crate::codec;
use crate::codec::row::RowView;
use crate::embedded::tables::Tables;
use crate::expiry::Expiry;
use crate::key::{self, FactPlace, KEY_BYTES, Key, RowKey};
use crate::scan::EVENTS;

/// Events that are decided on together.
const TOGETHER: usize = 512;

/// An activation or effect as it is kept.
struct Event {
    fact: FactKey,
    home: Home,
    app: App,
    /// Where its row is; none if it can not be anywhere.
    row: Option<RowKey>,
    /// What would be decided now, if that is not final.
    afresh: Option<Afresh>,
}

/// What is to stand of an event.
struct Right {
    fact: FactKey,
    home: Home,
    row: attribution::row::Row,
    replaced: Option<RowKey>,
    app: App,
}

impl Checker<'_> {
    pub fn check_events(&mut self) -> Result<(), StoreError> {
        for family in [Family::Activation, Family::Effect] {
            self.walk(Check::Decisions, Tables::name_of(family), |checker, chunk| {
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
            let decision = self.judge_decision(&event);
            let row = self.judge_row(&event, found, decision);
            if decision.is_none() && row.is_none() {
                continue;
            }
            let is_open = event.afresh.is_some() && decision.is_some();
            let right = if is_open { None } else { self.right(&event, found) };
            let right = right.as_ref().map(|right| self.written(right));
            let can_repair = is_open || right.is_some();
            let named = self.named(&event.fact, &event.home);
            for problem in decision.into_iter().chain(row) {
                match can_repair {
                    true => self.find_and(problem, || named.clone(), |_, _| ()),
                    false => self.find(problem, || named.clone()),
                }
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
            let Some(FactPlace::Home { pid }) = key::decode_fact(key) else { continue };
            let Ok(home) = codec::home::decode(family, pid, value) else { continue };
            let fact = matching::fact_key(family, pid, home.id());
            if key::home(&fact)[..] != **key {
                continue;
            }
            let base =
                || Some(key::partition(&self.policy.app(pid)?.key, self.settings.partitions));
            let Some(app) = self.app(pid).or_else(|| base().map(App::new)) else {
                self.report.unchecked += 1;
                continue;
            };
            let partitions = self.settings.partitions;
            let row = home
                .present()
                .and_then(|present| row_key(&app, (pid, seq_of(&home)), present, partitions));
            events.push(Event { fact, home, app, row, afresh: None });
        }
        events
    }

    /// Decides on those that are not final.
    fn decide(&mut self, events: &mut [Event]) -> Result<(), StoreError> {
        let until = self.expiry.until().get();
        let is_open = |event: &&Event| {
            let app = self.policy.app(event.fact.pid);
            app.is_some_and(|app| event.home.time() >= changeable_from(app, until))
                && !self.expiry.has_expired(event.fact.pid, &event.home)
        };
        let open: Vec<FactKey> = events.iter().filter(is_open).map(|event| event.fact).collect();
        self.report.looked(Check::Decisions, events.len());
        self.report.finals += (events.len() - open.len()) as u64;
        let mut afresh = self.afresh(&open)?;
        for event in events {
            event.afresh = afresh.remove(&event.fact);
        }
        Ok(())
    }

    /// Where one of them can not be decided on, the others are all the same.
    fn afresh(&mut self, keys: &[FactKey]) -> Result<BTreeMap<FactKey, Afresh>, StoreError> {
        let by_key = |one: Afresh| (one.write.key, one);
        if let Ok(decided) = decide_afresh(&mut self.facts(), self.policy, keys) {
            return Ok(decided.into_iter().map(by_key).collect());
        }
        let mut all = BTreeMap::new();
        for key in keys {
            match decide_afresh(&mut self.facts(), self.policy, &[*key]) {
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

    fn judge_decision(&mut self, event: &Event) -> Option<Problem> {
        let Some(present) = event.home.present() else { return Some(Problem::Undecided) };
        if event.row.is_none() || !is_of_itself(&event.home, present) {
            return Some(Problem::DecisionAltered);
        }
        let afresh = event.afresh.as_ref().filter(|afresh| afresh.is_other())?;
        if self.options.have_settings_changed {
            self.report.otherwise += 1;
            return None;
        }
        let is_other_row = afresh.is_other_row();
        Some(if is_other_row { Problem::DecisionDiffers } else { Problem::DecisionAltered })
    }

    fn judge_row(
        &mut self,
        event: &Event,
        found: &Found,
        decision: Option<Problem>,
    ) -> Option<Problem> {
        let (key, present) = (event.row?, event.home.present()?);
        if key.event_time < event.app.oldest {
            return None;
        }
        let value = match found {
            Found::Nothing => return Some(Problem::RowMissing),
            Found::Unreadable => {
                self.report.unchecked += 1;
                return None;
            }
            Found::Value(value) => value,
        };
        let Ok(view) = RowView::decode(value) else { return Some(Problem::RowUnreadable) };
        let is_altered = matches!(decision, Some(Problem::DecisionAltered));
        let is_its = is_altered || is_row_of(event, (&key, &view), value, present);
        (!is_its).then_some(Problem::RowDiffers)
    }

    /// What is to stand of an event whose decision is right or final; `None` if nothing tells.
    fn right(&self, event: &Event, found: &Found) -> Option<Right> {
        let present = event.home.present().copied()?;
        let of_row = || match (found, event.row) {
            (Found::Value(value), Some(key)) => row::row(&key, &RowView::decode(value).ok()?),
            _ => None,
        };
        let mut home = event.home.clone();
        let row = match &mut home {
            Home::Touch(_) => None,
            Home::Activation(kept) => {
                if !is_of_itself(&event.home, &present) {
                    let row = of_row()?;
                    let kept_original = kept.decision.as_ref().and_then(|d| d.original.clone());
                    let installs =
                        kept.walks.walks.iter().map(|walk| Some(walk.install.id.clone()));
                    let mut originals = [None, kept_original].into_iter().chain(installs);
                    let is_its =
                        |of: &Option<Box<str>>| digest(&row, of.as_deref()) == present.digest;
                    let original = originals.find(is_its)?;
                    kept.decision = row::decision(row, original);
                }
                let row = kept.decision.as_ref().map(|of| compose::activation_row(&kept.fact, of));
                row.filter(|_| is_of_itself(&home, &present))
            }
            Home::Effect(_) => self.effect_row(event, &present),
        };
        let mut row = row?;
        row.revision = present.revision;
        Some(Right { fact: event.fact, home, row, replaced: event.row, app: event.app })
    }

    /// The row of an effect whose activations are kept still, if it is the one that was decided.
    fn effect_row(&self, event: &Event, present: &Present) -> Option<attribution::row::Row> {
        let afresh = match event.afresh.clone() {
            Some(afresh) => Some(afresh),
            None => {
                // Also from what has expired and is still there; the digest tells whether it is all.
                let expiry = Expiry::default();
                let mut all = PresentFacts { tables: self.tables.clone(), expiry };
                decide_afresh(&mut all, self.policy, &[event.fact])
                    .ok()
                    .and_then(|mut all| all.pop())
            }
        };
        let row = afresh.map(|afresh| afresh.write.row);
        row.filter(|row| digest(row, None) == present.digest)
    }

    /// Decides on wrong ones again, with what follows from it, and writes that.
    fn decide_again(&mut self, wrong: &[FactKey]) -> Result<(), StoreError> {
        if self.fixes.is_none() || wrong.is_empty() {
            return Ok(());
        }
        self.write_fixes()?;
        let decided = decide_afresh_with_followers(&mut self.facts(), self.policy, wrong)?;
        for Afresh { write: DecisionWrite { key, home, row, replaced }, .. } in decided {
            let base = || key::partition("", self.settings.partitions);
            let app = self.app(key.pid).unwrap_or_else(|| App::new(base()));
            let replaced = replaced.and_then(|present| {
                row_key(&app, (key.pid, seq_of(&home)), &present, self.settings.partitions)
            });
            let written = self.written(&Right { fact: key, home, row, replaced, app });
            if let Some(batch) = &mut self.fixes {
                written.put(batch, &self.tables);
            }
        }
        self.write_fixes()
    }

    /// As bytes. A row that is the same again stays where it was.
    fn written(&self, right: &Right) -> Written {
        let Right { fact, home, row, replaced, app } = right;
        let is_same = replaced
            .is_some_and(|old| (old.event_time, old.spreadid) == (row.event_time, row.spreadid));
        let fan_bits = home.present().map_or(0, |present| present.place.fan_bits);
        let fan_bits =
            if is_same && fan_bits <= app.fan_bits_max { fan_bits } else { app.fan_bits };
        let new = RowKey {
            partition: key::row_partition(app.base, row.seq, fan_bits, self.settings.partitions),
            pid: row.pid,
            event_time: row.event_time,
            spreadid: row.spreadid,
            seq: row.seq,
        };
        let mut value = Vec::with_capacity(384);
        codec::row::encode(row, &mut value);
        let mut home = home.clone();
        if let Some(present) = home.present_mut() {
            present.place = RowPlace { fan_bits, bytes: (KEY_BYTES + value.len()) as u32 };
        }
        let mut home_value = Vec::with_capacity(512);
        codec::home::encode(&home, &mut home_value);
        let is_shown = row.event_time >= app.oldest;
        Written {
            family: fact.family,
            home: (key::home(fact), home_value),
            row: is_shown.then(|| (new.encode(), value)),
            gone: replaced.filter(|old| *old != new).map(|old| old.encode()),
        }
    }
}

/// A home and its row.
struct Written {
    family: Family,
    home: (Key, Vec<u8>),
    row: Option<(Key, Vec<u8>)>,
    gone: Option<Key>,
}

impl Written {
    fn put(&self, batch: &mut WriteBatch, tables: &Tables) {
        if let Some(gone) = &self.gone {
            batch.delete_cf(tables.events(), gone);
        }
        if let Some((key, value)) = &self.row {
            batch.put_cf(tables.events(), key, value);
        }
        batch.put_cf(tables.facts(self.family), self.home.0, &self.home.1);
    }
}

/// Whether what is kept of a decision agrees with itself.
fn is_of_itself(home: &Home, present: &Present) -> bool {
    if present.event_time != home.time() {
        return false;
    }
    let Home::Activation(home) = home else { return true };
    home.decision.as_ref().is_some_and(|decision| {
        (decision.credit.spreadid, decision.credit.status) == (present.spreadid, present.status)
            && digest_of(&home.fact, decision) == present.digest
    })
}

/// Whether the row is what was decided, byte for byte.
fn is_row_of(
    event: &Event,
    (key, view): (&RowKey, &RowView<'_>),
    value: &[u8],
    present: &Present,
) -> bool {
    let original = match &event.home {
        Home::Activation(home) => home.decision.as_ref().and_then(|of| of.original.as_deref()),
        _ => None,
    };
    let bytes = (KEY_BYTES + value.len()) as u32;
    let is_noted = present.place.bytes == 0 || present.place.bytes == bytes;
    row::row(key, view).is_some_and(|row| {
        row.revision == present.revision
            && row.status == present.status
            && is_noted
            && digest(&row, original) == present.digest
            && is_written_so(&row, value)
    })
}

fn seq_of(home: &Home) -> u64 {
    let event_type = match home {
        Home::Effect(_) => EventType::Effect,
        _ => EventType::Activation,
    };
    seq(event_type, home.id())
}
