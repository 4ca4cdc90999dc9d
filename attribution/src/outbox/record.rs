//! The record of an event in the outbox, with an entry for each endpoint and kind of callback.

use std::collections::BTreeMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::facts::event::{EventTime, SpreadId, TouchKind};
use crate::facts::keys::FactKey;
use crate::rules::build_row;
use crate::rules::row::{CreditedTouch, RejectReason, Row, Status};
use crate::rules::winner::Credit;

/// The name of an endpoint in the settings.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(Arc<str>);

impl EndpointId {
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a hash of the name, by which stores divide due times.
    pub fn digest(&self) -> u64 {
        xxh3_64(self.0.as_bytes())
    }
}

crate::named! {
    /// What a callback reports. Append only, because entries store the index.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum CallbackKind {
        /// To an ad network: an activation is credited to its ad.
        Activation = "activation",
        /// To an ad network: an effect carries the credit of its ad.
        Effect = "effect",
        /// To a webhook, like the others below.
        ActivationAttributed = "activation.attributed",
        /// The credit that was last reported to the endpoint is not the present one.
        ActivationChanged = "activation.changed",
        ActivationRejected = "activation.rejected",
        EffectAttributed = "effect.attributed",
    }
}

impl CallbackKind {
    pub fn is_webhook(self) -> bool {
        !matches!(self, Self::Activation | Self::Effect)
    }

    pub fn is_effect(self) -> bool {
        matches!(self, Self::Effect | Self::EffectAttributed)
    }
}

crate::named! {
    /// Append only, because entries store the index.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum EntryState {
        Pending = "pending",
        Sent = "sent",
        /// The credit moved before it was sent, or a condition of the endpoint excludes it.
        Dropped = "dropped",
        /// Another credit of the event was sent before.
        Withheld = "withheld",
        TooOld = "too_old",
        /// The endpoint refused it, or no attempt is left.
        Dead = "dead",
    }
}

/// The key of an entry. The app is part of the event's key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutboxKey {
    pub endpoint: EndpointId,
    pub event: FactKey,
    pub kind: CallbackKind,
}

/// A credit, as far as a callback depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CreditMark {
    /// A hash of status, campaign, touch and reason of rejection.
    pub fingerprint: u64,
    pub status: Status,
    pub spreadid: SpreadId,
}

impl CreditMark {
    pub fn of_row(row: &Row) -> Self {
        let touch = row.touch.as_ref().map(identity);
        Self::new(row.status, row.spreadid, touch, row.reject_reason)
    }

    pub fn of_credit(credit: &Credit) -> Self {
        let touch = credit.touch.as_ref().map(identity);
        Self::new(credit.status, credit.spreadid, touch, credit.reject_reason)
    }

    /// `touch` is the kind and the id of the credited one.
    pub fn new(
        status: Status,
        spreadid: SpreadId,
        touch: Option<(TouchKind, &str)>,
        reject_reason: Option<RejectReason>,
    ) -> Self {
        let fingerprint = build_row::digest(&(status, spreadid, touch, reject_reason));
        Self { fingerprint, status, spreadid }
    }
}

fn identity(touch: &CreditedTouch) -> (TouchKind, &str) {
    (touch.kind, &touch.click_id)
}

/// A credit that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentCredit {
    pub credit: CreditMark,
    pub revision: u32,
    pub at: EventTime,
}

/// How often entries became pending and left that state. `made` is the sum of the others and of the pending entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub made: u64,
    pub sent: u64,
    pub dropped: u64,
    pub withheld: u64,
    pub too_old: u64,
    pub dead: u64,
}

/// The tally of each endpoint.
pub type Counts = BTreeMap<EndpointId, Tally>;

impl Tally {
    /// Returns the number of pending entries.
    pub fn pending(&self) -> u64 {
        self.made.saturating_sub(self.finished())
    }

    /// Returns the number of times that an entry was finished.
    pub fn finished(&self) -> u64 {
        let Self { made: _, sent, dropped, withheld, too_old, dead } = *self;
        [sent, dropped, withheld, too_old, dead].into_iter().fold(0, u64::saturating_add)
    }

    pub fn add(&mut self, other: &Self) {
        for (sum, number) in self.numbers_mut().into_iter().zip(other.numbers()) {
            *sum = sum.saturating_add(number);
        }
    }

    /// Returns what was added to `before`, which is an earlier tally of the same entries.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut added = *self;
        for (number, before) in added.numbers_mut().into_iter().zip(before.numbers()) {
            *number = number.saturating_sub(before);
        }
        added
    }

    /// Returns all numbers, in the order in which they are stored.
    pub fn numbers(&self) -> [u64; 6] {
        [self.made, self.sent, self.dropped, self.withheld, self.too_old, self.dead]
    }

    pub fn numbers_mut(&mut self) -> [&mut u64; 6] {
        let Self { made, sent, dropped, withheld, too_old, dead } = self;
        [made, sent, dropped, withheld, too_old, dead]
    }

    pub(super) fn count(&mut self, state: EntryState) {
        let number = match state {
            EntryState::Pending => &mut self.made,
            EntryState::Sent => &mut self.sent,
            EntryState::Dropped => &mut self.dropped,
            EntryState::Withheld => &mut self.withheld,
            EntryState::TooOld => &mut self.too_old,
            EntryState::Dead => &mut self.dead,
        };
        *number = number.saturating_add(1);
    }
}

/// A callback about an event to an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEntry {
    pub endpoint: EndpointId,
    pub kind: CallbackKind,
    pub state: EntryState,
    /// The credit to report, which is compared with the present one, and the row's revision with which it came.
    pub credit: CreditMark,
    pub revision: u32,
    /// When a pending entry is to be settled next. While an attempt is in progress, this is the end of its lease.
    pub due: EventTime,
    /// No first attempt is made after this time.
    pub expires: EventTime,
    /// The number of attempts that have begun.
    pub attempt: u32,
    /// How often it had been sent when it was made to report this credit, which tells callbacks about one credit apart.
    pub sent_before: u64,
    /// What was last sent, even if the entry has become pending again.
    pub sent: Option<SentCredit>,
    /// What the endpoint may have taken, and when that attempt began: it is in progress, or its outcome is not known.
    pub maybe_sent: Option<SentCredit>,
    /// When the state last changed.
    pub changed: EventTime,
    pub tally: Tally,
    /// What the last attempt has led to, with its request, as people may see it: it has no device id and no token.
    pub note: Box<str>,
}

impl OutboxEntry {
    pub fn is_pending(&self) -> bool {
        self.state == EntryState::Pending
    }

    pub fn is_due(&self, now: EventTime) -> bool {
        self.is_pending() && self.due <= now
    }
}

fn last(sent: &SentCredit) -> (u32, EventTime) {
    (sent.revision, sent.at)
}

/// The entries of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRecord {
    pub event: FactKey,
    /// Sorted by endpoint and kind, each pair once.
    pub entries: Vec<OutboxEntry>,
}

impl OutboxRecord {
    pub fn new(event: FactKey) -> Self {
        Self { event, entries: Vec::new() }
    }

    pub fn entry(&self, endpoint: &EndpointId, kind: CallbackKind) -> Option<&OutboxEntry> {
        self.position(endpoint, kind).ok().and_then(|index| self.entries.get(index))
    }

    pub fn key_of(&self, entry: &OutboxEntry) -> OutboxKey {
        OutboxKey { endpoint: entry.endpoint.clone(), event: self.event, kind: entry.kind }
    }

    /// Returns when the first pending entry is due; `None` if none is pending.
    pub fn due(&self) -> Option<EventTime> {
        let pending = self.entries.iter().filter(|entry| entry.is_pending());
        pending.map(|entry| entry.due).min()
    }

    /// Returns when the first pending entry of each endpoint is due.
    pub fn dues(&self) -> impl Iterator<Item = (&EndpointId, EventTime)> {
        let by_endpoint = self.entries.chunk_by(|one, next| one.endpoint == next.endpoint);
        by_endpoint.filter_map(|entries| {
            let pending = entries.iter().filter(|entry| entry.is_pending());
            pending.min_by_key(|entry| entry.due).map(|entry| (&entry.endpoint, entry.due))
        })
    }

    /// Returns when the first pending entry of an endpoint is due.
    pub fn due_of(&self, endpoint: &EndpointId) -> Option<EventTime> {
        self.dues().find(|(of, _)| *of == endpoint).map(|(_, due)| due)
    }

    /// Returns when the record is no longer needed; `None` while an entry is pending.
    pub fn kept_until(&self) -> Option<EventTime> {
        if self.due().is_some() {
            return None;
        }
        let changed = self.entries.iter().map(|entry| entry.changed).max();
        Some(changed.unwrap_or_default().plus(super::KEPT_MS))
    }

    /// Returns the credit of the event that was last sent to the endpoint, as its revision tells.
    pub fn last_sent(&self, endpoint: &EndpointId) -> Option<SentCredit> {
        self.of(endpoint).filter_map(|entry| entry.sent).max_by_key(last)
    }

    /// Returns the credit that was last sent to the endpoint, or may have been, unless it is this one.
    pub fn reported_before(
        &self,
        endpoint: &EndpointId,
        present: CreditMark,
    ) -> Option<SentCredit> {
        let is_other = |sent: &SentCredit| sent.credit.fingerprint != present.fingerprint;
        let sent = self.last_sent(endpoint).filter(is_other);
        let maybe_sent = self.of(endpoint).filter_map(|entry| entry.maybe_sent).filter(is_other);
        sent.or_else(|| maybe_sent.max_by_key(last))
    }

    fn of(&self, endpoint: &EndpointId) -> impl Iterator<Item = &OutboxEntry> {
        self.entries.iter().filter(move |entry| entry.endpoint == *endpoint)
    }

    /// Returns the tallies of the entries by endpoint.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for entry in &self.entries {
            counts.entry(entry.endpoint.clone()).or_default().add(&entry.tally);
        }
        counts
    }

    pub(super) fn position(
        &self,
        endpoint: &EndpointId,
        kind: CallbackKind,
    ) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| (&entry.endpoint, entry.kind).cmp(&(endpoint, kind)))
    }
}
