//! Turns a batch of facts into decisions, rows and positions.
//!
//! The facts of a batch are recorded first. Then the worker finds every event that they can change, makes the
//! decisions for these events from the ledger's facts, and writes those that changed. So the outcome depends only on
//! the set of facts, and if two workers receive two facts of one device at the same time, at least one of them sees
//! both.
//!
//! Each step is a function in its own module: `deduplicate` chooses the message that is the fact, and `index_facts`
//! hashes the ids of the new ones, in several threads; `affected` finds the events that can change, `classify_batch`
//! classifies activations (it uses `continue_chains` and `device_history`), `decide_activations` (it uses
//! `pending_decision`, `touch_search` and `prune_touches`) and `decide_effects` make the decisions, the latter for one
//! page of `effect_pages` at a time, and `change_causes` finds the facts that may have changed a decision.
//! `interrupted_batch` finishes a batch that was committed in part when the process ended. `recompute` recomputes the
//! decisions for stored events.
//!
//! The steps share three values: `FactCache`, the loaded records; `BatchState`, the events that the batch can change;
//! and `Decisions`, the rows to write. A signature shows which of them a step changes.

mod affected;
mod batch_state;
mod change_causes;
pub(crate) mod classify_batch;
mod continue_chains;
mod decide_activations;
mod decide_effects;
mod decisions;
mod deduplicate;
mod device_history;
mod effect_pages;
pub(crate) mod fact_cache;
mod index_facts;
mod interrupted_batch;
pub mod limits;
mod match_windows;
pub(crate) mod pending_decision;
pub(crate) mod prune_touches;
mod recompute;
pub(crate) mod touch_search;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::facts::event::{Fact, Family, Pid, SpreadId};
use crate::ledger::{Ledger, Progress};
use crate::outbox::interest::Interests;
use crate::parallelism::Parallelism;
use crate::rules::policy::Policy;
use crate::rules::row::{EventType, Row, Status};
use affected::{activations_affected_by_touches, effect_searches};
use batch_state::BatchState;
use classify_batch::classify;
use decide_activations::decide_activations;
use decisions::Decisions;
use deduplicate::deduplicate;
use effect_pages::decide_affected_effects;
use fact_cache::FactCache;
use interrupted_batch::finish_interrupted_batch;
use limits::ReadLimits;
use match_windows::MatchWindows;
pub use recompute::{Recomputed, recompute, recompute_with_later_activations};

/// Makes the decisions for batches of facts, on one ledger.
#[derive(Debug)]
pub struct Worker<L> {
    ledger: L,
    policy: Arc<Policy>,
    limits: ReadLimits,
    parallelism: Parallelism,
    interests: Arc<Interests>,
    /// Buffer for the match windows of a batch (about a megabyte), reused by the next batch.
    windows: MatchWindows,
}

/// Facts that arrived together, and the progress to commit with them.
#[derive(Debug, Default)]
pub struct Batch {
    pub facts: Vec<Fact>,
    pub progress: Progress,
}

/// The outcome of a batch, for counters.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct BatchReport {
    pub touches: MessageCounts,
    pub activations: MessageCounts,
    pub effects: MessageCounts,
    /// Numbers of rows written, by the status of the replaced row (`None` for a new event) and the new status.
    pub rows_written: BTreeMap<(Option<Status>, Status), u64>,
    /// Numbers of the same rows, by what they show.
    pub row_outcomes: BTreeMap<RowOutcome, u64>,
    /// Decisions for which at least [`ReadLimits::large_history`] touches were read, and batches that classified as
    /// many activations or decided as many effects: no real device has such a history.
    pub large_histories: u64,
    /// The maximum size of the touches that were loaded at the same time.
    pub touch_bytes_max: usize,
    /// The same of activations, with those of the batch and those to be written.
    pub activation_bytes_max: usize,
    /// The maximum size of the decisions of one commit.
    pub decision_bytes_max: usize,
}

/// What a written row shows of its decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowOutcome {
    pub pid: Pid,
    /// The credited campaign; 0 if there is none.
    pub spreadid: SpreadId,
    pub event_type: EventType,
    pub status: Status,
    /// The name of the credited touch's [`MatchType`](crate::rules::row::MatchType).
    pub match_type: Option<&'static str>,
}

/// Message counts of one family.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct MessageCounts {
    /// New facts.
    pub accepted: u64,
    /// Messages with a known id, including those that replace the fact.
    pub redelivered: u64,
    /// Redelivered messages with another time or content: either an event was sent again with changes, or two events
    /// have the same id, and only the one that sorts first is kept.
    pub conflicting: u64,
}

impl<L: Ledger> Worker<L> {
    pub fn new(ledger: L, policy: Arc<Policy>) -> Self {
        Self::with_limits(ledger, policy, ReadLimits::default())
    }

    /// [`Worker::new`] with other limits.
    pub fn with_limits(ledger: L, policy: Arc<Policy>, limits: ReadLimits) -> Self {
        let (parallelism, windows) = (Parallelism::default(), MatchWindows::default());
        Self { ledger, policy, limits, parallelism, interests: Arc::default(), windows }
    }

    /// Makes outbox entries of the decisions that endpoints want to know of. Without this, there are none.
    #[must_use]
    pub fn with_interests(self, interests: Arc<Interests>) -> Self {
        Self { interests, ..self }
    }

    /// Makes the decisions for the next batches by these settings.
    pub fn set_policy(&mut self, policy: Arc<Policy>, interests: Arc<Interests>) {
        self.policy = policy;
        self.interests = interests;
    }

    /// Divides the work on the messages of a batch among threads. Decisions are made one after the other.
    #[must_use]
    pub fn with_parallelism(self, parallelism: Parallelism) -> Self {
        Self { parallelism, ..self }
    }

    pub fn ledger(&self) -> &L {
        &self.ledger
    }

    pub fn ledger_mut(&mut self) -> &mut L {
        &mut self.ledger
    }

    /// Makes the decisions for all events that the facts can change, and commits them together with the progress.
    /// Skips facts of unknown apps.
    pub fn process(&mut self, batch: Batch) -> Result<BatchReport, L::Error> {
        let report = self.process_ahead(batch)?;
        self.ledger.wait_for_commit()?;
        Ok(report)
    }

    /// Like [`Worker::process`], but returns while the last commit may still be in flight, so that the next batch is
    /// processed meanwhile. [`Ledger::wait_for_commit`] waits for it.
    pub fn process_ahead(&mut self, batch: Batch) -> Result<BatchReport, L::Error> {
        let mut report = BatchReport::default();
        let mut state = BatchState::new(std::mem::take(&mut self.windows), L::SHARED);
        let mut decisions = Decisions::new(L::SHARED, Arc::clone(&self.interests));
        let facts = &mut FactCache::with_limits(&mut self.ledger, self.limits);
        finish_interrupted_batch(facts, &self.policy, &mut decisions, &mut report)?;
        deduplicate(facts, &self.policy, self.parallelism, batch.facts, &mut state, &mut report)?;
        // On a shared store other workers may have changed what was read, so the decisions are repeated until nothing
        // is left to write; the progress is committed with the last round.
        loop {
            decide_all(facts, &self.policy, &mut decisions, &mut state, &mut report)?;
            if !L::SHARED || decisions.is_settled() {
                decisions.commit(facts, &batch.progress, &mut report)?;
                report.large_histories = decisions.large_histories;
                report.touch_bytes_max = facts.bytes_max(Family::Touch);
                report.activation_bytes_max = facts.bytes_max(Family::Activation);
                report.decision_bytes_max = decisions.bytes_max();
                self.windows = state.windows;
                return Ok(report);
            }
            if !decisions.is_empty() {
                decisions.commit(facts, &Progress::default(), &mut report)?;
            }
            state.add_events(decisions.take_committed());
            facts.clear();
            decisions.clear();
        }
    }
}

/// Makes all decisions that the recorded facts change. They may be committed in part.
fn decide_all<L: Ledger>(
    facts: &mut FactCache<'_, L>,
    policy: &Policy,
    decisions: &mut Decisions,
    state: &mut BatchState,
    report: &mut BatchReport,
) -> Result<(), L::Error> {
    let touched = activations_affected_by_touches(facts, policy, state)?;
    let classified = classify(facts, policy, state, true)?;
    decisions.large_histories += u64::from(classified.len() >= facts.limits.large_history);
    decide_activations(facts, policy, decisions, report, state, &classified, touched)?;
    if L::SHARED && !decisions.is_settled() {
        // Effects are decided only after all activations are committed: if a commit lost a race, the effects would have
        // inherited an outdated credit.
        return Ok(());
    }
    let searches = effect_searches(facts, policy, state, &classified, &decisions.changed)?;
    decide_affected_effects(facts, policy, decisions, report, state, searches)
}

impl RowOutcome {
    fn of(row: &Row) -> Self {
        let Row { pid, spreadid, event_type, status, touch, .. } = row;
        let match_type = touch.as_ref().map(|touch| touch.match_type.name());
        Self {
            pid: *pid,
            spreadid: *spreadid,
            event_type: *event_type,
            status: *status,
            match_type,
        }
    }
}

impl BatchReport {
    pub fn counts(&self, family: Family) -> MessageCounts {
        match family {
            Family::Touch => self.touches,
            Family::Activation => self.activations,
            Family::Effect => self.effects,
        }
    }

    fn counts_mut(&mut self, family: Family) -> &mut MessageCounts {
        match family {
            Family::Touch => &mut self.touches,
            Family::Activation => &mut self.activations,
            Family::Effect => &mut self.effects,
        }
    }
}
