//! Handles the errors that a poll returns instead of a record.

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

use super::locate_unreadable::locate_unreadable;
use super::{assign_partitions, set_partitions, startup};
use crate::consumer::context::Context;
use crate::consumer::read::ReadState;
use crate::consumer::topic_client::{RANGE_RETRY_DELAY, TopicClient};
use crate::kafka::error::{IngestError, check_fatal, is_missing, is_unreadable};

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
        // librdkafka would skip the records that it cannot read.
        code if is_unreadable(code) => {
            return Err(locate_unreadable(code, client, &read.offsets, &context.kafka));
        }
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
