//! Handles the errors that a poll returns instead of a record.

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

use super::locate_unreadable::{UnreadableRecords, locate_unreadable};
use super::{assign_partitions, set_partitions, startup};
use crate::consumer::context::Context;
use crate::consumer::read::ReadState;
use crate::consumer::topic_client::{RANGE_RETRY_DELAY, TopicClient};
use crate::kafka::error::{IngestError, check_fatal, is_missing, is_too_large, is_unreadable};

/// Handles a polled error. Most are ignored, because librdkafka retries by itself.
pub fn handle(
    error: &KafkaError,
    client: &mut TopicClient,
    read: &mut ReadState,
    context: &Context,
) -> Result<(), IngestError> {
    let KafkaError::MessageConsumption(code) = error else { return check_fatal(error) };
    let (health, shutdown) = (&context.health, &context.shutdown);
    match *code {
        RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange => {
            client.check_positions(&read.offsets, context)?;
            tracing::warn!(%error, "all positions are in range after all, resuming from them");
            shutdown.sleep(RANGE_RETRY_DELAY);
            assign_partitions(client, read, health)?;
        }
        code if is_missing(code) => find_missing_topics(client, read, context)?,
        code if is_unreadable(code) => pass_over(code, client, read, context)?,
        // The error does not name the topic.
        RDKafkaErrorCode::TopicAuthorizationFailed => {
            client.checker.check_records_and_access(&read.offsets);
        }
        RDKafkaErrorCode::AllBrokersDown => health.set_connected(false),
        _ => {}
    }
    Ok(())
}

/// Waits until all topics exist, and reads on. Until then no partition is assigned, because [`startup::find_topics`]
/// drops the records that it polls.
fn find_missing_topics(
    client: &mut TopicClient,
    read: &mut ReadState,
    context: &Context,
) -> Result<(), IngestError> {
    read.skip_markers(client);
    let is_assigned = !client.partitions.is_empty();
    if is_assigned {
        client.consumer.unassign().map_err(IngestError::Client)?;
    }
    let Some(partitions) = startup::find_topics(client, context)? else { return Ok(()) };
    if !client.is_member {
        set_partitions(partitions, client, read, context)?;
        return assign_partitions(client, read, &context.health);
    }
    // A pending rebalance assigns other partitions.
    if is_assigned && !client.consumer.context().has_pending_rebalance() {
        assign_partitions(client, read, &context.health)?;
    }
    Ok(())
}

/// Passes over records that exceed a limit of the client, each with a dead letter. Damaged records are an error: a
/// broker may have an intact copy, and librdkafka could skip them.
fn pass_over(
    code: RDKafkaErrorCode,
    client: &TopicClient,
    read: &mut ReadState,
    context: &Context,
) -> Result<(), IngestError> {
    match locate_unreadable(client, read, context) {
        Some(records) if is_too_large(records.error) => {
            let UnreadableRecords { topic, partition, offsets, error } = records;
            let first = offsets.start;
            tracing::error!(
                topic = %client.names.of(topic), partition, first, count = offsets.end - first, %error,
                "records cannot be decompressed, probably because they are too large; they become dead \
                 letters without a value"
            );
            read.pass_over(topic, partition, offsets, error);
        }
        Some(UnreadableRecords { topic, partition, offsets, error }) => {
            let (offset, name) = (offsets.start, client.names.of(topic));
            let location = format!("offset {offset} or later of partition {partition} of {name}");
            return Err(IngestError::UnreadableAt { location, error });
        }
        // The broker did not answer, or the record has expired: reading it again shows which.
        None if is_too_large(code) => {
            tracing::warn!(error = %code, "a record cannot be read, but was not located; reading again");
            context.shutdown.sleep(RANGE_RETRY_DELAY);
        }
        None => {
            let location = "partition unknown".to_owned();
            return Err(IngestError::UnreadableAt { location, error: code });
        }
    }
    assign_partitions(client, read, &context.health)
}
