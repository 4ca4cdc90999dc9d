//! Dead letters sent again to where they came from, each once.
//!
//! A letter and the note that it was sent are written in one transaction, and a run begins with
//! the notes of all that were before it. So neither a second run nor one that was killed, nor two
//! side by side, send a letter twice; and one record that became two letters is sent once.

mod delivery_reports;
mod journal;
pub(crate) mod letter;
mod sender;

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use config::Kafka;
use rdkafka::message::Message;

use crate::decode::ErrorCode;
use crate::kafka::error::IngestError;
use crate::kafka::topic_scan::{ScanEnd, ScanProgress, ScanStart, Step, TopicScan};
use crate::kafka::topics::{TopicKind, TopicNames};
use crate::timing::Timing;
pub use letter::Obstacle;
use letter::{Letter, Source};
use sender::Sender;

/// Letters of one transaction.
const LETTERS_MAX: usize = 1000;
/// And their bytes, but for the last.
const BYTES_MAX: usize = 16 << 20;
/// Letters that stay are named one by one up to here.
const LEFT_TOLD: u64 = 5;

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub struct Resend<'a> {
    pub kafka: &'a Kafka,
    /// The dead letters'.
    pub topic: &'a str,
    /// Only letters with one of these; empty for all.
    pub codes: &'a [ErrorCode],
    /// Count, and send none.
    pub dry_run: bool,
    pub timing: Timing,
}

/// What became of the letters read.
#[derive(Debug, Default)]
pub struct Report {
    /// By code and topic.
    pub counts: BTreeMap<(String, TopicKind), Counts>,
    pub left: BTreeMap<Obstacle, u64>,
}

/// Of letters with one code and one topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sent, or with `dry_run` those that would be.
    pub sent: u64,
    /// By a run before this one.
    pub sent_before: u64,
    /// Second letters of a record that this run sends.
    pub repeated: u64,
    /// With a code that was not chosen.
    pub filtered: u64,
}

impl Resend<'_> {
    /// Reads the topic to the end that it has now. `report` holds what is done, whether or not
    /// all is; `told` is told how far the reading is.
    ///
    /// # Errors
    /// What keeps Kafka from taking letters: those of the transaction that fails are not sent. And
    /// that some are too long, once all others are sent.
    pub fn run(
        self,
        report: &mut Report,
        mut told: impl FnMut(ScanProgress),
    ) -> Result<(), IngestError> {
        let names = TopicNames::new(&self.kafka.topics);
        // Before the journal is begun: a wrong name leaves nothing behind.
        let (timing, kafka, topic) = (self.timing, self.kafka, self.topic);
        let letters =
            TopicScan::start(kafka, topic, ScanStart::Beginning, ScanEnd::Snapshot, timing)?;
        // First the exclusive right, then the look at what was sent: nobody adds to it any more.
        let sender = if self.dry_run {
            None
        } else {
            journal::create(kafka, topic, timing.admin_request_timeout)?;
            Some(Sender::start(kafka, topic, &names, timing)?)
        };
        let sent_before = match journal::read(kafka, topic, &names, timing) {
            Err(IngestError::NoSuchTopic(_)) if self.dry_run => HashSet::new(),
            outcome => outcome?,
        };
        let mut run = Run {
            codes: self.codes,
            names,
            sender,
            sent_before,
            taken: HashSet::new(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            report,
        };
        letters.run(|step, extent| {
            if let Step::Record(message) = step {
                match Letter::read(message, &run.names) {
                    Ok(letter) => run.take(letter)?,
                    Err(obstacle) => {
                        run.leave((message.partition(), message.offset()), obstacle);
                    }
                }
            }
            told(extent);
            Ok::<_, IngestError>(ControlFlow::Continue(()))
        })?;
        run.send()?;
        match run.report.left.get(&Obstacle::TooLong) {
            Some(count) => Err(IngestError::TooLong { count: *count }),
            None => Ok(()),
        }
    }
}

struct Run<'a> {
    codes: &'a [ErrorCode],
    names: TopicNames,
    /// None: nothing is sent.
    sender: Option<Sender>,
    sent_before: HashSet<Source>,
    /// By this run.
    taken: HashSet<Source>,
    /// For the next transaction.
    waiting: Vec<Letter>,
    waiting_bytes: usize,
    report: &'a mut Report,
}

impl Run<'_> {
    fn take(&mut self, letter: Letter) -> Result<(), IngestError> {
        let is_chosen = self.is_chosen(&letter.code);
        let kind = (letter.code.clone(), letter.source.topic);
        let counts = self.report.counts.entry(kind).or_default();
        if self.sent_before.contains(&letter.source) {
            counts.sent_before += 1;
        } else if !is_chosen {
            counts.filtered += 1;
        } else if !self.taken.insert(letter.source) {
            counts.repeated += 1;
        } else {
            self.waiting_bytes += letter.bytes();
            self.waiting.push(letter);
            if self.waiting.len() >= LETTERS_MAX || self.waiting_bytes >= BYTES_MAX {
                self.send()?;
            }
        }
        Ok(())
    }

    fn is_chosen(&self, code: &str) -> bool {
        self.codes.is_empty() || self.codes.iter().any(|chosen| chosen.name() == code)
    }

    fn send(&mut self) -> Result<(), IngestError> {
        let letters = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let too_long = match &self.sender {
            Some(sender) => sender.send(&letters)?,
            None => Vec::new(),
        };
        for (index, letter) in letters.into_iter().enumerate() {
            if too_long.contains(&index) {
                self.leave((letter.partition, letter.offset), Obstacle::TooLong);
            } else {
                let kind = (letter.code, letter.source.topic);
                self.report.counts.entry(kind).or_default().sent += 1;
            }
        }
        Ok(())
    }

    /// Notes a letter, by partition and offset, that stays.
    fn leave(&mut self, (partition, offset): (i32, i64), obstacle: Obstacle) {
        *self.report.left.entry(obstacle).or_default() += 1;
        if self.report.left.values().sum::<u64>() <= LEFT_TOLD {
            tracing::warn!(partition, offset, "left where it is: {}", obstacle.reason());
        }
    }
}
