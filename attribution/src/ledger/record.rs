//! What a ledger keeps of a fact: the fact, what was decided, and the row that shows it.

use crate::facts::event::{Activation, Effect, EventTime, Fact, Family, Pairs, SpreadId, Touch};
use crate::facts::keys::FactKey;
use crate::rules::classify::InstallChains;
use crate::rules::row::{InstallType, Status};
use crate::rules::winner::Decision;

/// What a store keeps under a fact's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactRecord {
    Touch(Box<Touch>),
    Activation(Box<ActivationRecord>),
    Effect(Box<EffectRecord>),
}

/// What is known by a fact's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    Missing,
    Found(FactRecord),
    /// On a shared store: a record and the facts that its own fact replaced in uncommitted batches. Their worker may
    /// be gone, so everything that these facts could change is decided again.
    Superseded(FactRecord, Vec<Fact>),
    /// An activation or effect that has expired: no decision depends on it any more, and its row
    /// stands as long as rows are kept.
    Tombstone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivationRecord {
    pub fact: Activation,
    /// What the next activations of its devices go on from; none before the first decision.
    pub chains: InstallChains,
    pub decision: Option<Decision>,
    /// The decision before this one, for explanations only; no decision depends on it.
    pub previous: Option<Decision>,
    /// What came in when it did; nothing depends on this either.
    pub changed_by: Causes,
    pub current_row: Option<CurrentRow>,
}

/// The facts that came in together and can have changed a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Causes {
    /// At most [`CAUSES_MAX`].
    pub facts: Vec<Cause>,
    /// Whether there may have been others.
    pub has_more: bool,
}

/// Causes that are kept of one change.
pub const CAUSES_MAX: usize = 3;

/// A touch or an activation as it came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    pub fact: FactKey,
    pub time: EventTime,
    /// Whether it was known, and came once more with an earlier time or other content.
    pub is_update: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectRecord {
    pub fact: Effect,
    pub current_row: Option<CurrentRow>,
}

/// The row that shows an event now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurrentRow {
    pub revision: u32,
    pub event_time: EventTime,
    pub spreadid: SpreadId,
    pub status: Status,
    /// Hash of the row and of what else was decided: an equal one is no correction.
    pub digest: u64,
    pub place: RowRef,
}

/// What a ledger notes of a row, when it commits it, to take it back without reading it; the worker hands it back with
/// the decision that replaces it, and knows nothing of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowRef {
    /// Over how many partitions the app's rows were spread, as a power of two.
    pub fanout_bits: u8,
    /// Of key and value.
    pub bytes: u32,
    pub install_type: Option<InstallType>,
    /// A hash of what is counted of the fact.
    pub fact_hash: u64,
}

impl FactRecord {
    pub fn family(&self) -> Family {
        match self {
            Self::Touch(_) => Family::Touch,
            Self::Activation(_) => Family::Activation,
            Self::Effect(_) => Family::Effect,
        }
    }

    /// The window that a touch brings along; `None` without one.
    pub fn lookback_ms(&self) -> Option<u64> {
        match self {
            Self::Touch(touch) => touch.lookback_ms,
            Self::Activation(_) | Self::Effect(_) => None,
        }
    }

    /// As received.
    pub fn ids(&self) -> &Pairs {
        match self {
            Self::Touch(touch) => &touch.ids,
            Self::Activation(record) => &record.fact.ids,
            Self::Effect(record) => &record.fact.ids,
        }
    }

    pub fn current_row_mut(&mut self) -> Option<&mut CurrentRow> {
        match self {
            Self::Touch(_) => None,
            Self::Activation(record) => record.current_row.as_mut(),
            Self::Effect(record) => record.current_row.as_mut(),
        }
    }

    pub fn time(&self) -> EventTime {
        match self {
            Self::Touch(touch) => touch.time,
            Self::Activation(record) => record.fact.time,
            Self::Effect(record) => record.fact.time,
        }
    }

    pub fn id(&self) -> &str {
        match self {
            Self::Touch(touch) => &touch.id,
            Self::Activation(record) => &record.fact.id,
            Self::Effect(record) => &record.fact.id,
        }
    }

    pub fn current_row(&self) -> Option<&CurrentRow> {
        match self {
            Self::Touch(_) => None,
            Self::Activation(record) => record.current_row.as_ref(),
            Self::Effect(record) => record.current_row.as_ref(),
        }
    }
}

/// A record without a decision.
impl From<Fact> for FactRecord {
    fn from(fact: Fact) -> Self {
        match fact {
            Fact::Touch(touch) => Self::Touch(touch),
            Fact::Activation(fact) => Self::Activation(Box::new(ActivationRecord {
                fact: *fact,
                chains: InstallChains::default(),
                decision: None,
                previous: None,
                changed_by: Causes::default(),
                current_row: None,
            })),
            Fact::Effect(fact) => {
                Self::Effect(Box::new(EffectRecord { fact: *fact, current_row: None }))
            }
        }
    }
}

impl From<FactRecord> for Fact {
    fn from(record: FactRecord) -> Self {
        match record {
            FactRecord::Touch(touch) => Self::Touch(touch),
            FactRecord::Activation(record) => Self::Activation(Box::new(record.fact)),
            FactRecord::Effect(record) => Self::Effect(Box::new(record.fact)),
        }
    }
}
