//! The outbox of the store, as delivery needs it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use attribution::facts::event::{EventTime, Pid};
use attribution::facts::keys::FactKey;
use attribution::outbox::port::{self, Claim, Outbox};
use attribution::outbox::record::{
    CallbackKind, EndpointId, OutboxEntry, OutboxKey, OutboxRecord, SentCredit,
};
use attribution::outbox::settle::{Settlement, settle};
use attribution::rules::policy::{HOUR_MS, Policy};
use attribution::rules::row::Status;
use callback::{
    CallbackEvent, Claimed, Claims, Clock, Endpoint, Finished, Outcome, Queue, QueueError,
};
use parking_lot::Mutex;
use store::StoreError;
use store::outbox::StoredOutbox;
use store::reader::Reader;

use super::decided::{self, Decided, Present, millis};
use super::earlier::earlier_effects;
use super::event::{Related, Report, holder_key};
use super::note::note;

/// How long the effects of an activation whose attempt is in progress wait before they look again: a fraction of the
/// lease.
const WAITS_PER_LEASE: u64 = 12;
/// How often one claim looks for more, if what is due is settled without being sent: a shutdown waits for it.
const READS_PER_CLAIM_MAX: usize = 16;
/// How long a callback waits for its decision, which another worker is about to write.
const ROW_WAIT_MS: u64 = 5_000;
/// What has waited for longer than this and `settle` has become too old by waiting. Else its event was about to be too
/// old when it was decided, as some of a backfill are.
const WAITED_MIN_MS: u64 = 60_000;
/// A row that is missing for longer has expired.
const ROW_WAIT_MAX_MS: u64 = HOUR_MS;

/// The outbox of a store, with a handle for each endpoint.
pub struct StoreQueue {
    lanes: BTreeMap<Box<str>, Lane>,
    reader: Reader,
    policy: ArcSwap<Policy>,
    clock: Clock,
    lease_ms: u64,
    /// For endpoints that the settings do not have.
    others: Mutex<StoredOutbox>,
}

struct Lane {
    id: EndpointId,
    endpoint: Arc<Endpoint>,
    outbox: Mutex<StoredOutbox>,
}

/// A callback that was claimed.
#[derive(Debug, Clone)]
pub struct Key {
    claim: Claim,
    /// The activation whose credit an effect carries.
    activation: Option<FactKey>,
}

#[cfg(test)]
impl Key {
    pub fn event(&self) -> FactKey {
        self.claim.key.event
    }
}

/// What is to be done with the entries of one read.
#[derive(Default)]
struct Settled {
    finished: Vec<(Claim, port::Outcome)>,
    /// Entries to be sent.
    claimed: Vec<OutboxKey>,
    /// What the endpoint was last notified of, or may have been, by event.
    reported_before: HashMap<FactKey, SentCredit>,
    /// How many have become too old by waiting.
    too_old: u64,
}

impl StoreQueue {
    pub fn new(
        reader: &Reader,
        policy: &Arc<Policy>,
        endpoints: &[Arc<Endpoint>],
        clock: Clock,
    ) -> Self {
        let lane = |endpoint: &Arc<Endpoint>| {
            let (id, outbox) = (EndpointId::new(endpoint.name()), Mutex::new(reader.outbox()));
            (endpoint.name().into(), Lane { id, endpoint: Arc::clone(endpoint), outbox })
        };
        Self {
            lanes: endpoints.iter().map(lane).collect(),
            reader: reader.clone(),
            policy: ArcSwap::new(Arc::clone(policy)),
            clock,
            lease_ms: 0,
            others: Mutex::new(reader.outbox()),
        }
    }

    /// Sets the lease of claims.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        Self { lease_ms, ..self }
    }

    /// Describes decisions by these settings of apps and campaigns from now on.
    pub fn set_policy(&self, policy: Arc<Policy>) {
        self.policy.store(policy);
    }

    /// Calls `work` with the outbox, which no lane uses.
    pub fn with_outbox<R>(&self, work: impl FnOnce(&mut StoredOutbox) -> R) -> R {
        work(&mut self.others.lock())
    }

    pub fn has_endpoint(&self, endpoint: &EndpointId) -> bool {
        self.lanes.contains_key(endpoint.as_str())
    }

    pub fn now(&self) -> EventTime {
        time((self.clock)())
    }

    fn lane(&self, endpoint: &str) -> Result<&Lane, QueueError> {
        let lane = self.lanes.get(endpoint);
        lane.ok_or_else(|| format!("the outbox has no lane for endpoint {endpoint}").into())
    }

    /// Reads this many records that are due, and claims of them. Returns whether there may be more.
    fn claim_more(
        &self,
        lane: &Lane,
        now: EventTime,
        count: usize,
        lease_ms: u64,
        claimed: &mut Vec<Claimed<Key>>,
    ) -> Result<bool, StoreError> {
        let records = lane.outbox.lock().due(&lane.id, now, count)?;
        let has_progress =
            !records.is_empty() && self.claim_from(lane, &records, now, lease_ms, claimed)?;
        Ok(has_progress && records.len() >= count)
    }

    /// Settles and claims entries of records that are due, and adds those to be sent. Returns whether there were any.
    fn claim_from(
        &self,
        lane: &Lane,
        records: &[OutboxRecord],
        now: EventTime,
        lease_ms: u64,
        claimed: &mut Vec<Claimed<Key>>,
    ) -> Result<bool, StoreError> {
        let (mut reader, policy) = (self.reader.clone(), self.policy.load_full());
        let events: Vec<FactKey> = records.iter().map(|record| record.event).collect();
        let mut present = decided::read(&mut reader, &policy, &events)?;
        for (event, present) in events.iter().zip(&mut present) {
            self.await_reload(lane, &policy, event.pid, present);
        }
        let mut settled = Settled::default();
        for (record, present) in records.iter().zip(&present) {
            settled.add(lane, record, present, now);
        }
        warn_of_unreadable(lane, &present);
        let claims = {
            let mut outbox = lane.outbox.lock();
            outbox.finish(&settled.finished, now)?;
            callback::count_too_old(lane.endpoint.name(), settled.too_old);
            config::crash_point!("callback-settled");
            outbox.claim(&settled.claimed, now, lease_ms)?
        };
        config::crash_point!("callback-claimed");
        let present: HashMap<FactKey, Present> = events.into_iter().zip(present).collect();
        let to_send = self.to_send(lane, &claims, &present, &settled, now);
        match to_send {
            Ok(to_send) => claimed.extend(to_send),
            Err(error) => {
                // An attempt begins with a request.
                let postponed: Vec<_> =
                    claims.into_iter().map(|claim| postpone(claim, now)).collect();
                lane.outbox.lock().finish(&postponed, now)?;
                return Err(error);
            }
        }
        Ok(!settled.finished.is_empty() || !settled.claimed.is_empty())
    }

    /// Describes the claimed decisions to the endpoint. Those that have changed meanwhile are postponed.
    fn to_send(
        &self,
        lane: &Lane,
        claims: &[Claim],
        present: &HashMap<FactKey, Present>,
        settled: &Settled,
        now: EventTime,
    ) -> Result<Vec<Claimed<Key>>, StoreError> {
        let (mut reader, policy) = (self.reader.clone(), self.policy.load_full());
        let (mut postponed, mut to_send) = (Vec::new(), Vec::new());
        let (mut claims_to_send, mut about) = (Vec::new(), Vec::new());
        for claim in claims.iter().cloned() {
            match present.get(&claim.key.event) {
                // The decision may have changed since it was read.
                Some(Present::Decided(decided))
                    if decided.mark.fingerprint == claim.credit.fingerprint =>
                {
                    about.push((claim.key.event, &**decided));
                    claims_to_send.push(claim);
                }
                _ => postponed.push(postpone(claim, now)),
            }
        }
        lane.outbox.lock().finish(&postponed, now)?;
        let related = Related::read(&mut reader, about.iter().copied())?;
        for (claim, (event, decided)) in claims_to_send.into_iter().zip(about) {
            let before = settled.reported_before.get(&event).copied();
            let event = match self.event(lane, &policy, &claim, decided, &related, before) {
                Err(StoreError::Corrupt { .. }) => {
                    lane.outbox.lock().finish(&[(claim, unreadable())], now)?;
                    continue;
                }
                event => event?,
            };
            let attempts = claim.attempt.saturating_sub(1);
            let activation = holder_key(claim.key.event.pid, &decided.row()?);
            to_send.extend(event.map(|event| {
                let key = Key { claim, activation };
                Claimed { key, attempts, event }
            }));
        }
        Ok(to_send)
    }

    /// Waits with a credit of a campaign that this process does not have. Another one has made the callback, which was
    /// reloaded before.
    fn await_reload(&self, lane: &Lane, policy: &Policy, pid: Pid, present: &mut Present) {
        let Present::Decided(decided) = present else { return };
        let needs_campaign =
            !lane.endpoint.channels().is_empty() && decided.mark.status == Status::Attributed;
        if needs_campaign
            && matches!(self.reader, Reader::Shared(_))
            && policy.campaign(pid, decided.mark.spreadid).is_none()
        {
            *present = Present::Unwritten;
        }
    }

    /// Describes a decision to the endpoint; `None` if the app has gone from the settings since.
    fn event(
        &self,
        lane: &Lane,
        policy: &Policy,
        claim: &Claim,
        decided: &Decided,
        related: &Related,
        reported_before: Option<SentCredit>,
    ) -> Result<Option<CallbackEvent>, StoreError> {
        let Some(app) = policy.app(claim.key.event.pid) else { return Ok(None) };
        let earlier = if lane.endpoint.needs_earlier() {
            earlier_effects(&mut self.reader.clone(), app, decided)?
        } else {
            Vec::new()
        };
        let channels = lane.endpoint.channels();
        let report = Report { claim, decided, app, reported_before, earlier, channels };
        report.event(related, policy).map(Some)
    }

    /// Describes the present decision on an event to an endpoint, as its first attempt would; `None` if the store does
    /// not have the event, or if the endpoint is not one of the settings.
    ///
    /// # Errors
    /// If the store fails.
    pub fn describe(
        &self,
        endpoint: &str,
        event: FactKey,
        kind: CallbackKind,
    ) -> Result<Option<CallbackEvent>, StoreError> {
        let Some(lane) = self.lanes.get(endpoint) else { return Ok(None) };
        let (mut reader, policy) = (self.reader.clone(), self.policy.load_full());
        let present = decided::read(&mut reader, &policy, &[event])?.pop();
        let Some(Present::Decided(decided)) = present else { return Ok(None) };
        let key = OutboxKey { endpoint: lane.id.clone(), event, kind };
        let claim = Claim {
            key,
            credit: decided.mark,
            revision: 1,
            attempt: 1,
            sent_before: 0,
            at: EventTime::default(),
            maybe_sent_before: None,
        };
        let related = Related::read(&mut reader, std::iter::once((event, &*decided)))?;
        self.event(lane, &policy, &claim, &decided, &related, None)
    }
}

impl Settled {
    /// Adds the entries of the endpoint that are due.
    fn add(&mut self, lane: &Lane, record: &OutboxRecord, present: &Present, now: EventTime) {
        let own = |entry: &&OutboxEntry| entry.endpoint == lane.id && entry.is_due(now);
        for entry in record.entries.iter().filter(own) {
            let mark = match present {
                Present::Gone => None,
                Present::Decided(decided) => Some(decided.mark),
                Present::Unreadable => {
                    self.finished.push((record.claim_of(entry), unreadable()));
                    continue;
                }
                Present::Unwritten => {
                    let waited = now.since(entry.changed).unwrap_or_default();
                    if waited < ROW_WAIT_MAX_MS {
                        let due = now.plus(ROW_WAIT_MS);
                        let outcome = port::Outcome::Later { due };
                        self.finished.push((record.claim_of(entry), outcome));
                        continue;
                    }
                    None
                }
            };
            let outcome = match settle(record, entry, mark, lane.endpoint.late_credit(), now) {
                Settlement::Wait => continue,
                Settlement::Later { due } => port::Outcome::Later { due },
                Settlement::Send => {
                    self.claimed.push(record.key_of(entry));
                    let before = record.reported_before(&lane.id, entry.credit);
                    self.reported_before.extend(before.map(|sent| (record.event, sent)));
                    continue;
                }
                Settlement::Drop => {
                    let is_same =
                        mark.map(|mark| mark.fingerprint) == Some(entry.credit.fingerprint);
                    let note =
                        if is_same { "the endpoint knows it" } else { "the credit has moved" };
                    port::Outcome::Dropped { note: note.into() }
                }
                Settlement::Withhold => port::Outcome::Withheld,
                Settlement::TooOld => {
                    let waited_ms = now.since(entry.changed).unwrap_or_default();
                    let least_ms = lane.endpoint.settle_ms().saturating_add(WAITED_MIN_MS);
                    self.too_old += u64::from(waited_ms > least_ms);
                    port::Outcome::TooOld
                }
            };
            self.finished.push((record.claim_of(entry), outcome));
        }
    }
}

fn postpone(claim: Claim, now: EventTime) -> (Claim, port::Outcome) {
    (claim, port::Outcome::Postponed { due: now.plus(ROW_WAIT_MS) })
}

fn warn_of_unreadable(lane: &Lane, present: &[Present]) {
    let count = present.iter().filter(|of| matches!(of, Present::Unreadable)).count();
    if count > 0 {
        let endpoint = lane.endpoint.name();
        tracing::warn!(endpoint, count, "decisions cannot be read, so their callbacks are dead");
    }
}

/// What becomes of a callback whose decision is damaged. It can be tried again after a repair.
fn unreadable() -> port::Outcome {
    let note = "the decision cannot be read: see adtrail verify".into();
    port::Outcome::Dead { note, maybe_sent: false }
}

fn time(millis: i64) -> EventTime {
    EventTime::from_millis(millis).unwrap_or_default()
}

impl Queue for StoreQueue {
    type Key = Key;

    fn claim(
        &self,
        endpoint: &str,
        now_ms: i64,
        limit: usize,
        lease: Duration,
    ) -> Result<Claims<Key>, QueueError> {
        let (lane, now) = (self.lane(endpoint)?, time(now_ms));
        let lease_ms = u64::try_from(lease.as_millis())?;
        let mut claimed = Vec::new();
        for _ in 0..READS_PER_CLAIM_MAX {
            let open = limit.saturating_sub(claimed.len());
            if open == 0 {
                break;
            }
            match self.claim_more(lane, now, open, lease_ms, &mut claimed) {
                Ok(true) => {}
                Ok(false) => return Ok(Claims { claimed, has_more: false }),
                Err(error) if claimed.is_empty() => return Err(error.into()),
                Err(error) => {
                    let endpoint = lane.endpoint.name();
                    tracing::warn!(endpoint, %error, "the outbox of callbacks failed, retrying");
                    return Ok(Claims { claimed, has_more: false });
                }
            }
        }
        Ok(Claims { claimed, has_more: true })
    }

    fn pending_activation_ms(&self, key: &Key) -> Result<Option<i64>, QueueError> {
        let Some(activation) = key.activation else { return Ok(None) };
        let endpoint = &key.claim.key.endpoint;
        let lane = self.lane(endpoint.as_str())?;
        let record = match lane.outbox.lock().records_of(&[activation]) {
            // It is never sent.
            Err(StoreError::Corrupt { .. }) => None,
            records => records?.pop().flatten(),
        };
        let kinds = [CallbackKind::Activation, CallbackKind::ActivationAttributed];
        let entries = kinds.map(|kind| record.as_ref()?.entry(endpoint, kind));
        let pending = entries.into_iter().flatten().filter(|entry| entry.is_pending());
        let now = self.now();
        let (soon, lease_end) =
            (now.plus(self.lease_ms / WAITS_PER_LEASE), now.plus(self.lease_ms));
        // While an attempt is in progress, the due time is the end of its lease, and it ends much earlier.
        let due = pending.map(|entry| match entry.attempt > 0 && entry.due <= lease_end {
            true => entry.due.min(soon),
            false => entry.due,
        });
        Ok(due.max().map(millis))
    }

    fn finish(&self, finished: &[(Key, Finished)]) -> Result<(), QueueError> {
        config::crash_point!("callback-sent");
        let mut by_endpoint: BTreeMap<&EndpointId, Vec<(Claim, port::Outcome)>> = BTreeMap::new();
        for (key, finished) in finished {
            let outcome = (key.claim.clone(), outcome(finished));
            by_endpoint.entry(&key.claim.key.endpoint).or_default().push(outcome);
        }
        let now = self.now();
        for (endpoint, outcomes) in by_endpoint {
            self.lane(endpoint.as_str())?.outbox.lock().finish(&outcomes, now)?;
        }
        config::crash_point!("callback-finished");
        Ok(())
    }
}

fn outcome(finished: &Finished) -> port::Outcome {
    let note = note(finished.attempt.as_ref());
    let maybe_sent = finished.attempt.as_ref().is_some_and(|attempt| attempt.maybe_sent);
    match finished.outcome {
        Outcome::Sent => port::Outcome::Sent { note },
        Outcome::Dropped => port::Outcome::Dropped { note },
        Outcome::Dead => port::Outcome::Dead { note, maybe_sent },
        Outcome::Retry { due_ms } => port::Outcome::Retry { due: time(due_ms), note, maybe_sent },
        Outcome::Postponed { due_ms } => port::Outcome::Postponed { due: time(due_ms) },
    }
}
