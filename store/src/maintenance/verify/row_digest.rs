//! Intact rows: a row that matches the digest in its event's record is exactly the row that was decided.
//!
//! If a recomputed decision differs from an intact row, the row is right: facts were altered or lost, or settings have
//! changed.

use attribution::ledger::record::FactRecord;
use attribution::rules::build_row;
use attribution::rules::inherit::Inheritance;
use attribution::rules::row::Row;
use attribution::rules::winner::Credit;

use super::event::Event;
use super::stored_row::{self, digest};
use super::table_scan::Found;
use crate::layout::codec::row::RowView;

/// An intact row.
pub struct RowDigest {
    row: Row,
    /// The id of the install that an activation follows, which its row does not contain.
    pub original: Option<Box<str>>,
}

impl RowDigest {
    /// Returns the row of an event; `None` if it is missing or not the one that was decided.
    pub fn of(event: &Event, found: &Found) -> Option<Self> {
        let (Found::Value(value), Some(key)) = (found, event.row) else { return None };
        let row = stored_row::row(&key, &RowView::decode(value).ok()?)?;
        let current_row = event.record.current_row()?;
        let recomputed = event.recomputed.as_ref().map(|recomputed| &recomputed.write.record);
        let records = [Some(&event.record), recomputed].into_iter().flatten();
        let mut originals = std::iter::once(None).chain(records.flat_map(originals));
        let matches = |of: &Option<Box<str>>| digest(&row, of.as_deref()) == current_row.digest;
        let original = originals.find(matches)?;
        Some(Self { row, original })
    }

    /// True if the row's values of the event itself match the fact of the record.
    pub fn is_of(&self, record: &FactRecord) -> bool {
        let Self { row, original } = self;
        let of_fact = match record {
            FactRecord::Touch(_) => None,
            FactRecord::Activation(record) => stored_row::decision(row.clone(), original.clone())
                .map(|decision| build_row::activation_row(&record.fact, &decision)),
            FactRecord::Effect(record) => {
                let credit = credit(row);
                let inheritance = Inheritance { activation: None, credit, credit_of: None };
                let of_fact = build_row::effect_row(&record.fact, inheritance);
                let (install_type, activation) = (row.install_type, row.activation.clone());
                Some(Row { install_type, activation, ..of_fact })
            }
        };
        of_fact.is_some_and(|of_fact| of_fact == Row { revision: 0, ..row.clone() })
    }

    /// The row as it was read.
    pub fn into_row(self) -> Row {
        self.row
    }
}

/// The installs that an activation may follow.
fn originals(record: &FactRecord) -> Vec<Option<Box<str>>> {
    let FactRecord::Activation(record) = record else { return Vec::new() };
    let of_decision = record.decision.as_ref().and_then(|decision| decision.original.clone());
    let installs = record.chains.chains.iter().map(|chain| chain.install.id.clone());
    of_decision.into_iter().chain(installs).map(Some).collect()
}

fn credit(row: &Row) -> Credit {
    Credit {
        status: row.status,
        spreadid: row.spreadid,
        reject_reason: row.reject_reason,
        touch: row.touch.clone(),
        contributors: row.contributors.clone(),
    }
}
