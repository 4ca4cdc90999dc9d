//! A member of the group: it reads the partitions that the group gives it, from the positions that
//! the group has, and only while they are its own.
//!
//! What it had in hand when they are taken away is read again by whoever gets them; a batch that is
//! already on its way is waited for, so that this is little.

use rdkafka::consumer::Consumer as _;

use super::Reader;
use super::watermark::LowWatermark;
use crate::kafka::assignment;
use crate::kafka::error::IngestError;
use crate::kafka::offsets::Offsets;
use crate::kafka::partitions::Partitions;
use crate::kafka::rebalance::Rebalance;
use crate::kafka::retry::{Throttle, delays};
use crate::kafka::topics::TopicKind;

impl Reader {
    pub fn join(&self) -> Result<(), IngestError> {
        let topics = TopicKind::ALL.map(|topic| &**self.names.of(topic));
        self.consumer.subscribe(&topics).map_err(IngestError::Client)
    }

    /// Does what the group has changed since.
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
        let Some(offsets) = self.find_positions(&partitions)? else { return Ok(()) };
        self.offsets = offsets;
        self.health.set_committed(&self.offsets);
        self.take_up(partitions)?;
        self.look_at_marks()?;
        self.count_partitions();
        self.assign()?;
        let [clicks, activations, effects] =
            TopicKind::ALL.map(|topic| self.partitions.count(topic));
        tracing::info!(clicks, activations, effects, "the group has given partitions");
        self.health.set_assigned(true);
        Ok(())
    }

    /// Those of all members: where some are added the group gives partitions anew.
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

    /// The group's positions; `None` if asked to stop, or if the group changes, before they are known.
    fn find_positions(&self, partitions: &Partitions) -> Result<Option<Offsets>, IngestError> {
        let unanswered = Throttle::default();
        for delay in delays(self.timing) {
            if self.shutdown.is_requested() || self.consumer.context().has_changed() {
                break;
            }
            match assignment::find_committed(&self.consumer, &self.names, partitions) {
                Ok(offsets) => return Ok(Some(offsets)),
                Err(error) => unanswered.warn(|| {
                    tracing::warn!(%error, "the group's positions are not known yet, asking again");
                }),
            }
            self.shutdown.sleep(delay);
        }
        Ok(None)
    }

    fn on_revoke(&mut self, is_lost: bool) -> Result<(), IngestError> {
        drop(self.sorter.finish());
        *self.sorter.low_watermark() = LowWatermark::default();
        self.commits.give_back(&self.consumer, is_lost);
        self.held.clear();
        self.offsets = Offsets::default();
        self.partitions = Partitions::default();
        self.health.forget_partitions();
        tracing::info!(is_lost, "the group has taken all partitions back");
        self.consumer.unassign().map_err(IngestError::Client)
    }
}
