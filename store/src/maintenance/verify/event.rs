//! An activation or effect under verification.

use attribution::facts::keys::FactKey;
use attribution::ledger::record::{CurrentRow, FactRecord};
use attribution::worker::Recomputed;

use super::stored_row::digest_of;
use crate::apps::record::App;
use crate::layout::key::RowKey;

/// An activation or effect as it is stored.
pub struct Event {
    pub fact: FactKey,
    pub record: FactRecord,
    pub app: App,
    /// The key of its row; `None` if the record has no valid one.
    pub row: Option<RowKey>,
    /// The recomputed decision; `None` if the stored one is final.
    pub recomputed: Option<Recomputed>,
}

impl Event {
    /// True if the recomputed decision has another row.
    pub fn has_row_change(&self) -> bool {
        self.recomputed.as_ref().is_some_and(Recomputed::has_row_change)
    }
}

/// True if the stored decision matches the event time, campaign, status and digest that the record has of its row.
pub fn is_consistent(record: &FactRecord, current_row: &CurrentRow) -> bool {
    if current_row.event_time != record.time() {
        return false;
    }
    let FactRecord::Activation(record) = record else { return true };
    record.decision.as_ref().is_some_and(|decision| {
        (decision.credit.spreadid, decision.credit.status)
            == (current_row.spreadid, current_row.status)
            && digest_of(&record.fact, decision) == current_row.digest
    })
}
