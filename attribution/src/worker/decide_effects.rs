//! Decides effects: finds the activation that an effect inherits from, and its credit.

use super::BatchContext;
use super::batch_context::{NEXT_PAGE, scan};
use crate::facts::device_ids::DeviceIds;
use crate::facts::event::{Effect, EventTime, Family};
use crate::facts::keys::FactKey;
use crate::facts::match_keys;
use crate::ledger::Facts;
use crate::ledger::index::{IndexEntry, Scan};
use crate::ledger::record::FactRecord;
use crate::rules::{build_row, inherit};

/// Effects that are decided together, and the pages of activations that are read for all of them: most effects need
/// no more, and longer histories are read one by one to save memory.
pub const BATCH_SIZE: usize = 512;
const BATCH_PAGES: usize = 2;

/// An effect that is being decided.
struct PendingDecision {
    key: FactKey,
    ids: DeviceIds,
    /// Open searches for activations of the device.
    scans: Vec<Scan>,
    found: Vec<IndexEntry>,
}

impl<L: Facts> BatchContext<'_, L> {
    pub fn decide_effects(&mut self, keys: Vec<FactKey>) -> Result<(), L::Error> {
        for keys in keys.chunks(BATCH_SIZE) {
            self.load(keys.iter().copied())?;
            let mut open: Vec<PendingDecision> =
                keys.iter().filter_map(|key| self.pending_effect(*key)).collect();
            let mut settled = Vec::with_capacity(open.len());
            for _ in 0..BATCH_PAGES {
                self.read_activations(&mut open)?;
                let (done, remaining): (Vec<_>, Vec<_>) =
                    open.into_iter().partition(|pending| self.is_effect_settled(pending));
                settled.extend(done);
                open = remaining;
            }
            self.settle_effects(settled)?;
            for pending in open {
                let mut pending = [pending];
                while !self.is_effect_settled(&pending[0]) {
                    self.read_activations(&mut pending)?;
                }
                self.settle_effects(pending.into())?;
            }
        }
        Ok(())
    }

    fn settle_effects(&mut self, pending_decisions: Vec<PendingDecision>) -> Result<(), L::Error> {
        let originals: Vec<_> =
            pending_decisions.iter().filter_map(|pending| self.original(pending)).collect();
        self.load(originals)?;
        pending_decisions.into_iter().for_each(|pending| self.settle_effect(pending));
        Ok(())
    }

    fn pending_effect(&self, key: FactKey) -> Option<PendingDecision> {
        let (effect, app) = (self.effect(&key)?, self.app(&key)?);
        let ids = DeviceIds::new(&effect.ids);
        let times = inherit::activation_times(app, effect);
        let scans = ids
            .iter()
            .map(|id| scan(key.pid, Family::Activation, match_keys::by_id(id), times))
            .collect();
        Some(PendingDecision { key, ids, scans, found: Vec::new() })
    }

    fn effect(&self, key: &FactKey) -> Option<&Effect> {
        match self.record(key)? {
            FactRecord::Effect(record) => Some(&record.fact),
            _ => None,
        }
    }

    /// Reads the next page of every open search.
    fn read_activations(
        &mut self,
        pending_decisions: &mut [PendingDecision],
    ) -> Result<(), L::Error> {
        let scans: Vec<Scan> =
            pending_decisions.iter().flat_map(|pending| pending.scans.iter().copied()).collect();
        let mut pages = self.ledger().scan(&scans)?.into_iter();
        let mut facts = Vec::new();
        for pending in pending_decisions {
            pending.scans = std::mem::take(&mut pending.scans)
                .into_iter()
                .filter_map(|scan| {
                    let page = pages.next()?;
                    facts.extend(page.iter().map(|entry| entry.fact));
                    let is_full = page.len() >= scan.limit;
                    let after = page.last().copied();
                    pending.found.extend(page);
                    is_full.then_some(Scan { after, limit: NEXT_PAGE, ..scan })
                })
                .collect();
        }
        self.load(facts)
    }

    /// Checks that no unread activation can be the one that the effect inherits from.
    fn is_effect_settled(&self, pending: &PendingDecision) -> bool {
        let unread: Option<EventTime> =
            pending.scans.iter().filter_map(|scan| scan.after.map(|entry| entry.time)).max();
        let Some(unread) = unread else { return true };
        self.attributing_activation(pending).is_some_and(|(activation, _)| activation.time > unread)
    }

    fn attributing_activation(
        &self,
        pending: &PendingDecision,
    ) -> Option<(&crate::facts::event::Activation, &crate::rules::winner::Decision)> {
        let (effect, app) = (self.effect(&pending.key)?, self.app(&pending.key)?);
        let found = pending.found.iter().filter_map(|entry| match self.at(entry)? {
            FactRecord::Activation(record) => Some(&**record),
            _ => None,
        });
        inherit::attribution_at(app, effect, &pending.ids, found)
    }

    /// Returns the key of the install whose credit the effect may carry instead.
    fn original(&self, pending: &PendingDecision) -> Option<FactKey> {
        let (_, decision) = self.attributing_activation(pending)?;
        let id = inherit::original(self.app(&pending.key)?, decision)?;
        Some(match_keys::fact_key(Family::Activation, pending.key.pid, id))
    }

    fn settle_effect(&mut self, pending: PendingDecision) {
        let (Some(app), Some(effect)) = (self.app(&pending.key), self.effect(&pending.key)) else {
            return;
        };
        let original = self.original(&pending).and_then(|key| self.record(&key));
        let original = match original {
            Some(FactRecord::Activation(record)) => record.decision.as_ref(),
            _ => None,
        };
        let inheritance = inherit::inherit(app, self.attributing_activation(&pending), original);
        let row = build_row::effect_row(effect, inheritance);
        self.decide_effect(pending.key, row);
    }
}
