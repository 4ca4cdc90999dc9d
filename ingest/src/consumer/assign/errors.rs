//! Handles the errors that a poll returns instead of a record.

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
        code if is_missing(code) => {
            if let Some(partitions) = startup::find_topics(client, context)?
                && !client.is_member
            {
                set_partitions(partitions, client, read, context)?;
                assign_partitions(client, read, health)?;
            }
        }
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
