//! The topics that dead letters go to: made where there are none, and looked at where somebody else has made them.

use std::time::Duration;

use config::Kafka;
use rdkafka::types::RDKafkaErrorCode;

use crate::consumer::shutdown::Shutdown;
use crate::kafka::clients::{Consumer, RECORD_BYTES_MAX};
use crate::kafka::error::IngestError;
use crate::kafka::{assignment, topic_admin};

/// The topic's setting of how long a record may be.
const LIMIT: &str = "max.message.bytes";

/// The topic's setting of whose clock stamps its records: brokers refuse what is stamped by one that is
/// an hour ahead of theirs.
const STAMPED_BY: (&str, &str) = ("message.timestamp.type", "LogAppendTime");

/// The topic's setting of which of its records go in time.
const CLEANED_BY: &str = "cleanup.policy";

/// Creates those that are missing. That it fails is told, and no error.
pub fn create_missing(
    (kafka, consumer): (&Kafka, &Consumer),
    names: &[&str],
    timeout: Duration,
    shutdown: &Shutdown,
) -> Result<(), IngestError> {
    let (mut missing, mut existing) = (Vec::new(), Vec::new());
    for name in names.iter().copied() {
        match assignment::partition_count(consumer, name) {
            Ok(Some(_)) => existing.push(name),
            Ok(None) => missing.push(name),
            Err(error) => {
                tracing::warn!(name, %error, "the topic for dead letters cannot be looked up");
            }
        }
    }
    warn_of_settings(kafka, &existing, timeout)?;
    if missing.is_empty() { Ok(()) } else { create(kafka, &missing, timeout, shutdown) }
}

/// Of topics that somebody else has made: a letter that they do not take stops all reading, and one that they
/// forget is lost.
fn warn_of_settings(kafka: &Kafka, topics: &[&str], timeout: Duration) -> Result<(), IngestError> {
    if topics.is_empty() {
        return Ok(());
    }
    let settings = topic_admin::settings(kafka, topics, [CLEANED_BY, LIMIT], timeout)?;
    for (topic, [policy, limit]) in topics.iter().zip(settings) {
        if let Some(policy) = policy.filter(|policy| policy.contains("compact")) {
            tracing::warn!(
                topic,
                policy,
                "of dead letters with one key only the last would be kept, and one without a key would stop all \
                 reading: set {CLEANED_BY}=delete on the topic"
            );
        }
        let least: u64 = RECORD_BYTES_MAX.parse().unwrap_or(u64::MAX);
        if let Some(limit) = limit.filter(|limit| limit.parse().is_ok_and(|it: u64| it < least)) {
            tracing::warn!(
                topic,
                limit,
                "a dead letter of more bytes would stop all reading: set {LIMIT}={RECORD_BYTES_MAX} \
                 on the topic"
            );
        }
    }
    Ok(())
}

fn create(
    kafka: &Kafka,
    names: &[&str],
    timeout: Duration,
    shutdown: &Shutdown,
) -> Result<(), IngestError> {
    let (key, value) = STAMPED_BY;
    let topic = |name| topic_admin::topic(name).set(LIMIT, RECORD_BYTES_MAX).set(key, value);
    let topics: Vec<_> = names.iter().map(|name| topic(name)).collect();
    match topic_admin::create(kafka, &topics, timeout, || shutdown.is_requested())? {
        Some(Ok(results)) => results.into_iter().for_each(report_creation),
        Some(Err(error)) => {
            tracing::warn!(%error, "topics for dead letters cannot be created");
        }
        None => {}
    }
    Ok(())
}

fn report_creation(result: Result<String, (String, RDKafkaErrorCode)>) {
    match result {
        Ok(topic) => tracing::info!(topic, "topic for dead letters created"),
        Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
        Err((topic, error)) => {
            tracing::warn!(topic, %error, "the topic for dead letters cannot be created");
        }
    }
}
