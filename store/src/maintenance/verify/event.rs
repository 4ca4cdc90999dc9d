//! Activations and effects under verification, and their intact rows.

use attribution::facts::event::Pid;
use attribution::facts::keys::FactKey;
use attribution::ledger::record::{CurrentRow, FactRecord};
use attribution::rules::build_row;
use attribution::rules::inherit::Inheritance;
use attribution::rules::row::{EventType, Row, seq};
use attribution::worker::Recomputed;

use super::stored_row::{self, credit, digest};
use super::table_scan::Found;
use crate::apps::record::App;
use crate::layout::codec::row::RowView;
use crate::layout::key::RowKey;

/// An activation or effect as it is stored.
pub struct Event {
    pub fact: FactKey,
    pub record: FactRecord,
    pub app: App,
    /// The key of its row; `None` if the record has no valid one.
    pub row: Option<RowKey>,
    /// The recomputed decision; `None` if the stored one is final, or left to be decided.
    pub recomputed: Option<Recomputed>,
    /// An interrupted batch has left it to be decided, or decided again.
    pub is_unfinished: bool,
}

impl Event {
    pub fn new(fact: FactKey, record: FactRecord, app: App, partitions: u16) -> Self {
        let row = record.current_row().and_then(|current_row| {
            row_key(&app, fact.pid, seq_of(&record), current_row, partitions)
        });
        Self { fact, record, app, row, recomputed: None, is_unfinished: false }
    }

    /// True if the recomputed decision has another row.
    pub fn has_row_change(&self) -> bool {
        self.recomputed.as_ref().is_some_and(Recomputed::has_row_change)
    }
}

/// The key of the current row of an event; `None` if its fanout is not possible.
pub fn row_key(
    app: &App,
    pid: Pid,
    seq: u64,
    current_row: &CurrentRow,
    partitions: u16,
) -> Option<RowKey> {
    let is_possible = current_row.row_meta.fanout_bits <= app.fanout_bits_max;
    is_possible.then(|| RowKey::current(pid, seq, current_row, app.base, partitions))
}

pub fn seq_of(record: &FactRecord) -> u64 {
    let event_type = match record {
        FactRecord::Effect(_) => EventType::Effect,
        _ => EventType::Activation,
    };
    seq(event_type, record.id())
}

/// True if the stored decision matches the event time, campaign, status and digest that the record has of its row.
pub fn is_consistent(record: &FactRecord, current_row: &CurrentRow) -> bool {
    if current_row.event_time != record.time() {
        return false;
    }
    let FactRecord::Activation(record) = record else { return true };
    record.decision.as_ref().is_some_and(|decision| {
        let row = build_row::activation_row(&record.fact, decision);
        (decision.credit.spreadid, decision.credit.status)
            == (current_row.spreadid, current_row.status)
            && digest(&row, decision.original.as_deref()) == current_row.digest
    })
}

/// A row that matches the digest in its event's record: it is exactly the row that was decided. If a recomputed
/// decision differs from it, the row is right: facts were altered or lost, or settings have changed.
pub struct IntactRow {
    pub row: Row,
    /// The id of the install that an activation follows, which its row does not contain.
    pub original: Option<Box<str>>,
}

impl IntactRow {
    /// Returns the row of an event; `None` if it is missing or not the one that was decided.
    pub fn of(event: &Event, found: Option<&Found>) -> Option<Self> {
        let (Some(Found::Value(value)), Some(key)) = (found, event.row) else { return None };
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
                let credit = credit(row.clone());
                let inheritance = Inheritance { activation: None, credit, credit_of: None };
                let of_fact = build_row::effect_row(&record.fact, inheritance);
                let (install_type, activation) = (row.install_type, row.activation.clone());
                Some(Row { install_type, activation, ..of_fact })
            }
        };
        of_fact.is_some_and(|of_fact| of_fact == Row { revision: 0, ..row.clone() })
    }
}

/// The installs that an activation may follow.
fn originals(record: &FactRecord) -> Vec<Option<Box<str>>> {
    let FactRecord::Activation(record) = record else { return Vec::new() };
    let of_decision = record.decision.as_ref().and_then(|decision| decision.original.clone());
    let installs = record.chains.chains.iter().map(|chain| chain.install.id.clone());
    of_decision.into_iter().chain(installs).map(Some).collect()
}
