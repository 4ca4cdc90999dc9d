//! The state of the registry, for readiness and metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::Mutex;

use super::response::{Failure, FailureKind, Schema};

config::describe_metrics! {
    /// Requests to the schema registry, by outcome.
    describe_counter REQUESTS = "adtrail_registry_requests_total";
    /// Schemas that are being fetched while records wait for them.
    describe_gauge WAITING = "adtrail_registry_waiting_schemas";
    /// 1 if any URL of the schema registry answered the last request.
    describe_gauge UP = "adtrail_registry_up";
}

attribution::named! {
    /// The outcome of a request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RegistryOutcome {
        /// The registry returned a schema.
        Found = "found",
        /// There is no such schema.
        Unknown = "unknown",
        /// The schema is neither Avro nor JSON Schema, or too long.
        Unusable = "unusable",
        /// The registry rejected the request: the login or the URL is wrong.
        Refused = "refused",
        /// No response, a server error or a malformed response.
        Failed = "failed",
    }
}

impl RegistryOutcome {
    pub(super) fn of(outcome: &Result<Schema, Failure>) -> Self {
        match outcome.as_ref().map_err(|failure| failure.kind) {
            Ok(_) => Self::Found,
            Err(FailureKind::Unknown) => Self::Unknown,
            Err(FailureKind::Bad) => Self::Unusable,
            Err(FailureKind::Refused) => Self::Refused,
            Err(FailureKind::Outage | FailureKind::NoResponse) => Self::Failed,
        }
    }
}

/// A snapshot of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistryHealth {
    /// True if the last request had a conclusive response, or if it failed for its schema only and an earlier request
    /// had a conclusive response recently. True before the first request.
    pub is_answering: bool,
    /// Schemas that are being fetched.
    pub waiting: usize,
    requests: [u64; RegistryOutcome::ALL.len()],
}

impl RegistryHealth {
    /// Checks whether some records wait for a registry that is down.
    pub fn is_blocking(&self) -> bool {
        !self.is_answering && self.waiting > 0
    }

    /// Returns the number of requests since the start.
    pub fn requests(&self, outcome: RegistryOutcome) -> u64 {
        self.requests[outcome as usize]
    }
}

/// Tracks the state. Only the registry's thread updates it.
pub(super) struct Monitor {
    last: Mutex<LastResults>,
    /// How long a result stands for the state of the registry.
    result_validity: Duration,
    requests: [AtomicU64; RegistryOutcome::ALL.len()],
    counters: [Counter; RegistryOutcome::ALL.len()],
    up: Gauge,
    waiting: Gauge,
}

#[derive(Clone, Copy, Default)]
struct LastResults {
    response: Option<Instant>,
    failure: Option<Instant>,
    /// The last failure that was not specific to one schema.
    general_failure: Option<Instant>,
}

impl LastResults {
    fn is_answering(self, validity: Duration) -> bool {
        let failed_for_one_schema = self.general_failure <= self.response;
        self.failure <= self.response
            || failed_for_one_schema && self.response.is_some_and(|at| at.elapsed() < validity)
    }
}

impl Monitor {
    /// Registers the metrics with the installed recorder.
    pub fn new(result_validity: Duration) -> Self {
        describe();
        let counters =
            RegistryOutcome::ALL.map(|outcome| counter!(REQUESTS, "outcome" => outcome.name()));
        counters.iter().for_each(|counter| counter.increment(0));
        let (up, waiting) = (gauge!(UP), gauge!(WAITING));
        up.set(1.0);
        waiting.set(0.0);
        Self {
            last: Mutex::default(),
            result_validity,
            requests: RegistryOutcome::ALL.map(|_| AtomicU64::new(0)),
            counters,
            up,
            waiting,
        }
    }

    pub fn count(&self, outcome: RegistryOutcome) {
        self.requests[outcome as usize].fetch_add(1, Ordering::Relaxed);
        self.counters[outcome as usize].increment(1);
    }

    /// Records the result of a request that tried all URLs; a response from any of them is enough.
    pub fn record(&self, failure: Option<&Failure>) {
        let mut last = self.last.lock();
        let now = Some(Instant::now());
        match failure.filter(|failure| failure.is_transient()) {
            None => last.response = now,
            Some(failure) if failure.kind == FailureKind::Outage => last.failure = now,
            Some(_) => (last.failure, last.general_failure) = (now, now),
        }
        self.up.set(f64::from(u8::from(last.is_answering(self.result_validity))));
    }

    pub fn is_answering(&self) -> bool {
        self.last.lock().is_answering(self.result_validity)
    }

    /// Checks whether the registry failed recently, so that a schema cached on disk is used without trying again.
    pub fn has_failed_recently(&self) -> bool {
        let last = *self.last.lock();
        !last.is_answering(self.result_validity)
            && last.general_failure.is_some_and(|at| at.elapsed() < self.result_validity)
    }

    pub fn set_waiting(&self, waiting: usize) {
        self.waiting.set(waiting as f64);
    }

    pub fn snapshot(&self, waiting: usize) -> RegistryHealth {
        let requests = RegistryOutcome::ALL
            .map(|outcome| self.requests[outcome as usize].load(Ordering::Relaxed));
        RegistryHealth { is_answering: self.is_answering(), waiting, requests }
    }
}
