//! Finds the records that cannot be read: librdkafka's error names neither partition nor offset.

use std::ops::Range;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

use crate::consumer::context::Context;
use crate::consumer::read::ReadState;
use crate::consumer::topic_client::TopicClient;
use crate::kafka::clients::{self, Consumer};
use crate::kafka::error::is_unreadable;
use crate::kafka::topics::TopicKind;

/// Time limit of the search for the partition.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of each request and of reading one record.
const RECORD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of offsets that are found at once, each by a read of its own.
const OFFSETS_MAX: i64 = 100;

/// Consecutive records of a partition that cannot be read.
pub struct UnreadableRecords {
    pub topic: TopicKind,
    pub partition: i32,
    pub offsets: Range<i64>,
    /// The error of the first one.
    pub error: RDKafkaErrorCode,
}

/// The result of reading one record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Probe {
    /// There is a record, or the end of the partition.
    Readable,
    Unreadable(RDKafkaErrorCode),
}

/// Reads each partition that is not paused, alone and from its next offset, until one returns an error; and then that
/// partition from each following offset until one returns none. The records of a batch are either all readable or all
/// unreadable, but the extent of an unreadable batch is unknown.
pub fn locate_unreadable(
    client: &TopicClient,
    read: &ReadState,
    context: &Context,
) -> Option<UnreadableRecords> {
    let consumer = clients::prober(&context.kafka)
        .inspect_err(|error| tracing::warn!(%error, "unreadable records cannot be located"))
        .ok()?;
    let started = Instant::now();
    let may_go_on = || !context.shutdown.is_requested() && started.elapsed() < SEARCH_TIMEOUT;
    let partitions = client.partitions.iter().take_while(|_| may_go_on());
    for (topic, partition) in partitions {
        if read.paused.contains(topic, partition) {
            continue;
        }
        let name = client.names.of(topic);
        let beginning = || Some(consumer.fetch_watermarks(name, partition, RECORD_TIMEOUT).ok()?.0);
        let Some(first) = read.offsets.next(topic, partition).or_else(beginning) else { continue };
        let found = probe(&consumer, name, partition, first);
        let Some(Probe::Unreadable(error)) = found else { continue };
        let is_readable = |offset: &i64| {
            context.shutdown.is_requested() || probe(&consumer, name, partition, *offset) != found
        };
        let last = first + OFFSETS_MAX;
        let end = (first + 1..last).find(is_readable).unwrap_or(last);
        return Some(UnreadableRecords { topic, partition, offsets: first..end, error });
    }
    None
}

/// Reads one record; `None` if the broker does not answer.
fn probe(consumer: &Consumer, topic: &str, partition: i32, offset: i64) -> Option<Probe> {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(offset)).ok()?;
    consumer.assign(&list).ok()?;
    clients::poll_all(consumer, RECORD_TIMEOUT).find_map(|polled| match polled {
        Err(KafkaError::MessageConsumption(code)) if is_unreadable(code) => {
            Some(Probe::Unreadable(code))
        }
        Err(KafkaError::PartitionEOF(_)) | Ok(_) => Some(Probe::Readable),
        Err(_) => None,
    })
}
