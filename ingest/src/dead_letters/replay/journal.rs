//! The journal of replays: a compacted topic with one record for each sent letter, written in the transaction that
//! sends the letter. Each dead-letter topic has its own journal.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Duration;

use config::Kafka;
use rdkafka::message::Message;
use rdkafka::types::RDKafkaErrorCode;

use super::dead_letter::Source;
use crate::kafka::error::IngestError;
use crate::kafka::topic_admin;
use crate::kafka::topic_scan::{ScanEvent, ScanStart, TopicScan};
use crate::kafka::topics::TopicNames;
use crate::timing::Timing;

/// Suffix of a journal's name.
pub const SUFFIX: &str = ".replayed";

pub fn name(topic: &str) -> String {
    format!("{topic}{SUFFIX}")
}

/// Creates the topic if it is missing.
pub fn create(kafka: &Kafka, topic: &str, timeout: Duration) -> Result<(), IngestError> {
    let name = name(topic);
    let new = topic_admin::topic(&name).set("cleanup.policy", "compact");
    let failure = |error: String| IngestError::NotCreated { topic: name.clone(), error };
    match topic_admin::create(kafka, &[new], timeout, || false)? {
        Some(Ok(results)) => match results.into_iter().next() {
            Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => check(kafka, name, timeout),
            Some(Err((_, error))) => Err(failure(error.to_string())),
            Some(Ok(_)) | None => {
                tracing::info!(
                    topic = name,
                    "topic created; it records which dead letters were sent"
                );
                Ok(())
            }
        },
        Some(Err(error)) => Err(failure(error.to_string())),
        None => Ok(()),
    }
}

/// Checks that an existing journal is only compacted: another cleanup policy would delete records.
fn check(kafka: &Kafka, topic: String, timeout: Duration) -> Result<(), IngestError> {
    let found = topic_admin::settings(kafka, &[&topic], ["cleanup.policy"], timeout)?;
    let policy = found.into_iter().flatten().next().flatten();
    match policy {
        Some(policy) if policy != "compact" => Err(IngestError::NotCompacted { topic, policy }),
        Some(_) => Ok(()),
        None => {
            tracing::warn!(topic, "the topic's cleanup.policy cannot be read; it must be compact");
            Ok(())
        }
    }
}

/// Reads the sources of all sent letters.
pub fn read(
    kafka: &Kafka,
    topic: &str,
    names: &TopicNames,
    timing: Timing,
) -> Result<HashSet<Source>, IngestError> {
    let mut sent = HashSet::new();
    let scan = TopicScan::start(kafka, &name(topic), ScanStart::Beginning, timing)?;
    scan.run(|event, _| {
        if let ScanEvent::Record(record) = event {
            sent.extend(record.key().and_then(|key| Source::parse(key, names)));
        }
        Ok::<_, IngestError>(ControlFlow::Continue(()))
    })?;
    Ok(sent)
}
