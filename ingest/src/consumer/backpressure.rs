//! Times in which no record may be polled: dead letters are not acknowledged, batches not taken.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;

use super::batch::Batch;
use super::offset_commits::Commits;
use super::shutdown::Shutdown;
use crate::kafka::clients::Consumer;
use crate::kafka::error::IngestError;
use crate::kafka::statistics::Statistics;
use crate::timing::Timing;

const STALL_PAUSE: Duration = Duration::from_millis(2);
const STALL_PAUSE_MAX: Duration = Duration::from_millis(20);

/// A time in which no record may be polled.
pub struct PollPause<'a> {
    consumer: &'a Consumer,
    commits: &'a mut Commits,
    /// Asks the brokers how much there is to read: else nobody would see that it grows.
    look: &'a dyn Fn(),
    /// Takes what the client tells of itself meanwhile.
    observe: &'a dyn Fn(&Statistics),
    timing: Timing,
    since: Instant,
    looked_at: Instant,
    /// Then the partitions have to be taken up anew.
    pub has_unassigned: bool,
}

impl<'a> PollPause<'a> {
    pub fn new(
        consumer: &'a Consumer,
        commits: &'a mut Commits,
        look: &'a dyn Fn(),
        observe: &'a dyn Fn(&Statistics),
        timing: Timing,
    ) -> Self {
        let now = Instant::now();
        Self {
            consumer,
            commits,
            look,
            observe,
            timing,
            since: now,
            looked_at: now,
            has_unassigned: false,
        }
    }

    /// Does what polling does besides.
    pub fn serve(&mut self) -> Result<(), IngestError> {
        self.commits.serve(self.consumer);
        if self.since.elapsed() < self.timing.poll_pause_max {
            return Ok(());
        }
        if let Some(statistics) = self.consumer.context().take_statistics() {
            (self.observe)(&statistics);
        }
        if self.looked_at.elapsed() >= self.timing.partition_check_interval {
            (self.look)();
            self.looked_at = Instant::now();
        }
        if !self.has_unassigned {
            self.consumer.unassign().map_err(IngestError::Client)?;
            self.has_unassigned = true;
        }
        match self.consumer.poll(Duration::ZERO) {
            Some(Err(error)) => refuse_fatal(&error),
            // A record that still came is read again.
            Some(Ok(_)) | None => Ok(()),
        }
    }
}

/// Hands a batch on; waits while the queue is full. Whether it was: it is dropped if its partitions
/// are taken away meanwhile. A receiver that is gone is an error, unless all are stopping.
pub fn send(
    batches: &SyncSender<Batch>,
    mut batch: Batch,
    shutdown: &Shutdown,
    stall: &mut PollPause<'_>,
) -> Result<bool, IngestError> {
    loop {
        match batches.try_send(batch) {
            Ok(()) => return Ok(true),
            Err(TrySendError::Full(unsent)) => batch = unsent,
            Err(TrySendError::Disconnected(_)) if shutdown.is_requested() => return Ok(false),
            Err(TrySendError::Disconnected(_)) => return Err(IngestError::NoReceiver),
        }
        stall.serve()?;
        if stall.consumer.context().has_changed() {
            return Ok(false);
        }
        // The longer it has taken, the longer it will take.
        let pause = stall.since.elapsed() / 16;
        thread::sleep(pause.clamp(STALL_PAUSE, STALL_PAUSE_MAX));
    }
}

/// Whether the client itself goes on after the error.
pub fn refuse_fatal(error: &KafkaError) -> Result<(), IngestError> {
    match error {
        KafkaError::MessageConsumptionFatal(_) => Err(IngestError::Fatal(error.clone())),
        _ => Ok(()),
    }
}
