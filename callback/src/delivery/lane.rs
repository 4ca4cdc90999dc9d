//! The callbacks of one endpoint: claims what is due, sends some at a time, and keeps what became of each.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};

use super::gate::REST_MS_MAX;
use super::outbox_thread::OutboxThread;
use super::queue::{Claimed, Claims, Finished, Outcome, Queue, QueueError};
use super::sender::{Done, Pause, Sender};
use crate::endpoint::Endpoint;
use crate::error::CallbackError;
use crate::metrics;

pub(super) struct Lane<Q: Queue> {
    endpoint: Arc<Endpoint>,
    sender: Arc<Sender>,
    queue: Arc<Q>,
    outbox_thread: OutboxThread,
    in_flight: JoinSet<(Q::Key, Done)>,
    /// The host takes nothing until then.
    paused_until_ms: i64,
    /// How many callbacks were postponed by the rates of their hosts since one was not.
    postponed: usize,
}

/// A claimed callback, and until when it waits for its activation.
type Waiting<K> = (Claimed<K>, Option<i64>);

/// What was claimed, whether there may be more, and why the outbox does not say of an effect until when it waits.
type WaitingClaims<K> = (Vec<Waiting<K>>, bool, Option<QueueError>);

impl<Q: Queue> Lane<Q> {
    /// # Errors
    /// If the thread of the outbox cannot be prepared.
    pub fn new(
        endpoint: Arc<Endpoint>,
        sender: Arc<Sender>,
        queue: Arc<Q>,
    ) -> Result<Self, CallbackError> {
        let (outbox_thread, in_flight) = (OutboxThread::new()?, JoinSet::new());
        let (paused_until_ms, postponed) = (i64::MIN, 0);
        Ok(Self { endpoint, sender, queue, outbox_thread, in_flight, paused_until_ms, postponed })
    }

    /// # Errors
    /// If a task has ended with a panic.
    pub async fn run(mut self, mut stopped: watch::Receiver<bool>) -> Result<(), CallbackError> {
        let poll_interval = self.sender.timing().poll_interval;
        let mut next_claim = Instant::now();
        while !*stopped.borrow() {
            if Instant::now() >= next_claim && self.may_claim() {
                if self.start_due().await? {
                    // Outcomes are kept although there is more: their leases end.
                    if let Some(ended) = self.in_flight.try_join_next() {
                        self.finish(ended).await?;
                    }
                    continue;
                }
                next_claim = Instant::now() + poll_interval;
            }
            tokio::select! {
                changed = stopped.changed() => if changed.is_err() { break },
                Some(ended) = self.in_flight.join_next() => self.finish(ended).await?,
                () = sleep(poll_interval) => {}
            }
        }
        self.end().await
    }

    /// Sends all that is due now, and returns once all of it is finished.
    ///
    /// # Errors
    /// If a task has ended with a panic.
    #[cfg(test)]
    pub async fn drain(&mut self) -> Result<(), CallbackError> {
        loop {
            let has_more = self.may_claim() && self.start_due().await?;
            match self.in_flight.join_next().await {
                Some(ended) => self.finish(ended).await?,
                None if has_more => {}
                None => return Ok(()),
            }
        }
    }

    async fn end(&mut self) -> Result<(), CallbackError> {
        while let Some(ended) = self.in_flight.join_next().await {
            self.finish(ended).await?;
        }
        Ok(())
    }

    /// Claims are made once half of the requests have ended, so that each has several callbacks.
    fn may_claim(&self) -> bool {
        let pause_ms = self.paused_until_ms.saturating_sub(self.sender.now_ms());
        // No pause is longer, unless the clock was set back.
        let is_paused = (1..=REST_MS_MAX).contains(&pause_ms);
        self.in_flight.len() * 2 <= self.in_flight_max() && !is_paused
    }

    fn in_flight_max(&self) -> usize {
        usize::try_from(self.endpoint.in_flight_max()).unwrap_or(usize::MAX)
    }

    /// Claims what is due, and begins to send it. Returns true if there may be more.
    async fn start_due(&mut self) -> Result<bool, CallbackError> {
        let limit = self.in_flight_max() - self.in_flight.len();
        let (claimed, has_more, failure) = match self.claim(limit).await? {
            Ok(claims) => claims,
            Err(error) => {
                self.outbox_failed("claim", &error);
                return Ok(false);
            }
        };
        if let Some(error) = failure {
            self.outbox_failed("claim", &error);
        }
        let has_more = has_more || claimed.len() >= limit;
        let mut waiting = Vec::new();
        for (claimed, activation_ms) in claimed {
            if let Some(activation_ms) = activation_ms {
                let wait_ms = i64::try_from(self.sender.timing().activation_wait.as_millis());
                let least_ms = self.sender.now_ms().saturating_add(wait_ms.unwrap_or(i64::MAX));
                let due_ms = activation_ms.max(least_ms);
                let outcome = Outcome::Postponed { due_ms };
                waiting.push((claimed.key, Finished { outcome, attempt: None }));
                continue;
            }
            let (sender, endpoint) = (self.sender.clone(), self.endpoint.clone());
            self.in_flight.spawn(async move {
                let done = sender.send(&endpoint, &claimed.event, claimed.attempts).await;
                (claimed.key, done)
            });
        }
        self.keep(waiting).await?;
        Ok(has_more)
    }

    async fn claim(
        &self,
        limit: usize,
    ) -> Result<Result<WaitingClaims<Q::Key>, QueueError>, JoinError> {
        let (queue, endpoint) = (self.queue.clone(), self.endpoint.clone());
        let (now_ms, lease) = (self.sender.now_ms(), self.sender.timing().lease);
        let work = move || {
            let Claims { claimed, has_more } =
                queue.claim(endpoint.name(), now_ms, limit, lease)?;
            let (waiting, failure) = with_waits(&*queue, claimed, now_ms);
            Ok((waiting, has_more, failure))
        };
        self.outbox_thread.run(work).await
    }

    /// Keeps what became of a callback, and of all others that have ended meanwhile.
    async fn finish(
        &mut self,
        ended: Result<(Q::Key, Done), JoinError>,
    ) -> Result<(), CallbackError> {
        let mut finished = Vec::new();
        let mut next = Some(ended);
        while let Some(ended) = next {
            let (key, Done { finished: of, pause }) = ended?;
            self.note_pause(pause);
            finished.push((key, of));
            next = self.in_flight.try_join_next();
        }
        self.keep(finished).await
    }

    /// Pauses with the host. If clicks name the hosts, one that is closed must not delay the others: its callbacks leave
    /// the start of the queue until it opens, however many there are. Hosts at their rates would get them back at once,
    /// so that the lane pauses after many were postponed and none was not.
    fn note_pause(&mut self, pause: Option<Pause>) {
        let Some(Pause { until_ms, is_closed }) = pause else {
            self.postponed = 0;
            return;
        };
        if self.endpoint.has_hosts_of_clicks() {
            self.postponed = self.postponed.saturating_add(usize::from(!is_closed));
            if is_closed || self.postponed < self.in_flight_max() {
                return;
            }
        }
        self.paused_until_ms = self.paused_until_ms.max(until_ms);
    }

    async fn keep(&self, finished: Vec<(Q::Key, Finished)>) -> Result<(), CallbackError> {
        if finished.is_empty() {
            return Ok(());
        }
        for (_, finished) in &finished {
            metrics::finished(self.endpoint.name(), finished.outcome);
        }
        let finished = Arc::new(finished);
        let lease_end = Instant::now() + self.sender.timing().lease;
        loop {
            let (queue, of_task) = (self.queue.clone(), finished.clone());
            let Err(error) = self.outbox_thread.run(move || queue.finish(&of_task)).await? else {
                return Ok(());
            };
            self.outbox_failed("finish", &error);
            if Instant::now() >= lease_end {
                // They are claimed and sent again.
                return Ok(());
            }
            sleep(self.sender.timing().poll_interval).await;
        }
    }

    fn outbox_failed(&self, operation: &'static str, error: &QueueError) {
        metrics::outbox_failed(operation);
        let endpoint = self.endpoint.name();
        tracing::warn!(endpoint, operation, %error, "the outbox of callbacks failed, retrying");
    }
}

/// Adds to each effect until when it waits. If the outbox does not say that, it waits, so that it has had no attempt.
fn with_waits<Q: Queue>(
    queue: &Q,
    claimed: Vec<Claimed<Q::Key>>,
    now_ms: i64,
) -> (Vec<Waiting<Q::Key>>, Option<QueueError>) {
    let (mut waiting, mut failure) = (Vec::with_capacity(claimed.len()), None);
    for claimed in claimed {
        let activation_ms = match claimed.event.kind.is_effect() {
            true => queue.pending_activation_ms(&claimed.key),
            false => Ok(None),
        };
        let activation_ms = activation_ms.unwrap_or_else(|error| {
            failure = Some(error);
            Some(now_ms)
        });
        waiting.push((claimed, activation_ms));
    }
    (waiting, failure)
}
