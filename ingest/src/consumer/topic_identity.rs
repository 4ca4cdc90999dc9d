//! Detects recreated topics: checks whether partitions still have the records that were read from them. A topic that
//! was deleted and created again has other records at the same offsets.
//!
//! A separate thread with a separate client does the checks, so that reading does not wait for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use attribution::ledger::RecordFingerprint;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::digest::digest;
use crate::kafka::assignment::{self, is_denial};
use crate::kafka::clients::{self, Consumer};
use crate::kafka::error::IngestError;
use crate::kafka::offsets::Offsets;
use crate::kafka::topics::{TopicKind, TopicNames};
use crate::timing::Timing;

/// A record that was read, with its topic and partition.
pub type KnownRecord = (TopicKind, i32, RecordFingerprint);

/// The state of a known record in Kafka.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordState {
    Unchanged,
    /// Another record has its offset.
    Changed,
    /// It expired, or was compacted away.
    Gone,
}

/// A check of records and, if `checks_access`, of read access to every topic.
struct Request {
    records: Vec<KnownRecord>,
    checks_access: bool,
}

/// The results of a check. Records and topics for which no broker answered are left out.
#[derive(Debug, Default)]
pub struct Results {
    pub records: Vec<(KnownRecord, RecordState)>,
    /// For each topic, true if it may be read.
    pub access: Vec<(TopicKind, bool)>,
}

/// The checking thread and its queues.
pub struct TopicIdentityChecker {
    requests: SyncSender<Request>,
    results: Receiver<Results>,
    /// True while a check is running or its results are not taken yet.
    pub is_busy: bool,
}

impl TopicIdentityChecker {
    pub fn start(
        inspector: Arc<Consumer>,
        names: TopicNames,
        timing: Timing,
    ) -> Result<Self, IngestError> {
        let (requests, received) = sync_channel::<Request>(1);
        let (finished, results) = sync_channel(1);
        let timeout = timing.record_check_timeout;
        let work = move || {
            for Request { records, checks_access } in received {
                let records = check_records(&inspector, &names, &records, timeout);
                let access = if checks_access {
                    check_access(&inspector, &names, timeout)
                } else {
                    Vec::new()
                };
                if finished.send(Results { records, access }).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("adtrail-checker".to_owned())
            .spawn(work)
            .map_err(IngestError::Thread)?;
        Ok(Self { requests, results, is_busy: false })
    }

    /// Starts a check of the records that are due, unless a check is running.
    pub fn check_records(&mut self, offsets: &Offsets) {
        self.send(offsets, false);
    }

    /// Starts a check of the records that are due and of read access to every topic, unless a check is running.
    pub fn check_records_and_access(&mut self, offsets: &Offsets) {
        self.send(offsets, true);
    }

    fn send(&mut self, offsets: &Offsets, checks_access: bool) {
        let records: Vec<_> = offsets.candidates().collect();
        if !self.is_busy && (checks_access || !records.is_empty()) {
            self.is_busy = self.requests.try_send(Request { records, checks_access }).is_ok();
        }
    }

    /// Waits up to `timeout` for the results of the running check; they are empty if there are none yet.
    pub fn wait_for_results(&mut self, timeout: Duration) -> Results {
        let results = self.is_busy.then(|| self.results.recv_timeout(timeout).ok()).flatten();
        self.is_busy &= results.is_none();
        results.unwrap_or_default()
    }
}

fn check_records(
    consumer: &Consumer,
    names: &TopicNames,
    records: &[KnownRecord],
    timeout: Duration,
) -> Vec<(KnownRecord, RecordState)> {
    let mut states = Vec::with_capacity(records.len());
    for topic in TopicKind::ALL {
        let of_topic = records.iter().filter(|(known_topic, _, _)| *known_topic == topic);
        let mut expected = of_topic.map(|(_, partition, record)| (*partition, *record)).collect();
        let report = |partition, record, state| states.push(((topic, partition, record), state));
        let outcome = check_topic(consumer, names.of(topic), &mut expected, timeout, report);
        if let Err(error) = outcome {
            tracing::debug!(%error, topic = %names.of(topic), "the last records of the topic cannot be checked");
        }
    }
    states
}

/// Checks one partition of each topic: Kafka's ACLs apply to whole topics.
fn check_access(
    consumer: &Consumer,
    names: &TopicNames,
    timeout: Duration,
) -> Vec<(TopicKind, bool)> {
    let access = |topic| Some((topic, may_read(consumer, names.of(topic), timeout)?));
    TopicKind::ALL.into_iter().filter_map(access).collect()
}

/// Checks read access to a topic; `None` if no broker answers.
fn may_read(consumer: &Consumer, topic: &str, timeout: Duration) -> Option<bool> {
    if assignment::partition_count(consumer, topic).is_err_and(|error| is_denial(&error)) {
        return Some(false);
    }
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::End).ok()?;
    consumer.assign(&list).ok()?;
    let may_read = clients::poll_all(consumer, timeout).find_map(|polled| match polled {
        Ok(message) => (message.topic() == topic).then_some(true),
        Err(KafkaError::PartitionEOF(_)) => Some(true),
        Err(error) => is_denial(&error).then_some(false),
    });
    // A failure is harmless: the next check assigns other partitions before it reads.
    let _ = consumer.unassign();
    may_read
}

/// Reads the record at each expected offset and reports its state. Removes the checked partitions from `expected`.
fn check_topic(
    consumer: &Consumer,
    topic: &str,
    expected: &mut BTreeMap<i32, RecordFingerprint>,
    timeout: Duration,
    mut report: impl FnMut(i32, RecordFingerprint, RecordState),
) -> KafkaResult<()> {
    let mut list = TopicPartitionList::new();
    for (partition, record) in &*expected {
        list.add_partition_offset(topic, *partition, Offset::Offset(record.offset))?;
    }
    consumer.assign(&list)?;
    let mut polled = clients::poll_all(consumer, timeout);
    while !expected.is_empty()
        && let Some(polled) = polled.next()
    {
        match polled {
            Ok(message) if message.topic() == topic => {
                let partition = message.partition();
                if let Some(record) = expected.remove(&partition) {
                    let state = if message.offset() != record.offset {
                        RecordState::Gone
                    } else if digest(&message) == record.digest {
                        RecordState::Unchanged
                    } else {
                        RecordState::Changed
                    };
                    report(partition, record, state);
                }
            }
            Err(KafkaError::PartitionEOF(partition)) => {
                if let Some(record) = expected.remove(&partition) {
                    report(partition, record, RecordState::Gone);
                }
            }
            // librdkafka retries other errors, and the reading client reports them.
            Ok(_) | Err(_) => {}
        }
    }
    consumer.unassign()
}
