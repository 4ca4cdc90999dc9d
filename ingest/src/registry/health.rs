//! How the registry is doing, for probes and metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::Mutex;

use super::response::{Failure, Schema};

config::describe_metrics! {
    /// Requests to the schema registry, by outcome.
    describe_counter REQUESTS = "adtrail_registry_requests_total";
    /// Schemas that were asked for and are not settled: records wait.
    describe_gauge WAITING = "adtrail_registry_waiting_schemas";
    /// 1 if any URL of the schema registry answered the last request.
    describe_gauge UP = "adtrail_registry_up";
}

attribution::named! {
    /// What came of a request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RegistryOutcome {
        /// A schema.
        Found = "found",
        /// There is no such schema.
        Unknown = "unknown",
        /// A schema of another type than Avro, or too long.
        Unusable = "unusable",
        /// A setting is wrong: login, path, redirect.
        Refused = "refused",
        /// No answer, or not one of a registry in good health.
        Failed = "failed",
    }
}

impl RegistryOutcome {
    pub(super) fn of(outcome: &Result<Schema, Failure>) -> Self {
        match outcome {
            Ok(_) => Self::Found,
            Err(Failure::Unknown(_)) => Self::Unknown,
            Err(Failure::Bad(_)) => Self::Unusable,
            Err(Failure::Refused(_)) => Self::Refused,
            Err(Failure::Outage(_) | Failure::Silence(_)) => Self::Failed,
        }
    }
}

/// At one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistryHealth {
    /// Whether something was said about the last schema asked for, or about another one not long
    /// before. True before the first.
    pub is_answering: bool,
    /// Schemas that were asked for and are not settled.
    pub waiting: usize,
    requests: [u64; RegistryOutcome::ALL.len()],
}

impl RegistryHealth {
    /// Then nothing goes on for some records.
    pub fn is_needed_and_down(&self) -> bool {
        !self.is_answering && self.waiting > 0
    }

    /// Requests since the start.
    pub fn requests(&self, outcome: RegistryOutcome) -> u64 {
        self.requests[outcome as usize]
    }
}

/// Written by the registry's thread.
pub(super) struct Monitor {
    last: Mutex<Last>,
    /// How long ago something that has just happened can be.
    just: Duration,
    requests: [AtomicU64; RegistryOutcome::ALL.len()],
    counters: [Counter; RegistryOutcome::ALL.len()],
    up: Gauge,
    waiting: Gauge,
}

#[derive(Clone, Copy, Default)]
struct Last {
    answer: Option<Instant>,
    failure: Option<Instant>,
    /// That was not about one schema.
    silence: Option<Instant>,
}

impl Last {
    fn is_answering(self, just: Duration) -> bool {
        let is_of_one = self.silence <= self.answer;
        self.failure <= self.answer
            || is_of_one && self.answer.is_some_and(|at| at.elapsed() < just)
    }
}

impl Monitor {
    /// Registers everything with the recorder that is installed.
    pub fn new(just: Duration) -> Self {
        describe();
        let counters =
            RegistryOutcome::ALL.map(|outcome| counter!(REQUESTS, "outcome" => outcome.name()));
        counters.iter().for_each(|counter| counter.increment(0));
        let (up, waiting) = (gauge!(UP), gauge!(WAITING));
        up.set(1.0);
        waiting.set(0.0);
        Self {
            last: Mutex::default(),
            just,
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

    /// Takes what all URLs together came to: one that answers is enough.
    pub fn take(&self, failure: Option<&Failure>) {
        let mut last = self.last.lock();
        let now = Some(Instant::now());
        match failure.filter(|failure| failure.may_pass()) {
            None => last.answer = now,
            Some(Failure::Outage(_)) => last.failure = now,
            Some(_) => (last.failure, last.silence) = (now, now),
        }
        self.up.set(f64::from(u8::from(last.is_answering(self.just))));
    }

    pub fn is_answering(&self) -> bool {
        self.last().is_answering(self.just)
    }

    /// Whether there is no use in trying right now, where there is something else to go by.
    pub fn has_just_failed(&self) -> bool {
        let last = self.last();
        !last.is_answering(self.just) && last.silence.is_some_and(|at| at.elapsed() < self.just)
    }

    fn last(&self) -> Last {
        *self.last.lock()
    }

    pub fn set_waiting(&self, waiting: usize) {
        self.waiting.set(waiting as f64);
    }

    pub fn at_present(&self, waiting: usize) -> RegistryHealth {
        let requests = RegistryOutcome::ALL
            .map(|outcome| self.requests[outcome as usize].load(Ordering::Relaxed));
        RegistryHealth { is_answering: self.is_answering(), waiting, requests }
    }
}
