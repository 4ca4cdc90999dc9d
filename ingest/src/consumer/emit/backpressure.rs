//! Backpressure: no record is polled while dead letters are unacknowledged or the batch queue is full.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;

use super::super::read::batch::Batch;
use super::super::shutdown::Shutdown;
use super::offset_commits::Commits;
use crate::kafka::clients::Consumer;
use crate::kafka::clients::statistics::Statistics;
use crate::kafka::error::IngestError;
use crate::timing::Timing;

const SEND_RETRY_MIN: Duration = Duration::from_millis(2);
const SEND_RETRY_MAX: Duration = Duration::from_millis(20);

/// A period in which no record is polled.
pub struct PollPause<'a> {
    consumer: &'a Consumer,
    commits: &'a mut Commits,
    /// Fetches the watermarks from the brokers, so that the lag in health and metrics stays current.
    refresh_watermarks: &'a dyn Fn(),
    /// Receives librdkafka's statistics.
    observe: &'a dyn Fn(&Statistics),
    timing: Timing,
    since: Instant,
    refreshed_at: Instant,
    /// If true, the partitions must be assigned again after the pause.
    pub has_unassigned: bool,
}

impl<'a> PollPause<'a> {
    pub fn new(
        consumer: &'a Consumer,
        commits: &'a mut Commits,
        refresh_watermarks: &'a dyn Fn(),
        observe: &'a dyn Fn(&Statistics),
        timing: Timing,
    ) -> Self {
        let now = Instant::now();
        Self {
            consumer,
            commits,
            refresh_watermarks,
            observe,
            timing,
            since: now,
            refreshed_at: now,
            has_unassigned: false,
        }
    }

    /// Does the other work of a poll. After `poll_pause_max` it also unassigns all partitions and polls, so that
    /// librdkafka can call its callbacks.
    pub fn serve(&mut self) -> Result<(), IngestError> {
        self.commits.serve(self.consumer);
        if self.since.elapsed() < self.timing.poll_pause_max {
            return Ok(());
        }
        if let Some(statistics) = self.consumer.context().take_statistics() {
            (self.observe)(&statistics);
        }
        if self.refreshed_at.elapsed() >= self.timing.partition_check_interval {
            (self.refresh_watermarks)();
            self.refreshed_at = Instant::now();
        }
        if !self.has_unassigned {
            self.consumer.unassign().map_err(IngestError::Client)?;
            self.has_unassigned = true;
        }
        match self.consumer.poll(Duration::ZERO) {
            Some(Err(error)) => check_fatal(&error),
            // A record that was fetched before is fetched again after the next assignment.
            Some(Ok(_)) | None => Ok(()),
        }
    }
}

/// Sends a batch, and waits while the queue is full. Returns false if the batch is dropped because its partitions were
/// revoked meanwhile. A disconnected receiver is an error, except during a shutdown.
pub fn send(
    batches: &SyncSender<Batch>,
    mut batch: Batch,
    shutdown: &Shutdown,
    pause: &mut PollPause<'_>,
) -> Result<bool, IngestError> {
    loop {
        match batches.try_send(batch) {
            Ok(()) => return Ok(true),
            Err(TrySendError::Full(unsent)) => batch = unsent,
            Err(TrySendError::Disconnected(_)) if shutdown.is_requested() => return Ok(false),
            Err(TrySendError::Disconnected(_)) => return Err(IngestError::NoReceiver),
        }
        pause.serve()?;
        if pause.consumer.context().has_changed() {
            return Ok(false);
        }
        // The delay grows with the time waited so far.
        let delay = pause.since.elapsed() / 16;
        thread::sleep(delay.clamp(SEND_RETRY_MIN, SEND_RETRY_MAX));
    }
}

/// Returns an error if the client cannot recover from `error` by itself.
pub fn check_fatal(error: &KafkaError) -> Result<(), IngestError> {
    match error {
        KafkaError::MessageConsumptionFatal(_) => Err(IngestError::Fatal(error.clone())),
        _ => Ok(()),
    }
}
