//! Prints a topic's records as JSON lines, to inspect what producers send.
//!
//! `record_json` formats a record; this module selects the records.

pub(crate) mod event;
pub(crate) mod record_json;

use std::ops::ControlFlow;

use config::Config;
use rdkafka::message::{BorrowedMessage, Message};

use crate::decode::decoder::Decoder;
use crate::kafka::error::IngestError;
use crate::kafka::headers;
pub use crate::kafka::topic_scan::ScanStart as Start;
use crate::kafka::topic_scan::{ScanEvent, TopicScan};
use crate::kafka::topics::TopicNames;
use crate::timing::Timing;
use record_json::{Record, View};

/// The topic and records to print.
#[derive(Debug, Clone, Copy)]
pub struct Peek<'a> {
    pub config: &'a Config,
    pub topic: &'a str,
    pub from: Start,
    /// Maximum number of records.
    pub count: Option<u64>,
    /// Prints the value without decoding it, and the headers.
    pub raw: bool,
    pub timing: Timing,
}

impl Peek<'_> {
    /// Passes each line, with its line end, to `sink`, in order within a partition; and `None` when no record is
    /// available, so that `sink` can flush. Ends early if `sink` breaks.
    ///
    /// # Errors
    /// If the topic cannot be read. Invalid records are not an error: they are printed.
    pub fn run(
        self,
        mut sink: impl FnMut(Option<&str>) -> ControlFlow<()>,
    ) -> Result<(), IngestError> {
        if self.count == Some(0) {
            return Ok(());
        }
        let names = TopicNames::new(&self.config.kafka.topics);
        let timing = self.timing;
        let decoder = Decoder::new(self.config, timing.peek_schema_timeout, timing)?;
        let mut view = View { decoder, names, raw: self.raw };
        let mut remaining = self.count;
        let scan = TopicScan::start(&self.config.kafka, self.topic, self.from, timing)?;
        scan.run(|event, _| {
            let ScanEvent::Record(message) = event else { return Ok(sink(None)) };
            let flow = sink(Some(&record_json::line(&record(message), &mut view)));
            remaining = remaining.map(|count| count - 1);
            Ok(if remaining == Some(0) { ControlFlow::Break(()) } else { flow })
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
