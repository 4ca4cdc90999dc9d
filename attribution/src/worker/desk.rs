//! What one batch has loaded and decided so far, over the ledger.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::compose;
use crate::event::EventTime;
use crate::ledger::{DecisionWrite, FactKey, Home, IndexEntry, Ledger, Position, Present, Scan};
use crate::policy::{AppPolicy, Policy};
use crate::row::Row;

/// Entries that one look into the index brings at first: most keys have fewer.
pub const PAGE: usize = 16;
/// Entries that a further look brings.
pub const NEXT_PAGE: usize = 256;

pub struct Desk<'a, L> {
    ledger: &'a mut L,
    pub policy: &'a Policy,
    /// Activations and effects as decided in this batch, or as loaded.
    homes: HashMap<FactKey, Option<Home>, FixedState>,
    decided: HashMap<FactKey, Decided, FixedState>,
}

/// A new row and the one that it replaces.
struct Decided {
    row: Row,
    replaced: Option<Present>,
}

impl<'a, L: Ledger> Desk<'a, L> {
    pub fn new(ledger: &'a mut L, policy: &'a Policy) -> Self {
        Self { ledger, policy, homes: HashMap::default(), decided: HashMap::default() }
    }

    /// Forgets all that was loaded and decided, not what was recorded.
    pub fn clear(&mut self) {
        self.homes.clear();
        self.decided.clear();
    }

    pub fn app(&self, key: &FactKey) -> Option<&'a AppPolicy> {
        self.policy.app(key.pid)
    }

    pub fn ledger(&mut self) -> &mut L {
        self.ledger
    }

    /// Puts a home that is known without loading.
    pub fn put(&mut self, key: FactKey, home: Home) {
        self.homes.insert(key, Some(home));
    }

    /// Makes the homes of all keys available to [`Desk::home`].
    pub fn load(&mut self, keys: impl IntoIterator<Item = FactKey>) -> Result<(), L::Error> {
        let mut missing: Vec<FactKey> =
            keys.into_iter().filter(|key| !self.homes.contains_key(key)).collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return Ok(());
        }
        let homes = self.ledger.homes(&missing)?;
        self.homes.extend(missing.into_iter().zip(homes));
        Ok(())
    }

    /// A loaded home.
    pub fn home(&self, key: &FactKey) -> Option<&Home> {
        self.homes.get(key)?.as_ref()
    }

    /// The home that an index entry leads to, unless the entry is stale.
    pub fn at(&self, entry: &IndexEntry) -> Option<&Home> {
        self.home(&entry.fact).filter(|home| home.time() == entry.time)
    }

    /// All entries of all scans.
    pub fn scan_all(&mut self, scans: &[Scan]) -> Result<Vec<IndexEntry>, L::Error> {
        let mut found = Vec::new();
        let mut pages = self.ledger.scan(scans)?;
        let mut open = unread(scans, &pages);
        while !open.is_empty() {
            found.extend(pages.into_iter().flatten());
            pages = self.ledger.scan(&open)?;
            open = unread(&open, &pages);
        }
        found.extend(pages.into_iter().flatten());
        Ok(found)
    }

    /// Takes a decision: the home already carries it, the row does not have its revision yet.
    /// Says whether it differs from the present one.
    pub fn decide(&mut self, key: FactKey, mut home: Home, mut row: Row) -> bool {
        let before = home.present().copied();
        let digest = match &home {
            Home::Activation(activation) => {
                let original = activation.decision.as_ref().map(|decision| &decision.original);
                compose::digest(&(&row, original))
            }
            _ => compose::digest(&row),
        };
        let is_new = before.is_none_or(|present| present.digest != digest);
        if is_new {
            row.revision = before.map_or(0, |present| present.revision).saturating_add(1);
            let present = Present {
                revision: row.revision,
                event_time: row.event_time,
                spreadid: row.spreadid,
                status: row.status,
                digest,
            };
            match &mut home {
                Home::Activation(activation) => activation.present = Some(present),
                Home::Effect(effect) => effect.present = Some(present),
                Home::Touch(_) => {}
            }
            self.decided.insert(key, Decided { row, replaced: before });
        }
        self.homes.insert(key, Some(home));
        is_new
    }

    pub fn take_decisions(&mut self) -> Vec<DecisionWrite> {
        let decided = std::mem::take(&mut self.decided);
        let mut writes: Vec<_> = decided
            .into_iter()
            .filter_map(|(key, Decided { row, replaced })| {
                let home = self.homes.remove(&key)??;
                Some(DecisionWrite { key, home, row, replaced })
            })
            .collect();
        writes.sort_unstable_by_key(|write| write.key);
        writes
    }

    pub fn commit(
        &mut self,
        decisions: Vec<DecisionWrite>,
        positions: &[Position],
    ) -> Result<Vec<FactKey>, L::Error> {
        self.ledger.commit(decisions, positions)
    }
}

/// The next pages of the scans whose page was full.
fn unread(scans: &[Scan], pages: &[Vec<IndexEntry>]) -> Vec<Scan> {
    scans
        .iter()
        .zip(pages)
        .filter(|(scan, page)| page.len() >= scan.limit)
        .map(|(scan, page)| Scan { after: page.last().copied(), limit: NEXT_PAGE, ..*scan })
        .collect()
}

/// The scan of one key between two times, both inclusive.
pub fn scan(
    fact: &FactKey,
    family: crate::event::Family,
    key: crate::matching::MatchKey,
    (oldest, newest): (EventTime, EventTime),
) -> Scan {
    Scan { family, key, pid: fact.pid, oldest, newest, after: None, limit: PAGE }
}
