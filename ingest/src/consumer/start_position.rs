//! Where reading begins: the topics, their partitions, and the positions against what the broker has.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;

use super::topic_identity::Seen;
use super::{RANGE_RETRY, RANGE_TRIES, Reader, partition_affinity};
use crate::kafka::assignment::{self, Lost, Unfound};
use crate::kafka::clients;
use crate::kafka::error::{IngestError, UNREACHABLE_HELP};
use crate::kafka::partitions::{PartitionWatermarks, Partitions};
use crate::kafka::retry::{Throttle, delays};
use crate::kafka::topics::TopicKind;

impl Reader {
    /// Finds the topics and takes up every partition; breaks off if asked to stop.
    pub fn begin(&mut self) -> Result<ControlFlow<()>, IngestError> {
        let Some(partitions) = self.find_topics()? else { return Ok(ControlFlow::Break(())) };
        partition_affinity::warn_of_counts(&self.names, &partitions);
        self.dead_letters.create_topics(&self.kafka, &self.consumer, &self.shutdown)?;
        if self.is_member {
            self.health.set_connected(true);
            return self.join().map(ControlFlow::Continue);
        }
        self.take_up(partitions)?;
        self.look_at_marks()?;
        self.tell_what_is_lost();
        self.assign()?;
        self.health.set_connected(true);
        self.health.set_assigned(true);
        Ok(ControlFlow::Continue(()))
    }

    /// Reads these from now on, if the broker has what their positions point at.
    pub fn take_up(&mut self, partitions: Partitions) -> Result<(), IngestError> {
        self.sorter.set_partitions(&partitions);
        self.partitions = partitions;
        self.check_positions()
    }

    /// Asks until the brokers answer; `None` if asked to stop first.
    pub fn find_topics(&self) -> Result<Option<Partitions>, IngestError> {
        let unreachable = Throttle::default();
        let mut missing_since = None;
        for delay in delays(self.timing) {
            if self.shutdown.is_requested() {
                break;
            }
            match assignment::find_partitions(&self.consumer, &self.names) {
                Ok(partitions) => return Ok(Some(partitions)),
                Err(Unfound::NoTopic(topic)) => {
                    self.health.set_connected(true);
                    let since = missing_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.timing.missing_topic_patience {
                        let setting = topic.setting();
                        let topic = self.names.of(topic).clone();
                        return Err(IngestError::NoTopic { setting, topic });
                    }
                }
                Err(Unfound::Denied(topic)) => {
                    self.health.set_connected(true);
                    self.deny(topic);
                }
                Err(Unfound::Unreachable(error)) => {
                    self.health.set_connected(false);
                    self.health.set_refusal(self.consumer.context().refusal());
                    let brokers = &self.kafka.brokers;
                    unreachable.warn(|| {
                        tracing::warn!(brokers, %error, "kafka does not answer, asking again; {UNREACHABLE_HELP}");
                    });
                }
            }
            clients::serve(&self.consumer);
            self.shutdown.sleep(delay.min(self.timing.metadata_retry_delay_max));
        }
        Ok(None)
    }

    /// That the broker still has what the positions point at.
    pub fn check_positions(&self) -> Result<(), IngestError> {
        let mut tries = 1;
        loop {
            let extents = self.find_watermarks();
            match assignment::check(&self.names, &self.partitions, &extents, &self.offsets) {
                Err(IngestError::OutOfRange { .. }) if tries < RANGE_TRIES => {
                    tries += 1;
                    self.shutdown.sleep(RANGE_RETRY);
                }
                outcome => return outcome,
            }
        }
    }

    /// Before anything is read: has the marks looked at, and then the records that were read last, and waits
    /// for what is seen.
    pub fn look_at_marks(&mut self) -> Result<(), IngestError> {
        self.look_at_candidates()?;
        self.look_at_candidates()
    }

    fn look_at_candidates(&mut self) -> Result<(), IngestError> {
        self.witness.ask(self.offsets.candidates().collect());
        let started = Instant::now();
        while self.witness.is_looking()
            && !self.shutdown.is_requested()
            && started.elapsed() < self.timing.first_record_check_patience
        {
            self.recognise(Duration::from_millis(50))?;
        }
        Ok(())
    }

    /// Takes what was seen of partitions, for as long as that is waited for. One that has another
    /// record now is another one.
    pub fn recognise(&mut self, patience: Duration) -> Result<(), IngestError> {
        let answer = self.witness.answer(patience);
        for (topic, may_read) in answer.access {
            self.take_access(topic, may_read)?;
        }
        for ((topic, partition, mark), seen) in answer.seen {
            let is_ours = self.offsets.next(topic, partition).is_some();
            if seen == Seen::Another && is_ours {
                let topic = self.names.of(topic).clone();
                return Err(IngestError::MadeAnew { topic, partition, offset: mark.offset });
            }
            self.offsets.settle(topic, partition, mark, seen == Seen::Same);
        }
        Ok(())
    }

    /// What a topic that may not be read has, nobody knows: until it may, nothing is said of it.
    fn deny(&self, topic: TopicKind) {
        let name = self.names.of(topic);
        self.health.set_denied(topic, name, true);
        self.denials_told.warn(|| {
            tracing::warn!(
                topic = %name,
                "kafka does not let adtrail read the topic: allow its user Describe and Read on it; it \
                 is read on once it may"
            );
        });
    }

    fn take_access(&mut self, topic: TopicKind, may_read: bool) -> Result<(), IngestError> {
        let name = Arc::clone(self.names.of(topic));
        if !may_read {
            self.deny(topic);
        } else if self.health.set_denied(topic, &name, false) {
            tracing::info!(topic = %name, "the topic may be read again");
            if !self.is_member {
                return self.assign();
            }
        }
        Ok(())
    }

    /// A store whose log was damaged, or that was restored, is of an earlier moment, and a new one in the
    /// place of one that is missing knows nothing. What came after it is read again, which nobody would see
    /// otherwise; nor that Kafka has forgotten some of it.
    fn tell_what_is_lost(&self) {
        let (consumer, names, partitions) = (&self.consumer, &self.names, &self.partitions);
        let told = match assignment::find_committed(consumer, names, partitions) {
            Ok(told) => told,
            Err(error) => {
                tracing::debug!(%error, "the group's positions are not known");
                return;
            }
        };
        let extents = self.find_watermarks();
        let Lost { again, gone, unknown } =
            assignment::find_lost(partitions, &told, &self.offsets, &extents);
        if unknown > 0 {
            tracing::warn!(
                records = again,
                gone,
                group = self.kafka.group,
                "the store has no position in partitions that the group has read: it is a new one, or another \
                 one than it was. If one is missing (a disk that is not mounted, another store.path), stop and \
                 bring it back. What kafka still has is read again; what it deleted since is missing in exports"
            );
        } else if again > 0 {
            tracing::warn!(
                records = again,
                "the store is of an earlier moment than it was, by so many records: it was restored, or \
                 its log was damaged or lost; they are read again from kafka"
            );
        }
    }

    /// Empty if a broker does not answer: then fetching finds out.
    fn find_watermarks(&self) -> PartitionWatermarks {
        let looker = self.witness.consumer();
        let find = || assignment::find_watermarks(looker, &self.names, &self.partitions);
        self.health.take_extents(find)
    }

    /// Has the first offset of partitions of which nothing is read yet committed as their position: else
    /// what Kafka deletes before it is read would be passed over without a word. Not of those that have lost
    /// something already: were their topic made anew, its first records would be passed over by such a
    /// position, and no record tells one from the other. These are read from their beginning, wherever it is by
    /// then, and so is one whose broker does not answer.
    fn note_beginnings(&mut self) {
        let unread = |(topic, partition): &(_, _)| self.offsets.next(*topic, *partition).is_none();
        let unread: Vec<_> = self.partitions.iter().filter(unread).collect();
        if unread.is_empty() {
            return;
        }
        let extents = self.find_watermarks();
        for (topic, partition) in unread {
            if let Some(extent) = extents.get(&(topic, partition)).filter(|extent| extent.low == 0)
            {
                self.offsets.put(topic, partition, extent.low, [None; 2]);
                self.sorter.begin((topic, partition), extent.low);
            }
        }
    }

    /// Reads what is not held on from its position.
    pub fn assign(&mut self) -> Result<(), IngestError> {
        self.note_beginnings();
        self.sorter.low_watermark().forget_ends();
        let is_held = |topic, partition| self.held.holds(topic, partition);
        assignment::assignment(&self.names, &self.partitions, &self.offsets, is_held)
            .and_then(|list| self.consumer.assign(&list))
            .map_err(IngestError::Client)
    }

    /// Takes up partitions that were added since, and asks where all end.
    pub fn look_again(&mut self) -> Result<(), IngestError> {
        self.looked_at = Instant::now();
        self.witness.ask_all(self.offsets.candidates().collect());
        if self.is_member {
            // Who reads added ones is the group's to say.
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
                self.take_up(partitions)?;
                self.assign()
            }
            Ok(_) => {
                let extents = self.find_watermarks();
                self.sorter.low_watermark().ask(&extents);
                Ok(())
            }
            Err(Unfound::Denied(topic)) => {
                self.deny(topic);
                Ok(())
            }
            // Fetching fails too, if it is true, and is heard.
            Err(unfound) => {
                tracing::debug!(?unfound, "partitions cannot be looked up");
                Ok(())
            }
        }
    }
}
