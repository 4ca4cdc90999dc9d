//! Creates missing dead-letter topics, and checks the configuration of existing ones.

use std::time::Duration;

use config::Kafka;
use rdkafka::types::RDKafkaErrorCode;

use crate::consumer::shutdown::Shutdown;
use crate::kafka::clients::{Consumer, RECORD_BYTES_MAX};
use crate::kafka::error::IngestError;
use crate::kafka::{assignment, topic_admin};

pub const SIZE_LIMIT: &str = "max.message.bytes";

/// Makes brokers set the timestamps of records, because they reject a producer's timestamp that is an hour ahead of
/// their clock.
const TIMESTAMP_TYPE: (&str, &str) = ("message.timestamp.type", "LogAppendTime");

const CLEANUP_POLICY: &str = "cleanup.policy";

/// Creates the missing topics. Failures that Kafka reports are only logged.
pub fn create_missing(
    kafka: &Kafka,
    consumer: &Consumer,
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
                tracing::warn!(name, %error, "the dead-letter topic cannot be looked up");
            }
        }
    }
    warn_of_settings(kafka, &existing, timeout)?;
    if missing.is_empty() { Ok(()) } else { create(kafka, &missing, timeout, shutdown) }
}

/// Warns if an existing topic would reject whole dead letters or compact them away.
fn warn_of_settings(kafka: &Kafka, topics: &[&str], timeout: Duration) -> Result<(), IngestError> {
    if topics.is_empty() {
        return Ok(());
    }
    let settings = topic_admin::settings(kafka, topics, [CLEANUP_POLICY, SIZE_LIMIT], timeout)?;
    for (topic, [policy, limit]) in topics.iter().zip(settings) {
        if let Some(policy) = policy.filter(|policy| policy.contains("compact")) {
            tracing::warn!(
                topic,
                policy,
                "the dead-letter topic is compacted: it would keep only the last dead letter of each key, and one \
                 without a key would stop all reading: set {CLEANUP_POLICY}=delete on the topic"
            );
        }
        let needed: u64 = RECORD_BYTES_MAX.parse().unwrap_or(u64::MAX);
        let is_too_low = |limit: &String| limit.parse().is_ok_and(|limit: u64| limit < needed);
        if let Some(limit) = limit.filter(is_too_low) {
            tracing::warn!(
                topic,
                limit,
                "a dead letter larger than the topic's limit is sent without its value: set \
                 {SIZE_LIMIT}={RECORD_BYTES_MAX} on the topic"
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
    let (key, value) = TIMESTAMP_TYPE;
    let topic = |name| topic_admin::topic(name).set(SIZE_LIMIT, RECORD_BYTES_MAX).set(key, value);
    let topics: Vec<_> = names.iter().map(|name| topic(name)).collect();
    match topic_admin::create(kafka, &topics, timeout, || shutdown.is_requested())? {
        Some(Ok(results)) => results.into_iter().for_each(log_creation),
        Some(Err(error)) => {
            tracing::warn!(%error, "the dead-letter topics cannot be created");
        }
        None => {}
    }
    Ok(())
}

fn log_creation(result: Result<String, (String, RDKafkaErrorCode)>) {
    match result {
        Ok(topic) => tracing::info!(topic, "dead-letter topic created"),
        Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
        Err((topic, error)) => {
            tracing::warn!(topic, %error, "the dead-letter topic cannot be created");
        }
    }
}
