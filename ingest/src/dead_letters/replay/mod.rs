//! Replays dead letters: sends each once to its source topic.
//!
//! A letter and its journal record are written in one transaction, and each replay first reads the journal. So no
//! letter is sent twice, even if a replay is repeated, killed, or run twice at the same time; and if a record has
//! several letters, only one of them is sent.

pub(crate) mod dead_letter;
mod delivery_reports;
mod journal;
mod sender;

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use config::Kafka;
use rdkafka::message::Message;

use crate::decode::ErrorCode;
use crate::kafka::error::IngestError;
use crate::kafka::topic_scan::{ScanEvent, ScanProgress, ScanStart, TopicScan};
use crate::kafka::topics::{TopicKind, TopicNames};
use crate::timing::Timing;
pub use dead_letter::SkipReason;
use dead_letter::{DeadLetter, Source};
use sender::Sender;

/// Maximum number of letters in one transaction.
const LETTERS_MAX: usize = 1000;
/// Size at which a transaction ends; the last letter may exceed it.
const BYTES_MAX: usize = 16 << 20;
/// Maximum number of skipped letters that are logged individually.
const SKIPS_LOGGED_MAX: u64 = 5;

/// The options of a replay.
#[derive(Debug, Clone, Copy)]
pub struct Replay<'a> {
    pub kafka: &'a Kafka,
    /// The dead-letter topic.
    pub topic: &'a str,
    /// Error codes of the letters to send; empty for all.
    pub codes: &'a [ErrorCode],
    /// Counts the letters without sending them.
    pub dry_run: bool,
    pub timing: Timing,
}

/// The results of a replay.
#[derive(Debug, Default)]
pub struct Report {
    /// Counts by error code and source topic.
    pub counts: BTreeMap<(String, TopicKind), Counts>,
    /// Letters that cannot be sent, by reason.
    pub skipped: BTreeMap<SkipReason, u64>,
}

/// Counts of the letters with one error code and source topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sent by this replay; with `dry_run`, to be sent.
    pub sent: u64,
    /// Sent by an earlier replay.
    pub sent_before: u64,
    /// Further letters of a record that this replay sends.
    pub repeated: u64,
    /// Letters whose error code is not selected.
    pub filtered: u64,
}

impl Replay<'_> {
    /// Reads the topic up to its current end and sends its letters. `report` is correct even after an error;
    /// `on_progress` is called after each record.
    ///
    /// # Errors
    /// If Kafka rejects a transaction: none of its letters are sent. If letters are too large: all others are sent
    /// first.
    pub fn run(
        self,
        report: &mut Report,
        mut on_progress: impl FnMut(ScanProgress),
    ) -> Result<(), IngestError> {
        let names = TopicNames::new(&self.kafka.topics);
        // Finds the topic before the journal is created, so that a wrong name leaves nothing behind.
        let (timing, kafka, topic) = (self.timing, self.kafka, self.topic);
        let letters = TopicScan::start(kafka, topic, ScanStart::Beginning, timing)?;
        // The start of the sender fences other replays, so that none can extend the journal after it is read.
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
        let mut state = ReplayState {
            codes: self.codes,
            names,
            sender,
            sent_before,
            seen: HashSet::new(),
            pending: Vec::new(),
            pending_bytes: 0,
            report,
        };
        letters.run(|event, progress| {
            if let ScanEvent::Record(message) = event {
                match DeadLetter::read(message, &state.names) {
                    Ok(letter) => state.add(letter)?,
                    Err(reason) => {
                        state.skip(message.partition(), message.offset(), reason);
                    }
                }
            }
            on_progress(progress);
            Ok::<_, IngestError>(ControlFlow::Continue(()))
        })?;
        state.send()?;
        match state.report.skipped.get(&SkipReason::TooLong) {
            Some(count) => Err(IngestError::TooLong { count: *count }),
            None => Ok(()),
        }
    }
}

/// The state of a running replay.
struct ReplayState<'a> {
    codes: &'a [ErrorCode],
    names: TopicNames,
    /// `None` for a dry run.
    sender: Option<Sender>,
    sent_before: HashSet<Source>,
    /// Sources of the letters that this replay sends.
    seen: HashSet<Source>,
    /// Letters of the next transaction.
    pending: Vec<DeadLetter>,
    pending_bytes: usize,
    report: &'a mut Report,
}

impl ReplayState<'_> {
    fn add(&mut self, letter: DeadLetter) -> Result<(), IngestError> {
        let is_named = |code: &ErrorCode| code.name() == letter.code;
        let is_selected = self.codes.is_empty() || self.codes.iter().any(is_named);
        let kind = (letter.code.clone(), letter.source.topic);
        let counts = self.report.counts.entry(kind).or_default();
        if self.sent_before.contains(&letter.source) {
            counts.sent_before += 1;
        } else if !is_selected {
            counts.filtered += 1;
        } else if !self.seen.insert(letter.source) {
            counts.repeated += 1;
        } else {
            self.pending_bytes += letter.bytes();
            self.pending.push(letter);
            if self.pending.len() >= LETTERS_MAX || self.pending_bytes >= BYTES_MAX {
                self.send()?;
            }
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), IngestError> {
        let letters = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let oversized = match &self.sender {
            Some(sender) => sender.send(&letters)?,
            None => Vec::new(),
        };
        for (index, letter) in letters.into_iter().enumerate() {
            if oversized.contains(&index) {
                self.skip(letter.partition, letter.offset, SkipReason::TooLong);
            } else {
                let kind = (letter.code, letter.source.topic);
                self.report.counts.entry(kind).or_default().sent += 1;
            }
        }
        Ok(())
    }

    /// Counts and logs a letter that cannot be sent.
    fn skip(&mut self, partition: i32, offset: i64, reason: SkipReason) {
        *self.report.skipped.entry(reason).or_default() += 1;
        if self.report.skipped.values().sum::<u64>() <= SKIPS_LOGGED_MAX {
            tracing::warn!(partition, offset, "dead letter skipped: {}", reason.description());
        }
    }
}
