//! One topic, all partitions, read once from here to there.
//!
//! The end is a position and no message: the last offsets of a log can be marks of transactions,
//! which are never delivered.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use config::Kafka;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

use super::assignment;
use super::clients::{self, Consumer};
use super::error::IngestError;
use super::retry::delays;
use crate::timing::Timing;

const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_millis(100);

/// Where each partition is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanStart {
    Beginning,
    /// The first record that the broker received at this time or later, in ms since 1970.
    Time(i64),
    /// What is produced from now on.
    End,
}

/// Where each partition is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanEnd {
    /// The end that it has now.
    Snapshot,
    Never,
}

/// What reading comes upon.
pub enum Step<'m> {
    Record(&'m BorrowedMessage<'m>),
    /// Nothing for a moment.
    Idle,
}

/// How far the reading is, in offsets of all partitions together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanProgress {
    pub read: u64,
    pub total: u64,
}

pub struct TopicScan {
    consumer: Consumer,
    topic: String,
    to: ScanEnd,
    timing: Timing,
    /// Of the partitions that are being read.
    spans: BTreeMap<i32, Span>,
    extent: ScanProgress,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    next: i64,
    end: i64,
}

impl TopicScan {
    /// Finds the topic and where it ends.
    pub fn start(
        kafka: &Kafka,
        topic: &str,
        from: ScanStart,
        to: ScanEnd,
        timing: Timing,
    ) -> Result<Self, IngestError> {
        let consumer = clients::reader(kafka)?;
        let spans = find(&consumer, (kafka, topic), timing, |partitions| {
            spans(&consumer, topic, partitions, from, to)
        })?;
        let total = spans.values().map(|span| span.end.abs_diff(span.next)).sum();
        let mut sweep = Self {
            consumer,
            topic: topic.to_owned(),
            to,
            timing,
            spans,
            extent: ScanProgress { read: 0, total },
        };
        sweep.assign().map_err(IngestError::Client)?;
        Ok(sweep)
    }

    /// Hands on one record after the other, those of a partition in order, until all are read or
    /// `take` breaks off.
    pub fn run<E: From<IngestError>>(
        mut self,
        mut take: impl FnMut(Step<'_>, ScanProgress) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let mut failing_since = None;
        while !self.spans.is_empty() {
            let flow = match clients::poll(&self.consumer, IDLE) {
                None => take(Step::Idle, self.extent)?,
                Some(Ok(message)) => {
                    failing_since = None;
                    let (partition, offset) = (message.partition(), message.offset());
                    let Some(span) = self.spans.get_mut(&partition) else { continue };
                    let is_within = self.to == ScanEnd::Never || offset < span.end;
                    if is_within {
                        self.extent.read += (offset + 1).abs_diff(span.next);
                        span.next = offset + 1;
                    }
                    let is_last = self.to == ScanEnd::Snapshot && offset + 1 >= span.end;
                    let flow = if is_within {
                        take(Step::Record(&message), self.extent)?
                    } else {
                        ControlFlow::Continue(())
                    };
                    if is_last {
                        self.leave(partition);
                    }
                    flow
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    failing_since = None;
                    if self.to == ScanEnd::Snapshot {
                        self.leave(partition);
                    }
                    ControlFlow::Continue(())
                }
                Some(Err(error)) => {
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    bear(error, since.elapsed(), self.timing.command_broker_patience)?;
                    ControlFlow::Continue(())
                }
            };
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn assign(&mut self) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        for (partition, span) in &self.spans {
            list.add_partition_offset(&self.topic, *partition, Offset::Offset(span.next))?;
        }
        self.consumer.assign(&list)
    }

    /// Reads no more of a partition. What comes of it none the less is passed over.
    fn leave(&mut self, partition: i32) {
        if let Some(span) = self.spans.remove(&partition) {
            self.extent.read += span.end.abs_diff(span.next);
        }
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.topic, partition);
        if let Err(error) = self.consumer.pause(&list) {
            tracing::debug!(%error, partition, "a partition that is read cannot be paused");
        }
    }
}

/// What `ask` has to say of the topic's partitions, so many; asked again while brokers do not answer.
fn find<T>(
    consumer: &Consumer,
    (kafka, topic): (&Kafka, &str),
    timing: Timing,
    ask: impl Fn(i32) -> KafkaResult<T>,
) -> Result<T, IngestError> {
    let started = Instant::now();
    let mut delays = delays(timing);
    loop {
        let count = assignment::partition_count(consumer, topic);
        let answer = count.and_then(|count| {
            let count = count.map(|count| i32::try_from(count).unwrap_or(i32::MAX));
            count.map(&ask).transpose()
        });
        match answer {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) if started.elapsed() >= timing.command_missing_topic_patience => {
                return Err(IngestError::NoSuchTopic(topic.to_owned()));
            }
            Ok(None) => {}
            Err(error) if started.elapsed() >= timing.command_broker_patience => {
                return Err(IngestError::Unreachable { brokers: kafka.brokers.clone(), error });
            }
            Err(error) => tracing::debug!(%error, "kafka does not answer, asking again"),
        }
        clients::serve(consumer);
        if let Some(reason) = consumer.context().refusal() {
            return Err(IngestError::Refused { reason });
        }
        let delay = delays.next().unwrap_or_default();
        std::thread::sleep(delay.min(timing.metadata_retry_delay_max));
    }
}

/// What is to be read of each partition; those of which nothing is are left out.
fn spans(
    consumer: &Consumer,
    topic: &str,
    partitions: i32,
    from: ScanStart,
    to: ScanEnd,
) -> KafkaResult<BTreeMap<i32, Span>> {
    let ask = |offset: Offset| -> KafkaResult<BTreeMap<i32, Option<i64>>> {
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition_offset(topic, partition, offset)?;
        }
        let answer = consumer.offsets_for_times(list, LOOK_TIMEOUT)?;
        let offset = |offset| match offset {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        };
        let elements = answer.elements();
        elements
            .iter()
            .map(|one| one.error().map(|()| (one.partition(), offset(one.offset()))))
            .collect()
    };
    let ends = ask(Offset::End)?;
    let begins = match from {
        ScanStart::Beginning => ask(Offset::Beginning)?,
        ScanStart::Time(time_ms) => ask(Offset::Offset(time_ms))?,
        ScanStart::End => ends.clone(),
    };
    let span = |(partition, end): (i32, Option<i64>)| {
        let end = end.unwrap_or(0);
        // No record is as late as the time: the partition's end.
        let next = begins.get(&partition).copied().flatten().unwrap_or(end);
        (partition, Span { next: next.min(end), end })
    };
    let is_open = |(_, span): &(i32, Span)| to == ScanEnd::Never || span.next < span.end;
    Ok(ends.into_iter().map(span).filter(is_open).collect())
}

/// The client tries most things again by itself. `failing` is the time since it last succeeded.
fn bear(error: KafkaError, failing: Duration, patience: Duration) -> Result<(), IngestError> {
    let KafkaError::MessageConsumption(code) = &error else {
        return Err(IngestError::Fatal(error));
    };
    match code {
        RDKafkaErrorCode::BadMessage
        | RDKafkaErrorCode::BadCompression
        | RDKafkaErrorCode::NotImplemented
        | RDKafkaErrorCode::InvalidMessage
        | RDKafkaErrorCode::MessageSizeTooLarge
        | RDKafkaErrorCode::TopicAuthorizationFailed
        | RDKafkaErrorCode::UnknownTopicOrPartition
        | RDKafkaErrorCode::UnknownTopic
        | RDKafkaErrorCode::UnknownPartition => Err(IngestError::Unreadable(error)),
        _ if failing >= patience => Err(IngestError::Unreadable(error)),
        _ => Ok(()),
    }
}
