//! Which decisions the endpoints want to know of.

use std::sync::Arc;

use super::record::{CallbackKind, CreditMark, EndpointId};
use crate::facts::event::{EventTime, Pid};
use crate::rules::policy::Policy;
use crate::rules::row::{EventType, Row, Status};
use crate::rules::winner::Credit;

crate::named! {
    /// What happens to a callback if another credit of the event was sent before. No network accepts that an earlier
    /// callback is void.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum LateCredit {
        #[default]
        Withhold = "withhold",
        Send = "send",
    }
}

/// What the rules need to know of an endpoint. An empty list allows everything, except for `kinds`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interest {
    pub endpoint: EndpointId,
    pub apps: Vec<Pid>,
    pub channels: Vec<Box<str>>,
    pub kinds: Vec<CallbackKind>,
    /// The names of effects.
    pub event_names: Vec<Box<str>>,
    /// How long to wait for a correction before a callback is sent.
    pub settle_ms: u64,
    /// The age of an event from which on no first attempt is made, except for changes of what was sent; at most
    /// [`super::MAX_AGE_MS_MAX`].
    pub max_age_ms: u64,
    pub late_credit: LateCredit,
}

/// A callback that an endpoint wants. The store that commits it knows the time of the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCallback {
    pub endpoint: EndpointId,
    pub kind: CallbackKind,
    pub credit: CreditMark,
    /// The revision of the event's row.
    pub revision: u32,
    pub event_time: EventTime,
    pub settle_ms: u64,
    pub max_age_ms: u64,
}

/// The interests of all endpoints.
#[derive(Debug, Clone, Default)]
pub struct Interests {
    all: Vec<Interest>,
    policy: Arc<Policy>,
}

impl Interests {
    pub fn new(all: Vec<Interest>, policy: Arc<Policy>) -> Self {
        Self { all, policy }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn of(&self, endpoint: &EndpointId) -> Option<&Interest> {
        self.all.iter().find(|interest| interest.endpoint == *endpoint)
    }

    /// Returns the callbacks about a decision, with the row that shows it. `before` is the credit that it replaces, of
    /// an activation; without it, the callbacks are those of a new event.
    ///
    /// A callback may be planned again: [`OutboxRecord::plan`](super::record::OutboxRecord::plan) keeps what it knows
    /// of it.
    pub fn plan(&self, before: Option<&Credit>, row: &Row) -> Vec<PlannedCallback> {
        let mut planned = Vec::new();
        if self.all.is_empty() {
            return planned;
        }
        let credit = CreditMark::of_row(row);
        let before = before.map(CreditMark::of_credit);
        let kinds = kinds(row, credit, before);
        if kinds.iter().all(Option::is_none) {
            return planned;
        }
        for interest in self.all.iter().filter(|interest| interest.wants_event(row)) {
            for kind in kinds.into_iter().flatten().filter(|kind| interest.kinds.contains(kind)) {
                // What was sent before decides whether a change is sent, and credit can move on before that.
                if kind == CallbackKind::ActivationChanged || self.wants_channel(interest, row) {
                    planned.push(interest.planned(kind, credit, row));
                }
            }
        }
        planned
    }

    fn wants_channel(&self, interest: &Interest, row: &Row) -> bool {
        let channel = || self.policy.campaign(row.pid, row.spreadid).map(|of| &of.channel);
        interest.channels.is_empty()
            || channel().is_some_and(|channel| interest.channels.contains(channel))
    }
}

impl Interest {
    fn wants_event(&self, row: &Row) -> bool {
        let is_named = || self.event_names.iter().any(|name| **name == *row.event_name);
        (self.apps.is_empty() || self.apps.contains(&row.pid))
            && (row.event_type == EventType::Activation
                || self.event_names.is_empty()
                || is_named())
    }

    fn planned(&self, kind: CallbackKind, credit: CreditMark, row: &Row) -> PlannedCallback {
        PlannedCallback {
            endpoint: self.endpoint.clone(),
            kind,
            credit,
            revision: row.revision,
            event_time: row.event_time,
            settle_ms: self.settle_ms,
            max_age_ms: self.max_age_ms,
        }
    }
}

/// Returns the kinds of callback that a decision can have.
fn kinds(row: &Row, credit: CreditMark, before: Option<CreditMark>) -> [Option<CallbackKind>; 3] {
    if row.event_type == EventType::Effect {
        let is_attributed = credit.status == Status::Attributed;
        let kinds = [CallbackKind::Effect, CallbackKind::EffectAttributed];
        let [network, webhook] = kinds.map(|kind| is_attributed.then_some(kind));
        return [network, webhook, None];
    }
    let has_changed = before.is_some_and(|before| before.fingerprint != credit.fingerprint);
    let changed = has_changed.then_some(CallbackKind::ActivationChanged);
    match credit.status {
        Status::Attributed => {
            [Some(CallbackKind::Activation), Some(CallbackKind::ActivationAttributed), changed]
        }
        Status::Rejected => [None, Some(CallbackKind::ActivationRejected), changed],
        Status::Organic | Status::Unattributed | Status::Duplicate | Status::Orphan => {
            [None, None, changed]
        }
    }
}
