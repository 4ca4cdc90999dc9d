//! A topic's records as JSON lines, for people who look at what producers send.
//!
//! What a line says of a record is `line`'s to say; here is which records are shown.

pub(crate) mod event;
pub(crate) mod line;

use std::ops::ControlFlow;

use config::Config;
use rdkafka::message::{BorrowedMessage, Message};

use crate::decode::decoder::Decoder;
use crate::kafka::error::IngestError;
use crate::kafka::headers;
use crate::kafka::topic_scan::{ScanEnd, ScanStart, Step, TopicScan};
use crate::kafka::topics::TopicNames;
use crate::timing::Timing;
use line::{Record, View};

/// What is to be shown.
#[derive(Debug, Clone, Copy)]
pub struct Peek<'a> {
    pub config: &'a Config,
    pub topic: &'a str,
    pub from: Start,
    /// At most so many records.
    pub count: Option<u64>,
    /// The value as it is, with the headers, and not decoded.
    pub raw: bool,
    pub timing: Timing,
}

/// Where showing begins, and with that where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the oldest record; it ends where the topic ends now.
    Beginning,
    /// With those that the broker received at this time, in ms since 1970, or later; it ends
    /// where the topic ends now.
    Time(i64),
    /// With what is produced from now on; it does not end.
    End,
}

impl Peek<'_> {
    /// Hands each line, with its end, to `sink`, in order within a partition; nothing when there
    /// is time to write what was handed on. Ends early when `sink` breaks off.
    ///
    /// # Errors
    /// Of reading. What a record is, is none: it is shown.
    pub fn run(
        self,
        mut sink: impl FnMut(Option<&str>) -> ControlFlow<()>,
    ) -> Result<(), IngestError> {
        let (from, to) = match self.from {
            Start::Beginning => (ScanStart::Beginning, ScanEnd::Snapshot),
            Start::Time(time_ms) => (ScanStart::Time(time_ms), ScanEnd::Snapshot),
            Start::End => (ScanStart::End, ScanEnd::Never),
        };
        if self.count == Some(0) {
            return Ok(());
        }
        let names = TopicNames::new(&self.config.kafka.topics);
        let patience = self.timing.peek_schema_patience;
        let decoder = Decoder::new(self.config, patience, self.timing)?;
        let mut view = View { decoder, names, raw: self.raw };
        let mut left = self.count;
        let sweep = TopicScan::start(&self.config.kafka, self.topic, from, to, self.timing)?;
        sweep.run(|step, _| {
            let Step::Record(message) = step else { return Ok(sink(None)) };
            let flow = sink(Some(&line::line(&record(message), &mut view)));
            left = left.map(|left| left - 1);
            Ok(if left == Some(0) { ControlFlow::Break(()) } else { flow })
        })
    }
}

fn record<'m>(message: &'m BorrowedMessage<'_>) -> Record<'m> {
    Record {
        topic: message.topic(),
        partition: message.partition(),
        offset: message.offset(),
        broker_ms: message.timestamp().to_millis(),
        key: message.key(),
        value: message.payload(),
        headers: headers::all(message),
    }
}
