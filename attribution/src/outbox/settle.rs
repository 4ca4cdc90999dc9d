//! Decides what happens to an entry that is due.

use super::ATTEMPT_MS_MAX;
use super::interest::LateCredit;
use super::record::{CallbackKind, CreditMark, OutboxEntry, OutboxRecord, SentCredit};
use crate::facts::event::EventTime;

/// What is to be done with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// It is not due, or no longer pending.
    Wait,
    /// It depends on an attempt that is in progress until then.
    Later {
        due: EventTime,
    },
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
        match other_reported(record, entry, now) {
            // Without an earlier callback, the one about the present credit says everything.
            Other::NotSent => return Settlement::Drop,
            Other::Open { until } => return Settlement::Later { due: until },
            Other::Sent => {}
        }
    } else if entry.sent.is_some_and(|sent| is_same(sent.credit)) {
        return Settlement::Drop;
    } else if late_credit == LateCredit::Withhold {
        match other_sent(record, entry, now) {
            Other::NotSent => {}
            Other::Open { until } => return Settlement::Later { due: until },
            Other::Sent => return Settlement::Withhold,
        }
    }
    if entry.attempt == 0 && now > entry.expires {
        return Settlement::TooOld;
    }
    Settlement::Send
}

/// What has become of other credits of the event.
enum Other {
    NotSent,
    /// One is being sent.
    Open {
        until: EventTime,
    },
    Sent,
}

/// Checks whether another credit of the event was sent: to any ad network, or by the same webhook in the same kind. An
/// ad network that may have taken one counts as having taken it, because otherwise two could pay. A webhook that gets
/// two goes by their revisions.
fn other_sent(record: &OutboxRecord, entry: &OutboxEntry, now: EventTime) -> Other {
    let is_alike = |other: &&OutboxEntry| {
        other.kind == entry.kind && (!entry.kind.is_webhook() || other.endpoint == entry.endpoint)
    };
    let is_other = |sent: &SentCredit| sent.credit.fingerprint != entry.credit.fingerprint;
    let alike = || record.entries.iter().filter(is_alike);
    if alike().any(|other| other.sent.is_some_and(|sent| is_other(&sent))) {
        return Other::Sent;
    }
    if entry.kind.is_webhook() { Other::NotSent } else { maybe_sent(alike(), is_other, now) }
}

/// Checks whether the webhook may know another credit of the event than that of the entry as the last one.
fn other_reported(record: &OutboxRecord, entry: &OutboxEntry, now: EventTime) -> Other {
    let is_other = |sent: &SentCredit| sent.credit.fingerprint != entry.credit.fingerprint;
    let last = record.last_sent(&entry.endpoint);
    if last.is_some_and(|sent| is_other(&sent)) {
        return Other::Sent;
    }
    let is_later = |sent: &SentCredit| last.is_none_or(|last| sent.revision > last.revision);
    let own = record.entries.iter().filter(|other| other.endpoint == entry.endpoint);
    maybe_sent(own, |sent| is_other(sent) && is_later(sent), now)
}

/// Checks whether one of the entries may have sent such a credit. Once the attempt must have ended, nobody will know.
fn maybe_sent<'e>(
    entries: impl Iterator<Item = &'e OutboxEntry>,
    is_such: impl Fn(&SentCredit) -> bool,
    now: EventTime,
) -> Other {
    let mut open_until: Option<EventTime> = None;
    for entry in entries {
        let Some(sent) = entry.maybe_sent.filter(&is_such) else { continue };
        let until = sent.at.plus(ATTEMPT_MS_MAX);
        // If it was made again during the attempt, its due time is not the end of the lease.
        let until = match entry.credit.fingerprint == sent.credit.fingerprint {
            true if entry.is_pending() => entry.due.min(until),
            true => return Other::Sent,
            false => until,
        };
        if until <= now {
            return Other::Sent;
        }
        open_until = open_until.max(Some(until));
    }
    open_until.map_or(Other::NotSent, |until| Other::Open { until })
}
