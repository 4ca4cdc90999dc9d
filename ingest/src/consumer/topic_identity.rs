//! Whether partitions still have the records that were read of them: a topic that was deleted and
//! made anew has others, at the same offsets once it is as long.
//!
//! A client of its own looks, on a thread of its own, so that reading does not wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use attribution::ledger::RecordFingerprint;
use config::Kafka;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::digest::digest;
use crate::kafka::assignment::{self, is_denial};
use crate::kafka::clients::{self, Consumer};
use crate::kafka::error::IngestError;
use crate::kafka::topics::{TopicKind, TopicNames};
use crate::timing::Timing;

/// A record that was read, and where.
pub type Place = (TopicKind, i32, RecordFingerprint);

/// What is at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    Same,
    Another,
    /// It expired, or was compacted away.
    Gone,
}

/// What is looked at; and whether, besides, every topic may be read.
struct Question {
    places: Vec<Place>,
    may_read: bool,
}

/// What was seen, of what brokers did answer.
#[derive(Debug, Default)]
pub struct Answer {
    pub seen: Vec<(Place, Seen)>,
    /// Whether a topic may be read.
    pub access: Vec<(TopicKind, bool)>,
}

/// The thread that looks.
pub struct TopicIdentityChecker {
    consumer: Arc<Consumer>,
    questions: SyncSender<Question>,
    answers: Receiver<Answer>,
    is_looking: bool,
}

impl TopicIdentityChecker {
    pub fn start(kafka: &Kafka, names: &TopicNames, timing: Timing) -> Result<Self, IngestError> {
        let consumer = Arc::new(clients::looker(kafka)?);
        let (looking, names) = (Arc::clone(&consumer), names.clone());
        let (questions, asked) = sync_channel::<Question>(1);
        let (tell, answers) = sync_channel(1);
        let timeout = timing.record_check_timeout;
        let work = move || {
            for Question { places, may_read } in asked {
                let seen = look(&looking, &names, &places, timeout);
                let access = if may_read { try_all(&looking, &names, timeout) } else { Vec::new() };
                if tell.send(Answer { seen, access }).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("adtrail-witness".to_owned())
            .spawn(work)
            .map_err(IngestError::Thread)?;
        Ok(Self { consumer, questions, answers, is_looking: false })
    }

    /// To ask brokers where partitions really end: the client that reads is told of no more than it may
    /// read.
    pub fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    /// Has places looked at, unless it is looking at others.
    pub fn ask(&mut self, places: Vec<Place>) {
        if !places.is_empty() {
            self.send(Question { places, may_read: false });
        }
    }

    /// As [`TopicIdentityChecker::ask`], and tries whether every topic may be read.
    pub fn ask_all(&mut self, places: Vec<Place>) {
        self.send(Question { places, may_read: true });
    }

    fn send(&mut self, question: Question) {
        if !self.is_looking {
            self.is_looking = self.questions.try_send(question).is_ok();
        }
    }

    pub fn is_looking(&self) -> bool {
        self.is_looking
    }

    /// What was seen, for as long as that is waited for.
    pub fn answer(&mut self, patience: Duration) -> Answer {
        if !self.is_looking {
            return Answer::default();
        }
        match self.answers.recv_timeout(patience) {
            Ok(answer) => {
                self.is_looking = false;
                answer
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Answer::default(),
        }
    }
}

/// What brokers do not answer is left out.
fn look(
    consumer: &Consumer,
    names: &TopicNames,
    places: &[Place],
    timeout: Duration,
) -> Vec<(Place, Seen)> {
    let mut seen = Vec::with_capacity(places.len());
    for topic in TopicKind::ALL {
        let of_topic = places.iter().filter(|(of, _, _)| *of == topic);
        let mut open = of_topic.map(|(_, partition, mark)| (*partition, *mark)).collect();
        let tell = |partition, mark, what| seen.push(((topic, partition, mark), what));
        let outcome = look_at(consumer, names.of(topic), &mut open, timeout, tell);
        if let Err(error) = outcome {
            tracing::debug!(%error, topic = %names.of(topic), "records that were read cannot be looked at");
        }
    }
    seen
}

/// Rules are of topics, so one partition of each tells.
fn try_all(consumer: &Consumer, names: &TopicNames, timeout: Duration) -> Vec<(TopicKind, bool)> {
    let of = |topic| Some((topic, may_read(consumer, names.of(topic), timeout)?));
    TopicKind::ALL.into_iter().filter_map(of).collect()
}

/// `None` if no broker says.
fn may_read(consumer: &Consumer, topic: &str, timeout: Duration) -> Option<bool> {
    if assignment::partition_count(consumer, topic).is_err_and(|error| is_denial(&error)) {
        return Some(false);
    }
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::End).ok()?;
    consumer.assign(&list).ok()?;
    let (started, mut answer) = (Instant::now(), None);
    while let Some(left) = timeout.checked_sub(started.elapsed()).filter(|_| answer.is_none()) {
        match clients::poll(consumer, left) {
            Some(Ok(message)) if message.topic() == topic => answer = Some(true),
            Some(Err(KafkaError::PartitionEOF(_))) => answer = Some(true),
            Some(Err(error)) if is_denial(&error) => answer = Some(false),
            Some(Ok(_) | Err(_)) | None => {}
        }
    }
    // It is assigned anew before it is read from again.
    let _ = consumer.unassign();
    answer
}

fn look_at(
    consumer: &Consumer,
    topic: &str,
    open: &mut BTreeMap<i32, RecordFingerprint>,
    timeout: Duration,
    mut tell: impl FnMut(i32, RecordFingerprint, Seen),
) -> KafkaResult<()> {
    let mut list = TopicPartitionList::new();
    for (partition, mark) in &*open {
        list.add_partition_offset(topic, *partition, Offset::Offset(mark.offset))?;
    }
    consumer.assign(&list)?;
    let started = Instant::now();
    while let Some(left) = timeout.checked_sub(started.elapsed()).filter(|_| !open.is_empty()) {
        match clients::poll(consumer, left) {
            Some(Ok(message)) if message.topic() == topic => {
                let partition = message.partition();
                if let Some(mark) = open.remove(&partition) {
                    tell(partition, mark, compare(mark, message.offset(), || digest(&message)));
                }
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                if let Some(mark) = open.remove(&partition) {
                    tell(partition, mark, Seen::Gone);
                }
            }
            // Whatever else is wrong is tried again by the client, and heard where records are read.
            Some(Ok(_) | Err(_)) | None => {}
        }
    }
    consumer.unassign()
}

fn compare(mark: RecordFingerprint, offset: i64, digest: impl FnOnce() -> u64) -> Seen {
    if offset != mark.offset {
        Seen::Gone
    } else if digest() == mark.digest {
        Seen::Same
    } else {
        Seen::Another
    }
}
