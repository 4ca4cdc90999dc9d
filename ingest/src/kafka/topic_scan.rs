//! Reads all partitions of one topic once.
//!
//! The end is an offset, not a record: the last offsets of a log can be transaction markers, which are never delivered.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use config::Kafka;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::assignment::{self, is_denial};
use super::clients::{self, Consumer};
use super::error::{IngestError, is_missing, is_unreadable};
use super::retry::delays;
use crate::timing::Timing;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const IDLE_TIMEOUT: Duration = Duration::from_millis(100);

/// Where a scan starts in each partition. It ends at the end offset that the partition has at the start, except with
/// `End`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanStart {
    Beginning,
    /// The first record with this broker timestamp or a later one, in ms since 1970.
    Time(i64),
    /// Only records produced from now on, without end.
    End,
}

/// An event of a scan.
pub enum ScanEvent<'m> {
    Record(&'m BorrowedMessage<'m>),
    /// No record arrived for 100 ms.
    Idle,
}

/// Progress in offsets, of all partitions together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanProgress {
    pub read: u64,
    pub total: u64,
}

pub struct TopicScan {
    consumer: Consumer,
    topic: String,
    has_end: bool,
    timing: Timing,
    /// The remaining offsets of each partition that is being read.
    ranges: BTreeMap<i32, OffsetRange>,
    progress: ScanProgress,
}

#[derive(Debug, Clone, Copy)]
struct OffsetRange {
    next: i64,
    end: i64,
}

impl TopicScan {
    /// Finds the topic and its offsets, and starts fetching.
    pub fn start(
        kafka: &Kafka,
        topic: &str,
        start: ScanStart,
        timing: Timing,
    ) -> Result<Self, IngestError> {
        let consumer = clients::reader(kafka)?;
        let ranges = await_ranges(&consumer, kafka, topic, start, timing)?;
        let total = ranges.values().map(|range| range.end.abs_diff(range.next)).sum();
        let mut scan = Self {
            consumer,
            topic: topic.to_owned(),
            has_end: start != ScanStart::End,
            timing,
            ranges,
            progress: ScanProgress { read: 0, total },
        };
        scan.assign().map_err(IngestError::Client)?;
        Ok(scan)
    }

    /// Calls `handle` for each record, those of a partition in order, until all are read or `handle` breaks.
    pub fn run<E: From<IngestError>>(
        mut self,
        mut handle: impl FnMut(ScanEvent<'_>, ScanProgress) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let mut failing_since = None;
        while !self.ranges.is_empty() {
            let flow = match clients::poll(&self.consumer, IDLE_TIMEOUT) {
                None => handle(ScanEvent::Idle, self.progress)?,
                Some(Ok(message)) => {
                    failing_since = None;
                    let (partition, next) = (message.partition(), message.offset() + 1);
                    let Some(range) = self.ranges.get_mut(&partition) else { continue };
                    let end = if self.has_end { range.end } else { i64::MAX };
                    let mut flow = ControlFlow::Continue(());
                    if next <= end {
                        self.progress.read += next.abs_diff(range.next);
                        range.next = next;
                        flow = handle(ScanEvent::Record(&message), self.progress)?;
                    }
                    if next >= end {
                        self.finish_partition(partition);
                    }
                    flow
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    failing_since = None;
                    if self.has_end {
                        self.finish_partition(partition);
                    }
                    ControlFlow::Continue(())
                }
                Some(Err(error)) => {
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    check_error(error, since.elapsed(), self.timing.command_broker_timeout)?;
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
        for (partition, range) in &self.ranges {
            list.add_partition_offset(&self.topic, *partition, Offset::Offset(range.next))?;
        }
        self.consumer.assign(&list)
    }

    /// Stops reading a partition. Records of it that still arrive are ignored.
    fn finish_partition(&mut self, partition: i32) {
        if let Some(range) = self.ranges.remove(&partition) {
            self.progress.read += range.end.abs_diff(range.next);
        }
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.topic, partition);
        if let Err(error) = self.consumer.pause(&list) {
            tracing::debug!(%error, partition, "a finished partition cannot be paused");
        }
    }
}

/// Finds the offsets to read of each partition, and retries while the topic does not exist or brokers do not answer.
fn await_ranges(
    consumer: &Consumer,
    kafka: &Kafka,
    topic: &str,
    start: ScanStart,
    timing: Timing,
) -> Result<BTreeMap<i32, OffsetRange>, IngestError> {
    let started = Instant::now();
    let mut delays = delays(timing);
    loop {
        match find_ranges(consumer, topic, start) {
            Ok(Some(ranges)) => return Ok(ranges),
            Ok(None) if started.elapsed() >= timing.command_missing_topic_timeout => {
                return Err(IngestError::NoSuchTopic(topic.to_owned()));
            }
            Ok(None) => {}
            Err(error) if started.elapsed() >= timing.command_broker_timeout => {
                return Err(IngestError::Unreachable { brokers: kafka.brokers.clone(), error });
            }
            Err(error) => tracing::debug!(%error, "kafka does not answer, retrying"),
        }
        clients::serve(consumer);
        if let Some(reason) = consumer.context().refusal() {
            return Err(IngestError::Refused { reason });
        }
        let delay = delays.next().unwrap_or_default();
        std::thread::sleep(delay.min(timing.metadata_retry_delay_max));
    }
}

/// Finds the offsets to read of each partition; `None` if the topic does not exist. Partitions with nothing to read are
/// left out.
fn find_ranges(
    consumer: &Consumer,
    topic: &str,
    start: ScanStart,
) -> KafkaResult<Option<BTreeMap<i32, OffsetRange>>> {
    let Some(partitions) = assignment::partition_count(consumer, topic)? else { return Ok(None) };
    let fetch = |offset: Offset| -> KafkaResult<BTreeMap<i32, Option<i64>>> {
        let mut list = TopicPartitionList::new();
        for partition in (0..).take(partitions) {
            list.add_partition_offset(topic, partition, offset)?;
        }
        let response = consumer.offsets_for_times(list, REQUEST_TIMEOUT)?;
        let mut offsets = BTreeMap::new();
        for element in response.elements() {
            element.error()?;
            let offset = element.offset();
            let offset = if let Offset::Offset(offset) = offset { Some(offset) } else { None };
            offsets.insert(element.partition(), offset);
        }
        Ok(offsets)
    };
    let ends = fetch(Offset::End)?;
    let starts = match start {
        ScanStart::Beginning => fetch(Offset::Beginning)?,
        ScanStart::Time(time_ms) => fetch(Offset::Offset(time_ms))?,
        ScanStart::End => ends.clone(),
    };
    let range = |(partition, end): (i32, Option<i64>)| {
        let end = end.unwrap_or(0);
        // Kafka returns no offset if all records are older than the start time.
        let next = starts.get(&partition).copied().flatten().unwrap_or(end);
        (partition, OffsetRange { next: next.min(end), end })
    };
    let is_open =
        |(_, range): &(i32, OffsetRange)| start == ScanStart::End || range.next < range.end;
    Ok(Some(ends.into_iter().map(range).filter(is_open).collect()))
}

/// Returns the error if librdkafka does not retry it, or if `failing`, the time since the first of the current errors,
/// has reached `timeout`.
fn check_error(error: KafkaError, failing: Duration, timeout: Duration) -> Result<(), IngestError> {
    let KafkaError::MessageConsumption(code) = &error else {
        return Err(IngestError::Fatal(error));
    };
    let is_permanent = is_unreadable(*code) || is_missing(*code) || is_denial(&error);
    if is_permanent || failing >= timeout { Err(IngestError::Unreadable(error)) } else { Ok(()) }
}
