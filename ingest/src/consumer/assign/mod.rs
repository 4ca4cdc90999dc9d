//! Start positions: finds the topics and their partitions, and checks the positions against the brokers' watermarks.

mod group_member;
mod locate_unreadable;
pub mod topic_identity;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;

use super::read::partition_affinity;
use super::{ConsumerThread, RANGE_RETRY, RANGE_TRIES};
use crate::kafka::assignment::{self, LookupError, MissingRecords};
use crate::kafka::clients;
use crate::kafka::error::{IngestError, UNREACHABLE_HELP};
use crate::kafka::partitions::{PartitionWatermarks, Partitions};
use crate::kafka::retry::{Throttle, delays};
use crate::kafka::topics::TopicKind;
use topic_identity::RecordState;

impl ConsumerThread {
    /// Finds the topics and assigns every partition, or joins the group. Breaks on a shutdown request.
    pub fn begin(&mut self) -> Result<ControlFlow<()>, IngestError> {
        let Some(partitions) = self.find_topics()? else { return Ok(ControlFlow::Break(())) };
        partition_affinity::warn_of_counts(&self.names, &partitions);
        self.dead_letters.create_topics(&self.kafka, &self.consumer, &self.shutdown)?;
        if self.is_member {
            self.health.set_connected(true);
            return self.join().map(ControlFlow::Continue);
        }
        self.set_partitions(partitions)?;
        self.check_known_records()?;
        self.warn_of_missing_records();
        self.assign()?;
        self.health.set_connected(true);
        self.health.set_assigned(true);
        Ok(ControlFlow::Continue(()))
    }

    /// Replaces the partitions to read, and checks their positions.
    pub fn set_partitions(&mut self, partitions: Partitions) -> Result<(), IngestError> {
        self.router.set_partitions(&partitions);
        self.partitions = partitions;
        self.check_positions()
    }

    /// Finds the topics, with retries until the brokers answer; `None` after a shutdown request.
    pub fn find_topics(&self) -> Result<Option<Partitions>, IngestError> {
        let warnings = Throttle::default();
        let mut missing_since = None;
        for delay in delays(self.timing) {
            if self.shutdown.is_requested() {
                break;
            }
            match assignment::find_partitions(&self.consumer, &self.names) {
                Ok(partitions) => return Ok(Some(partitions)),
                Err(LookupError::NoTopic(topic)) => {
                    self.health.set_connected(true);
                    let since = missing_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.timing.missing_topic_timeout {
                        let setting = topic.setting();
                        let topic = self.names.of(topic).clone();
                        return Err(IngestError::NoTopic { setting, topic });
                    }
                }
                Err(LookupError::Denied(topic)) => {
                    self.health.set_connected(true);
                    self.deny(topic);
                }
                Err(LookupError::Unreachable(error)) => {
                    self.health.set_connected(false);
                    self.health.set_refusal(self.consumer.context().refusal());
                    let brokers = &self.kafka.brokers;
                    warnings.warn(|| {
                        tracing::warn!(brokers, %error, "kafka does not answer, retrying; {UNREACHABLE_HELP}");
                    });
                }
            }
            clients::serve(&self.consumer);
            self.shutdown.sleep(delay.min(self.timing.metadata_retry_delay_max));
        }
        Ok(None)
    }

    /// Checks that every position is within the watermarks of its partition.
    pub fn check_positions(&self) -> Result<(), IngestError> {
        let mut tries = 1;
        loop {
            let watermarks = self.find_watermarks();
            match assignment::check(&self.names, &self.partitions, &watermarks, &self.offsets) {
                Err(IngestError::OutOfRange { .. }) if tries < RANGE_TRIES => {
                    tries += 1;
                    self.shutdown.sleep(RANGE_RETRY);
                }
                outcome => return outcome,
            }
        }
    }

    /// Checks, before anything is read, that the partitions still have the records of the stored positions: first the
    /// verified ones, then those read last.
    pub fn check_known_records(&mut self) -> Result<(), IngestError> {
        self.check_candidates()?;
        self.check_candidates()
    }

    fn check_candidates(&mut self) -> Result<(), IngestError> {
        self.identity_checker.check_records(self.offsets.candidates().collect());
        let started = Instant::now();
        while self.identity_checker.is_busy()
            && !self.shutdown.is_requested()
            && started.elapsed() < self.timing.first_record_check_timeout
        {
            self.apply_check_results(Duration::from_millis(50))?;
        }
        Ok(())
    }

    /// Waits up to `patience` for the results of the running check and applies them. A changed record is an error: the
    /// topic was recreated.
    pub fn apply_check_results(&mut self, patience: Duration) -> Result<(), IngestError> {
        let results = self.identity_checker.wait_for_results(patience);
        for (topic, may_read) in results.access {
            self.set_access(topic, may_read)?;
        }
        for ((topic, partition, record), state) in results.records {
            let is_assigned = self.offsets.next(topic, partition).is_some();
            if state == RecordState::Changed && is_assigned {
                let topic = self.names.of(topic).clone();
                return Err(IngestError::TopicRecreated {
                    topic,
                    partition,
                    offset: record.offset,
                });
            }
            let is_present = state == RecordState::Unchanged;
            self.offsets.apply_check(topic, partition, record, is_present);
        }
        Ok(())
    }

    /// Marks a topic as denied. Its lag is unknown until read access is granted again.
    fn deny(&self, topic: TopicKind) {
        let name = self.names.of(topic);
        self.health.set_denied(topic, name, true);
        self.denial_warnings.warn(|| {
            tracing::warn!(
                topic = %name,
                "kafka does not let adtrail read the topic: grant its user Describe and Read on it; reading \
                 resumes once they are granted"
            );
        });
    }

    fn set_access(&mut self, topic: TopicKind, may_read: bool) -> Result<(), IngestError> {
        let name = Arc::clone(self.names.of(topic));
        if !may_read {
            self.deny(topic);
        } else if self.health.set_denied(topic, &name, false) {
            tracing::info!(topic = %name, "read access to the topic is granted again");
            if !self.is_member {
                return self.assign();
            }
        }
        Ok(())
    }

    /// Warns if the group has committed offsets beyond the store's positions: the store was restored, its WAL was
    /// damaged, or a new store was created because the old one is missing. Nothing else would show that records are
    /// read again, nor that Kafka has deleted some of them.
    fn warn_of_missing_records(&self) {
        let (consumer, names, partitions) = (&self.consumer, &self.names, &self.partitions);
        let group_offsets = match assignment::find_committed(consumer, names, partitions) {
            Ok(offsets) => offsets,
            Err(error) => {
                tracing::debug!(%error, "the group's offsets cannot be fetched");
                return;
            }
        };
        let watermarks = self.find_watermarks();
        let MissingRecords { available, deleted, is_without_position } =
            assignment::find_missing(partitions, &group_offsets, &self.offsets, &watermarks);
        if is_without_position {
            tracing::warn!(
                records = available,
                gone = deleted,
                group = self.kafka.group,
                "the store has no position in partitions that the group has read: it is a new or a different \
                 store. If the old one is missing (a disk that is not mounted, a changed store.path), stop and \
                 bring it back. Records that kafka still has are read again; deleted ones are missing from exports"
            );
        } else if available > 0 {
            tracing::warn!(
                records = available,
                "the store is behind the offsets that it committed to kafka: it was restored, or its WAL was \
                 damaged or lost; the records in between are read again"
            );
        }
    }

    /// Fetches the watermarks. They are empty if a broker does not answer; fetching records then fails as well.
    fn find_watermarks(&self) -> PartitionWatermarks {
        let inspector = self.identity_checker.consumer();
        let find = || assignment::find_watermarks(inspector, &self.names, &self.partitions);
        self.health.update_watermarks(find)
    }

    /// Commits the first offset of each unread partition as its position, so that records which Kafka deletes before
    /// they are read are noticed as missing.
    ///
    /// Only offset 0 is committed. If a partition's first records are deleted already and its topic is recreated, a
    /// later position would skip the new topic's first records, and no record could reveal that. Such partitions, and
    /// those whose broker does not answer, are read from wherever their beginning is by then.
    fn add_beginnings(&mut self) {
        let unread = |(topic, partition): &(_, _)| self.offsets.next(*topic, *partition).is_none();
        let unread: Vec<_> = self.partitions.iter().filter(unread).collect();
        if unread.is_empty() {
            return;
        }
        let watermarks = self.find_watermarks();
        for (topic, partition) in unread {
            if let Some(found) = watermarks.get(&(topic, partition)).filter(|found| found.low == 0)
            {
                self.offsets.set(topic, partition, found.low, [None; 2]);
                self.router.add_beginning((topic, partition), found.low);
            }
        }
    }

    /// Assigns all partitions that are not paused, each from its position.
    pub fn assign(&mut self) -> Result<(), IngestError> {
        self.add_beginnings();
        self.router.low_watermark().forget_ends();
        let is_paused = |topic, partition| self.paused.contains(topic, partition);
        assignment::assignment(&self.names, &self.partitions, &self.offsets, is_paused)
            .and_then(|list| self.consumer.assign(&list))
            .map_err(IngestError::Client)
    }

    /// Starts a check of records and read access, assigns partitions that were added, and fetches all watermarks.
    pub fn check_partitions(&mut self) -> Result<(), IngestError> {
        self.checked_at = Instant::now();
        self.identity_checker.check_records_and_access(self.offsets.candidates().collect());
        if self.is_member {
            // The group assigns added partitions.
            self.find_watermarks();
            return Ok(());
        }
        match assignment::find_partitions(&self.consumer, &self.names) {
            Ok(partitions) if partitions != self.partitions => {
                let [clicks, activations, effects] =
                    TopicKind::ALL.map(|topic| partitions.count(topic));
                tracing::info!(
                    clicks,
                    activations,
                    effects,
                    "the number of partitions has changed"
                );
                partition_affinity::warn_of_counts(&self.names, &partitions);
                self.set_partitions(partitions)?;
                self.assign()
            }
            Ok(_) => {
                let watermarks = self.find_watermarks();
                self.router.low_watermark().set_ends(&watermarks);
                Ok(())
            }
            Err(LookupError::Denied(topic)) => {
                self.deny(topic);
                Ok(())
            }
            // If the problem is real, fetching records fails too and handles the error.
            Err(unfound) => {
                tracing::debug!(?unfound, "partitions cannot be looked up");
                Ok(())
            }
        }
    }
}
