//! Fact records: each contains a fact, its current decision, and metadata of its current row.

use crate::facts::device_ids::DeviceIds;
use crate::facts::event::{Activation, Effect, EventTime, Fact, Family, IdSpace, SpreadId, Touch};
use crate::facts::keys::FactKey;
use crate::rules::classify::InstallChains;
use crate::rules::row::{InstallType, Status};
use crate::rules::winner::Decision;

/// The value stored under a fact's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactRecord {
    Touch(Touch),
    Activation(Box<ActivationRecord>),
    Effect(Box<EffectRecord>),
}

/// The result of looking up a fact's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    Missing,
    Found(FactRecord),
    /// Shared stores only: the record, and older versions of its fact that uncommitted batches have replaced. The
    /// worker of such a batch may have crashed, so every decision that these versions can affect is recomputed.
    Superseded(FactRecord, Vec<Fact>),
    /// An expired activation or effect: no decision depends on it any more. Its row stays until its retention ends.
    Tombstone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivationRecord {
    pub fact: Activation,
    /// The install chains up to this activation, which later activations extend; empty before the first decision.
    pub chains: InstallChains,
    pub decision: Option<Decision>,
    /// The decision before this one, for explanations only; no decision depends on it.
    pub previous: Option<Decision>,
    /// The facts that may have caused the last change, for explanations only.
    pub changed_by: Causes,
    pub current_row: Option<CurrentRow>,
}

/// The facts of one batch that may have changed a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Causes {
    /// At most [`CAUSES_MAX`].
    pub facts: Vec<Cause>,
    /// Further facts may have changed it.
    pub may_have_more: bool,
}

/// Maximum number of causes kept per change.
pub const CAUSES_MAX: usize = 3;

/// A touch or an activation that arrived with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    pub fact: FactKey,
    pub time: EventTime,
    /// The fact was known and arrived again with an earlier time or other content.
    pub is_update: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectRecord {
    pub fact: Effect,
    pub current_row: Option<CurrentRow>,
}

/// The current row of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurrentRow {
    pub revision: u32,
    pub event_time: EventTime,
    pub spreadid: SpreadId,
    pub status: Status,
    /// Hash of the row and the rest of the decision; if it stays equal, the row is not corrected.
    pub digest: u64,
    pub row_meta: RowMeta,
}

/// Data of the current row that a ledger needs to delete the row without reading it. The ledger sets it at commit; the
/// worker passes it back unchanged with the decision that replaces the row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowMeta {
    /// log2 of the number of partitions over which the app's rows were distributed when the row was written.
    pub fanout_bits: u8,
    /// Size of the row's key and value.
    pub bytes: u32,
    pub install_type: Option<InstallType>,
    /// Hash of event name, currency and revenue, from which the aggregates are computed.
    pub fact_hash: u64,
}

impl Lookup {
    /// Returns the approximate size in memory.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Missing | Self::Tombstone => 0,
            Self::Found(record) => record.bytes(),
            Self::Superseded(record, superseded) => {
                record.bytes() + superseded.iter().map(Fact::bytes).sum::<usize>()
            }
        }
    }
}

impl ActivationRecord {
    /// Returns the approximate size in memory.
    pub fn bytes(&self) -> usize {
        let decisions = self.decision.iter().chain(&self.previous);
        let decisions = decisions.map(Decision::text_bytes).sum::<usize>();
        size_of::<Self>() + self.fact.bytes() + self.chains.bytes() + decisions
    }
}

impl FactRecord {
    pub fn family(&self) -> Family {
        match self {
            Self::Touch(_) => Family::Touch,
            Self::Activation(_) => Family::Activation,
            Self::Effect(_) => Family::Effect,
        }
    }

    /// Returns the approximate size in memory.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Touch(touch) => touch.bytes(),
            Self::Activation(record) => record.bytes(),
            Self::Effect(record) => size_of::<EffectRecord>() + record.fact.bytes(),
        }
    }

    pub fn id_space(&self) -> IdSpace {
        match self {
            Self::Touch(touch) => touch.kind.into(),
            Self::Activation(_) => IdSpace::Activation,
            Self::Effect(_) => IdSpace::Effect,
        }
    }

    /// Returns a touch's own lookback, if it has one.
    pub fn lookback_ms(&self) -> Option<u64> {
        match self {
            Self::Touch(touch) => touch.lookback_ms,
            Self::Activation(_) | Self::Effect(_) => None,
        }
    }

    /// Returns the normalised ids.
    pub fn device_ids(&self) -> DeviceIds {
        match self {
            Self::Touch(touch) => DeviceIds::of_touch(touch.ids()),
            Self::Activation(record) => DeviceIds::of_app_event(&record.fact.ids),
            Self::Effect(record) => DeviceIds::of_app_event(&record.fact.ids),
        }
    }

    pub fn activation(&self) -> Option<&ActivationRecord> {
        match self {
            Self::Activation(record) => Some(record),
            Self::Touch(_) | Self::Effect(_) => None,
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
            Self::Touch(touch) => touch.id(),
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

/// Creates a record without a decision.
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
