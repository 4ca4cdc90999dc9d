//! Backpressure: no record is polled while dead letters are unacknowledged or the batch queue is full.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;

use super::offset_commits::OffsetCommitter;
use crate::consumer::context::Context;
use crate::consumer::read::batch::Batch;
use crate::consumer::topic_client::TopicClient;
use crate::dead_letters::letter::DeadLetter;
use crate::dead_letters::producer::DeadLetters;
use crate::kafka::assignment;
use crate::kafka::error::{IngestError, check_fatal};

const SEND_RETRY_MIN: Duration = Duration::from_millis(2);
const SEND_RETRY_MAX: Duration = Duration::from_millis(20);

/// A period in which no record is polled.
pub struct PollPause<'a> {
    client: &'a TopicClient,
    committer: &'a mut OffsetCommitter,
    context: &'a Context,
    since: Instant,
    refreshed_at: Instant,
    /// If true, the partitions must be assigned again after the pause.
    pub has_unassigned: bool,
}

impl<'a> PollPause<'a> {
    pub fn new(
        client: &'a TopicClient,
        committer: &'a mut OffsetCommitter,
        context: &'a Context,
    ) -> Self {
        let (since, refreshed_at) = (Instant::now(), Instant::now());
        Self { client, committer, context, since, refreshed_at, has_unassigned: false }
    }

    /// Produces the letters and waits until all are acknowledged. Returns false if partitions were revoked meanwhile,
    /// or if `shutdown_dead_letter_timeout` has passed since a shutdown request.
    pub fn deliver(
        &mut self,
        dead_letters: &DeadLetters,
        letters: &[DeadLetter],
    ) -> Result<bool, IngestError> {
        let (health, timing) = (&self.context.health, self.context.timing);
        let mut stop_at = None;
        let outcome = dead_letters.deliver(letters, || {
            self.serve()?;
            if self.since.elapsed() >= timing.dead_letter_ack_warning_delay {
                dead_letters.warn_unacknowledged(&self.client.consumer, letters);
                health.set_dead_letters_waiting(true);
            }
            if self.context.shutdown.is_requested() {
                stop_at.get_or_insert_with(|| Instant::now() + timing.shutdown_dead_letter_timeout);
            }
            Ok(!self.is_revoked() && stop_at.is_none_or(|stop_at| Instant::now() < stop_at))
        })?;
        health.set_dead_letters_waiting(false);
        Ok(outcome)
    }

    /// Sends a batch, and waits while the queue is full. Returns false if the batch is dropped because its partitions
    /// were revoked meanwhile. A disconnected receiver is an error, except during a shutdown.
    pub fn send(
        &mut self,
        batches: &SyncSender<Batch>,
        mut batch: Batch,
    ) -> Result<bool, IngestError> {
        loop {
            match batches.try_send(batch) {
                Ok(()) => return Ok(true),
                Err(TrySendError::Full(unsent)) => batch = unsent,
                Err(TrySendError::Disconnected(_)) if self.context.shutdown.is_requested() => {
                    return Ok(false);
                }
                Err(TrySendError::Disconnected(_)) => return Err(IngestError::NoReceiver),
            }
            self.serve()?;
            if self.is_revoked() {
                return Ok(false);
            }
            // The delay grows with the time waited so far.
            let delay = self.since.elapsed() / 16;
            thread::sleep(delay.clamp(SEND_RETRY_MIN, SEND_RETRY_MAX));
        }
    }

    fn is_revoked(&self) -> bool {
        self.client.consumer.context().has_pending_rebalance()
    }

    /// Keeps offset commits going. After `poll_pause_max`, also unassigns all partitions and polls, so that librdkafka
    /// can call its callbacks.
    fn serve(&mut self) -> Result<(), IngestError> {
        let (consumer, timing) = (&self.client.consumer, self.context.timing);
        self.committer.poll(consumer);
        if self.since.elapsed() < timing.poll_pause_max {
            return Ok(());
        }
        if let Some(statistics) = consumer.context().take_statistics() {
            self.context.update_connection(consumer, &statistics);
        }
        if self.refreshed_at.elapsed() >= timing.partition_check_interval {
            self.refresh_watermarks();
            self.refreshed_at = Instant::now();
        }
        if !self.has_unassigned {
            consumer.unassign().map_err(IngestError::Client)?;
            self.has_unassigned = true;
        }
        match consumer.poll(Duration::ZERO) {
            Some(Err(error)) => check_fatal(&error),
            // A record that was fetched before is fetched again after the next assignment.
            Some(Ok(_)) | None => Ok(()),
        }
    }

    /// Fetches the watermarks from the brokers, so that the lag in health and metrics stays current.
    fn refresh_watermarks(&self) {
        let TopicClient { consumer, names, .. } = self.client;
        // A client that fetches nothing learns of new leaders only by a metadata request.
        if let Err(unfound) = assignment::find_partitions(consumer, names) {
            tracing::debug!(?unfound, "partitions cannot be looked up");
        }
        self.client.find_watermarks(&self.context.health);
    }
}
