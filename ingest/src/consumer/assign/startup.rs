//! Startup of the reading thread: finds the topics, checks the stored positions, and assigns all partitions or joins
//! the group.

use std::time::Instant;

use rdkafka::consumer::Consumer as _;

use super::{assign_partitions, checks, group_member, set_partitions};
use crate::consumer::context::Context;
use crate::consumer::read::{ReadState, partition_affinity};
use crate::consumer::topic_client::TopicClient;
use crate::dead_letters::producer::DeadLetters;
use crate::kafka::assignment::{self, LookupError, MissingRecords};
use crate::kafka::clients;
use crate::kafka::committed;
use crate::kafka::error::{IngestError, UNREACHABLE_HELP};
use crate::kafka::offsets::Offsets;
use crate::kafka::partitions::Partitions;
use crate::kafka::retry::{Throttle, delays};
use crate::observability::health::Health;

/// Finds the topics and assigns every partition, or joins the group. Returns false after a shutdown request.
pub fn start_reading(
    client: &mut TopicClient,
    read: &mut ReadState,
    dead_letters: &DeadLetters,
    context: &Context,
) -> Result<bool, IngestError> {
    let Some(partitions) = find_topics(client, context)? else { return Ok(false) };
    partition_affinity::warn_of_counts(&client.names, &partitions);
    dead_letters.create_topics(&context.kafka, &client.consumer, &context.shutdown)?;
    let health = &context.health;
    if client.is_member {
        health.set_connected(true);
        group_member::join(client)?;
        return Ok(true);
    }
    set_partitions(partitions, client, read, context)?;
    checks::check_known_records(client, read, context)?;
    warn_of_missing_records(client, &read.offsets, health, &context.kafka.group);
    assign_partitions(client, read, health)?;
    health.set_connected(true);
    health.set_assigned(true);
    Ok(true)
}

/// Finds the topics, with retries until the brokers answer; `None` after a shutdown request.
pub fn find_topics(
    client: &TopicClient,
    context: &Context,
) -> Result<Option<Partitions>, IngestError> {
    let TopicClient { consumer, names, .. } = client;
    let (health, timing) = (&context.health, context.timing);
    let warnings = Throttle::default();
    let mut missing_since = None;
    for delay in delays(timing) {
        if context.shutdown.is_requested() {
            break;
        }
        match assignment::find_partitions(consumer, names) {
            Ok(partitions) => return Ok(Some(partitions)),
            Err(LookupError::NoTopic(topic)) => {
                health.set_connected(true);
                let since = missing_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= timing.missing_topic_timeout {
                    let (setting, topic) = (topic.setting(), names.of(topic).clone());
                    return Err(IngestError::NoTopic { setting, topic });
                }
            }
            Err(LookupError::Denied(topic)) => {
                health.set_connected(true);
                context.deny(topic, names);
            }
            Err(LookupError::Unreachable(error)) => {
                health.set_connected(false);
                health.set_refusal(consumer.context().refusal());
                let brokers = &context.kafka.brokers;
                warnings.warn(|| {
                    tracing::warn!(brokers, %error, "kafka does not answer, retrying; {UNREACHABLE_HELP}");
                });
            }
        }
        clients::serve(consumer);
        context.shutdown.sleep(delay.min(timing.metadata_retry_delay_max));
    }
    Ok(None)
}

/// Warns if the group has committed offsets beyond the store's positions: the store was restored, its WAL was damaged,
/// or a new store was created because the old one is missing. Nothing else would show that records are read again or
/// that Kafka has deleted some of them.
fn warn_of_missing_records(client: &TopicClient, offsets: &Offsets, health: &Health, group: &str) {
    let TopicClient { consumer, names, partitions, .. } = client;
    let group_offsets = match committed::find_committed(consumer, names, partitions) {
        Ok(committed) => committed.offsets,
        Err(error) => {
            tracing::debug!(%error, "the group's offsets cannot be fetched");
            return;
        }
    };
    let watermarks = client.find_watermarks(health);
    let MissingRecords { available, deleted, is_without_position } =
        assignment::find_missing(partitions, &group_offsets, offsets, &watermarks);
    if is_without_position {
        tracing::warn!(
            records = available,
            gone = deleted,
            group,
            "the store has no position in partitions that the group has read: it is a new or a different \
             store. If the old one is missing (a disk that is not mounted, a changed store.path), stop and \
             bring it back. Records that kafka still has are read again; deleted ones are missing from exports"
        );
    } else if available > 0 {
        tracing::warn!(
            records = available,
            "the store is behind the offsets that it committed to kafka: it was restored, or its WAL was \
             damaged or lost; the records in between are read again"
        );
    }
}
