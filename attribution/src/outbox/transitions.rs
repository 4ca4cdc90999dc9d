//! The changes of an entry. Each is a function of the record and its arguments, so a store may repeat it on a newer
//! record. Each time that an entry becomes pending or leaves that state, its tally counts it.

use super::ATTEMPT_MS_MAX;
use super::interest::PlannedCallback;
use super::record::{
    CallbackKind, CreditMark, EndpointId, EntryState, OutboxEntry, OutboxKey, OutboxRecord,
    SentCredit, Tally,
};
use crate::facts::event::EventTime;
use crate::facts::keys::FactKey;

/// The maximum length of a note, in characters.
const NOTE_CHARS_MAX: usize = 2_000;

/// An entry as delivery has seen it. Its outcome counts only if the entry is still the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub key: OutboxKey,
    pub credit: CreditMark,
    pub revision: u32,
    pub attempt: u32,
    /// See [`OutboxEntry::sent_before`].
    pub sent_before: u64,
    /// When the attempt began.
    pub at: EventTime,
    /// [`OutboxEntry::maybe_sent`] before the attempt began.
    pub maybe_sent_before: Option<SentCredit>,
}

impl Claim {
    /// Returns an id of the callback, by which a receiver recognises one that is sent twice. All attempts have the
    /// same; another credit, or the same one after another was sent, has another.
    pub fn id(&self) -> String {
        let FactKey { id, pid, tag, family: _ } = self.key.event;
        let (kind, fingerprint) = (self.key.kind as u8, self.credit.fingerprint);
        let event = format!("{:x}-{:016x}{tag:012x}", pid.0, id.0);
        format!("{event}-{kind}-{fingerprint:016x}-{}", self.sent_before)
    }

    fn sent_at(&self, at: EventTime) -> SentCredit {
        SentCredit { credit: self.credit, revision: self.revision, at }
    }
}

/// The outcome of an attempt, or of settling an entry without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Sent {
        note: Box<str>,
    },
    Dropped {
        note: Box<str>,
    },
    Withheld,
    TooOld,
    Dead {
        note: Box<str>,
        maybe_sent: bool,
    },
    /// The attempt failed, and the next one is due at a time.
    Retry {
        due: EventTime,
        note: Box<str>,
        /// Nobody knows whether the endpoint has taken it, for example because it did not respond in time.
        maybe_sent: bool,
    },
    /// The entry is settled again at a time; no attempt has begun.
    Later {
        due: EventTime,
    },
    /// No attempt was made, for example because the endpoint is not called at present. It counts as none.
    Postponed {
        due: EventTime,
    },
}

impl Outcome {
    fn is_maybe_sent(&self) -> bool {
        matches!(self, Self::Dead { maybe_sent: true, .. } | Self::Retry { maybe_sent: true, .. })
    }
}

impl OutboxRecord {
    /// Makes sure that the record has an entry for the planned callback. An entry about the same credit stays as it is,
    /// unless it was dropped. `decided` is the time of the decision.
    pub fn plan(&mut self, planned: &PlannedCallback, decided: EventTime) {
        let index = match self.position(&planned.endpoint, planned.kind) {
            Err(index) => {
                self.entries.insert(index, new_entry(planned));
                index
            }
            Ok(index) => {
                let Some(entry) = self.entries.get_mut(index) else { return };
                // A worker that was paused may bring the decision before the present one.
                if planned.revision < entry.revision {
                    return;
                }
                entry.revision = planned.revision;
                let is_same = entry.credit.fingerprint == planned.credit.fingerprint;
                if is_same && entry.state != EntryState::Dropped {
                    return;
                }
                index
            }
        };
        if let Some(entry) = self.entries.get_mut(index) {
            entry.make(planned, decided);
        }
    }

    /// Returns the claim of an entry that is settled without an attempt.
    pub fn claim_of(&self, entry: &OutboxEntry) -> Claim {
        Claim {
            key: self.key_of(entry),
            credit: entry.credit,
            revision: entry.revision,
            attempt: entry.attempt,
            sent_before: entry.sent_before,
            at: EventTime::default(),
            maybe_sent_before: entry.maybe_sent,
        }
    }

    /// Begins an attempt of an entry that is due. If it is not finished within the lease, the entry is due again. From
    /// now on the endpoint may have taken it, until the outcome says otherwise.
    pub fn claim(
        &mut self,
        endpoint: &EndpointId,
        kind: CallbackKind,
        now: EventTime,
        lease_ms: u64,
    ) -> Option<Claim> {
        let entry = self.entry_mut(endpoint, kind)?;
        if !entry.is_due(now) {
            return None;
        }
        let maybe_sent_before = entry.maybe_sent;
        entry.attempt = entry.attempt.saturating_add(1);
        entry.due = now.plus(lease_ms.max(1));
        let (credit, revision) = (entry.credit, entry.revision);
        entry.maybe_sent = Some(SentCredit { credit, revision, at: now });
        let entry = self.entry(endpoint, kind)?;
        Some(Claim { at: now, maybe_sent_before, ..self.claim_of(entry) })
    }

    /// Ends an attempt. If the entry has changed meanwhile, only whether it was sent counts. Returns whether the
    /// outcome is that of the entry.
    pub fn finish(&mut self, claim: &Claim, outcome: &Outcome, now: EventTime) -> bool {
        let Some(entry) = self.entry_mut(&claim.key.endpoint, claim.key.kind) else { return false };
        let is_same = entry.is_pending() && entry.credit.fingerprint == claim.credit.fingerprint;
        // A later decision may have the credit again that moved before.
        let is_settled_again = entry.revision != claim.revision;
        if entry.maybe_sent == Some(claim.sent_at(claim.at)) && !outcome.is_maybe_sent() {
            entry.maybe_sent = claim.maybe_sent_before;
        }
        match outcome {
            Outcome::Sent { note } => {
                if !is_same {
                    return entry.note_sent(claim, now);
                }
                entry.sent = Some(claim.sent_at(now));
                entry.note = shortened(note);
                entry.end(EntryState::Sent, now);
            }
            _ if !is_same || entry.attempt != claim.attempt => return false,
            Outcome::Dropped { .. }
            | Outcome::Withheld
            | Outcome::TooOld
            | Outcome::Later { .. }
                if is_settled_again =>
            {
                return false;
            }
            Outcome::Dropped { note } => {
                entry.note = shortened(note);
                entry.end(EntryState::Dropped, now);
            }
            Outcome::Withheld => entry.end(EntryState::Withheld, now),
            Outcome::TooOld => entry.end(EntryState::TooOld, now),
            Outcome::Dead { note, maybe_sent: _ } => {
                entry.note = shortened(note);
                entry.end(EntryState::Dead, now);
            }
            Outcome::Retry { due, note, maybe_sent: _ } => {
                entry.note = shortened(note);
                entry.due = *due;
            }
            Outcome::Later { due } => entry.due = *due,
            Outcome::Postponed { due } => {
                entry.attempt = entry.attempt.saturating_sub(1);
                entry.due = *due;
            }
        }
        true
    }

    /// Makes entries that are dead or too old pending again; from then on their age does not matter. Those that are
    /// pending are due now, unless they soon are, because an attempt may be in progress. Returns how many were changed.
    pub fn retry(&mut self, is_chosen: impl Fn(&OutboxEntry) -> bool, now: EventTime) -> u64 {
        let mut count = 0;
        for entry in self.entries.iter_mut().filter(|entry| is_chosen(entry)) {
            match entry.state {
                EntryState::Dead | EntryState::TooOld => {
                    entry.begin(now);
                    (entry.due, entry.expires) = (now, EventTime::MAX);
                }
                EntryState::Pending if entry.due > now.plus(ATTEMPT_MS_MAX) => entry.due = now,
                EntryState::Pending
                | EntryState::Sent
                | EntryState::Dropped
                | EntryState::Withheld => continue,
            }
            count += 1;
        }
        count
    }

    fn entry_mut(&mut self, endpoint: &EndpointId, kind: CallbackKind) -> Option<&mut OutboxEntry> {
        self.position(endpoint, kind).ok().and_then(|index| self.entries.get_mut(index))
    }
}

impl OutboxEntry {
    /// Sets what the callback reports, and makes it pending.
    fn make(&mut self, planned: &PlannedCallback, decided: EventTime) {
        self.credit = planned.credit;
        self.sent_before = self.tally.sent;
        self.due = decided.max(planned.event_time).plus(planned.settle_ms);
        // A change is reported only after something else was, so a backfill reports none.
        self.expires = match self.kind {
            CallbackKind::ActivationChanged => EventTime::MAX,
            _ => planned.event_time.plus(planned.max_age_ms),
        };
        if self.is_pending() && self.tally.made > 0 {
            // It reports another credit than planned before; an attempt in progress is of the credit before.
            self.attempt = 0;
            self.changed = decided;
            return;
        }
        self.begin(decided);
        if decided > self.expires {
            self.end(EntryState::TooOld, decided);
        }
    }

    fn begin(&mut self, now: EventTime) {
        self.state = EntryState::Pending;
        self.attempt = 0;
        self.changed = now;
        self.tally.count(EntryState::Pending);
    }

    fn end(&mut self, state: EntryState, now: EventTime) {
        let reason = match state {
            EntryState::Withheld => "another credit of the event was sent before",
            EntryState::TooOld => "too old to be sent",
            EntryState::Pending | EntryState::Sent | EntryState::Dropped | EntryState::Dead => "",
        };
        if !reason.is_empty() && !self.note.starts_with(reason) {
            // What an earlier attempt has led to stays below.
            self.note = shortened(format!("{reason}\n{}", self.note).trim_end());
        }
        self.state = state;
        self.changed = now;
        self.tally.count(state);
    }

    /// Notes that the claimed credit was sent, although the entry has changed. The present credit of a pending entry
    /// then is a further callback. If a later credit was sent meanwhile, the receiver goes by that.
    fn note_sent(&mut self, claim: &Claim, now: EventTime) -> bool {
        let is_known = |sent: SentCredit| {
            sent.credit.fingerprint == claim.credit.fingerprint || sent.revision > claim.revision
        };
        if self.sent.is_some_and(is_known) {
            return false;
        }
        self.sent = Some(claim.sent_at(now));
        self.tally.count(EntryState::Pending);
        self.tally.count(EntryState::Sent);
        if !self.is_pending() {
            self.changed = now;
        }
        true
    }
}

/// An entry that is not counted yet.
fn new_entry(planned: &PlannedCallback) -> OutboxEntry {
    OutboxEntry {
        endpoint: planned.endpoint.clone(),
        kind: planned.kind,
        state: EntryState::Pending,
        credit: planned.credit,
        revision: planned.revision,
        due: EventTime::default(),
        expires: EventTime::default(),
        attempt: 0,
        sent_before: 0,
        sent: None,
        maybe_sent: None,
        changed: EventTime::default(),
        tally: Tally::default(),
        note: Box::default(),
    }
}

fn shortened(note: &str) -> Box<str> {
    note.chars().take(NOTE_CHARS_MAX).collect::<String>().into()
}
