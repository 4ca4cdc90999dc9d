//! An activation or effect under verification.

use attribution::facts::keys::FactKey;
use attribution::ledger::record::{CurrentRow, FactRecord};
use attribution::worker::Recomputed;

use super::stored_row::digest_of;
use crate::apps::spread::App;
use crate::layout::key::RowKey;

/// An activation or effect as it is kept.
pub struct Event {
    pub fact: FactKey,
    pub record: FactRecord,
    pub app: App,
    /// Where its row is; none if it can not be anywhere.
    pub row: Option<RowKey>,
    /// What would be decided now, if that is not final.
    pub recomputed: Option<Recomputed>,
}

impl Event {
    /// Whether another row would be decided now.
    pub fn has_other_row(&self) -> bool {
        self.recomputed.as_ref().is_some_and(Recomputed::has_other_row)
    }
}

/// Whether what is kept of a decision agrees with itself.
pub fn is_of_itself(record: &FactRecord, current_row: &CurrentRow) -> bool {
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
