//! Makes the decisions on the effects of a batch: on its own, then page by page on the stored ones that it can change.
//!
//! A device can have any number of effects. So when the decisions on them have reached the limit of bytes, they are
//! committed, with everything that was recorded and decided before, but without the batch's progress. On a store that
//! is not shared, the searches that are left become durable in the same commit: the redelivery after a crash finds
//! known facts and decides nothing, so the next process finishes these searches first (`interrupted_batch`).
//!
//! The batch's own effects are decided before the first such commit: no search finds those whose activation is
//! unchanged.

use super::BatchReport;
use super::batch_state::{BatchState, EventIds};
use super::decide_effects::decide_next;
use super::decisions::Decisions;
use super::fact_cache::{FactCache, NEXT_PAGE, PAGE};
use crate::facts::keys::FactKey;
use crate::ledger::index::Scan;
use crate::ledger::{Ledger, Progress, Unfinished};
use crate::rules::policy::Policy;

/// Number of searches that are read together.
const SEARCHES_PER_READ: usize = 1_024;

struct EffectPages<'a, 'l, L> {
    facts: &'a mut FactCache<'l, L>,
    policy: &'a Policy,
    /// The ids of some effects.
    known_ids: &'a EventIds,
    decisions: &'a mut Decisions,
    report: &'a mut BatchReport,
    /// Size of the decisions from which on they are committed.
    bytes_max: usize,
}

/// Makes the decisions on the batch's own effects and on those that the searches find. The last ones are left to be
/// committed with the batch.
pub fn decide_affected_effects<L: Ledger>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    decisions: &mut Decisions,
    report: &mut BatchReport,
    state: &BatchState,
    searches: Vec<Scan>,
) -> Result<(), L::Error> {
    let mut own = state.effects.clone();
    own.sort_unstable();
    own.dedup();
    let (bytes, large_history) = (facts.limits.bytes, facts.limits.large_history);
    let bytes_max = if L::SHARED { bytes } else { usize::MAX };
    let known_ids = &state.event_ids;
    let mut pages = EffectPages { facts, policy, known_ids, decisions, report, bytes_max };
    pages.decide(&own, &[], &searches)?;
    pages.bytes_max = pages.decisions.bytes().saturating_add(bytes);
    let found = pages.decide_found(&own, searches)?;
    decisions.large_histories += u64::from(own.len() + found >= large_history);
    if !L::SHARED && !facts.ledger().unfinished().is_empty() {
        facts.ledger().set_unfinished(Unfinished::default());
    }
    Ok(())
}

impl<L: Ledger> EffectPages<'_, '_, L> {
    /// Reads the pages of all searches and decides the effects that are not the batch's own. Returns how many.
    fn decide_found(&mut self, own: &[FactKey], searches: Vec<Scan>) -> Result<usize, L::Error> {
        let (mut open, mut count) = (searches, 0);
        while !open.is_empty() {
            let later = open.split_off(open.len().min(SEARCHES_PER_READ));
            let pages = self.facts.ledger().scan(&open)?;
            // Effects with several ids of the device are found by several searches, mostly in the same page. One that
            // is to be written must not be decided again, because its record has the new decision already.
            let is_open =
                |key: &FactKey| own.binary_search(key).is_err() && !self.decisions.has_row(key);
            let found = pages.iter().flatten().map(|entry| entry.fact);
            let mut found: Vec<FactKey> = found.filter(is_open).collect();
            found.sort_unstable();
            found.dedup();
            count += found.len();
            self.decide(&found, &open, &later)?;
            let mut pages = pages.into_iter();
            open.retain_mut(|search| {
                let page = pages.next().unwrap_or_default();
                let is_full = page.len() >= search.limit;
                (search.after, search.limit) = (page.last().copied().or(search.after), NEXT_PAGE);
                is_full
            });
            open.extend(later);
        }
        Ok(count)
    }

    /// Makes the decisions. Whenever they take too much memory, commits them; `open` and `later` then are the searches
    /// that find these effects and all further ones.
    fn decide(
        &mut self,
        effects: &[FactKey],
        open: &[Scan],
        later: &[Scan],
    ) -> Result<(), L::Error> {
        let mut rest = effects;
        while !rest.is_empty() {
            let (policy, ids) = (self.policy, self.known_ids);
            rest = decide_next(self.facts, policy, ids, self.decisions, rest, L::SHARED)?;
            if self.decisions.bytes() >= self.bytes_max && !self.decisions.is_empty() {
                self.commit(open.iter().chain(later).map(restarted).collect())?;
            }
        }
        Ok(())
    }

    fn commit(&mut self, searches: Vec<Scan>) -> Result<(), L::Error> {
        if !L::SHARED {
            self.facts.ledger().set_unfinished(Unfinished { events: Vec::new(), searches });
        }
        self.decisions.commit(self.facts, &Progress::default(), self.report)?;
        self.facts.clear();
        self.bytes_max = self.facts.limits.bytes;
        Ok(())
    }
}

/// Returns the search for the effects from the last one read on.
fn restarted(search: &Scan) -> Scan {
    let newest = search.after.map_or(search.newest, |last| last.time);
    Scan { newest, after: None, limit: PAGE, ..*search }
}
