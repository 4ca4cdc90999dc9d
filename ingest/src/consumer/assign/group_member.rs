//! Consumer group membership: reads the assigned partitions from the group's offsets until they are revoked.
//!
//! On a revocation, the unfinished batch is dropped, and the new owner reads its records again. Batches in flight are
//! waited for and their offsets committed, so that few records are read twice.

use rdkafka::consumer::Consumer as _;

use super::super::ConsumerThread;
use super::super::read::low_watermark::LowWatermark;
use crate::kafka::assignment;
use crate::kafka::error::IngestError;
use crate::kafka::offsets::Offsets;
use crate::kafka::partitions::Partitions;
use crate::kafka::rebalance::Rebalance;
use crate::kafka::retry::{Throttle, delays};
use crate::kafka::topics::TopicKind;

impl ConsumerThread {
    pub fn join(&self) -> Result<(), IngestError> {
        let topics = TopicKind::ALL.map(|topic| &**self.names.of(topic));
        self.consumer.subscribe(&topics).map_err(IngestError::Client)
    }

    /// Applies the rebalances since the last call.
    pub fn poll_rebalance(&mut self) -> Result<(), IngestError> {
        while let Some(change) = self.consumer.context().take_rebalance(&self.names) {
            match change {
                Rebalance::Assigned(partitions) => self.on_assign(partitions)?,
                Rebalance::Revoked { is_lost } => self.on_revoke(is_lost)?,
            }
        }
        Ok(())
    }

    fn on_assign(&mut self, partitions: Partitions) -> Result<(), IngestError> {
        let Some(offsets) = self.fetch_group_offsets(&partitions)? else { return Ok(()) };
        self.offsets = offsets;
        self.health.set_committed(&self.offsets);
        self.set_partitions(partitions)?;
        self.check_known_records()?;
        self.count_partitions();
        self.assign()?;
        let [clicks, activations, effects] =
            TopicKind::ALL.map(|topic| self.partitions.count(topic));
        tracing::info!(clicks, activations, effects, "partitions assigned");
        self.health.set_assigned(true);
        Ok(())
    }

    /// Counts the partitions of all members. Added ones lead to a rebalance and so to a new count.
    fn count_partitions(&self) {
        match assignment::find_partitions(&self.consumer, &self.names) {
            Ok(all) => {
                for topic in TopicKind::ALL {
                    self.health.set_partition_count(topic, all.count(topic));
                }
            }
            Err(unfound) => tracing::debug!(?unfound, "partitions cannot be counted"),
        }
    }

    /// Fetches the group's offsets, with retries; `None` after a shutdown request or another rebalance.
    fn fetch_group_offsets(&self, partitions: &Partitions) -> Result<Option<Offsets>, IngestError> {
        let warnings = Throttle::default();
        for delay in delays(self.timing) {
            if self.shutdown.is_requested() || self.consumer.context().has_changed() {
                break;
            }
            match assignment::find_committed(&self.consumer, &self.names, partitions) {
                Ok(offsets) => return Ok(Some(offsets)),
                Err(error) => warnings.warn(|| {
                    tracing::warn!(%error, "the group's offsets cannot be fetched, retrying");
                }),
            }
            self.shutdown.sleep(delay);
        }
        Ok(None)
    }

    fn on_revoke(&mut self, is_lost: bool) -> Result<(), IngestError> {
        drop(self.router.finish());
        *self.router.low_watermark() = LowWatermark::default();
        self.commits.on_revoke(&self.consumer, is_lost);
        self.paused.clear();
        self.offsets = Offsets::default();
        self.partitions = Partitions::default();
        self.health.forget_partitions();
        tracing::info!(is_lost, "all partitions revoked");
        self.consumer.unassign().map_err(IngestError::Client)
    }
}
