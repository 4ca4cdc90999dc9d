//! Decides what happens to an entry that is due.

use super::interest::LateCredit;
use super::record::{CallbackKind, CreditMark, OutboxEntry, OutboxRecord};
use crate::facts::event::EventTime;

/// What is to be done with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// It is not due, or no longer pending.
    Wait,
    Send,
    Drop,
    Withhold,
    TooOld,
}

/// Compares an entry of the record with the credit of the present decision on the event; `None` if the event is gone.
pub fn settle(
    record: &OutboxRecord,
    entry: &OutboxEntry,
    present: Option<CreditMark>,
    late_credit: LateCredit,
    now: EventTime,
) -> Settlement {
    if !entry.is_due(now) {
        return Settlement::Wait;
    }
    let fingerprint = entry.credit.fingerprint;
    if present.is_none_or(|present| present.fingerprint != fingerprint) {
        return Settlement::Drop;
    }
    let is_same = |sent: CreditMark| sent.fingerprint == fingerprint;
    if entry.kind == CallbackKind::ActivationChanged {
        // Without an earlier callback, the one about the present credit says everything.
        let reported = record.last_sent(&entry.endpoint);
        if reported.is_none_or(|reported| is_same(reported.credit)) {
            return Settlement::Drop;
        }
    } else if entry.sent.is_some_and(|sent| is_same(sent.credit)) {
        return Settlement::Drop;
    } else if late_credit == LateCredit::Withhold && has_sent_other(record, entry) {
        return Settlement::Withhold;
    }
    if entry.attempt == 0 && now > entry.expires {
        return Settlement::TooOld;
    }
    Settlement::Send
}

/// Checks whether another credit of the event was sent: to any ad network, or by the same webhook in the same kind.
fn has_sent_other(record: &OutboxRecord, entry: &OutboxEntry) -> bool {
    let is_alike = |other: &&OutboxEntry| {
        other.kind == entry.kind && (!entry.kind.is_webhook() || other.endpoint == entry.endpoint)
    };
    let mut sent = record.entries.iter().filter(is_alike).filter_map(|other| other.sent);
    sent.any(|sent| sent.credit.fingerprint != entry.credit.fingerprint)
}
