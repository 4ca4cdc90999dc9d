//! The checks of topics before and while they are read: added partitions, recreated topics, denied read access.

use std::time::{Duration, Instant};

use super::{assign_partitions, set_partitions};
use crate::consumer::context::Context;
use crate::consumer::read::{ReadState, partition_affinity};
use crate::consumer::topic_client::TopicClient;
use crate::consumer::topic_identity::{RecordState, Results};
use crate::kafka::assignment::{self, LookupError};
use crate::kafka::error::IngestError;
use crate::kafka::topics::TopicKind;

/// Starts a check of records and read access, assigns partitions that were added, and fetches all watermarks.
pub fn check_partitions(
    client: &mut TopicClient,
    read: &mut ReadState,
    context: &Context,
) -> Result<(), IngestError> {
    client.checker.check_records_and_access(&read.offsets);
    if client.is_member {
        // The group assigns added partitions.
        client.find_watermarks(&context.health);
        return Ok(());
    }
    match assignment::find_partitions(&client.consumer, &client.names) {
        Ok(partitions) if partitions != client.partitions => {
            let [clicks, activations, effects] =
                TopicKind::ALL.map(|topic| partitions.count(topic));
            tracing::info!(clicks, activations, effects, "the number of partitions has changed");
            partition_affinity::warn_of_counts(&client.names, &partitions);
            set_partitions(partitions, client, read, context)?;
            assign_partitions(client, read, &context.health)?;
        }
        Ok(_) => {
            let watermarks = client.find_watermarks(&context.health);
            read.router.low_watermark.set_ends(&watermarks);
        }
        Err(LookupError::Denied(topic)) => context.deny(topic, &client.names),
        // If the problem persists, fetching records fails too, and that error is handled.
        Err(unfound) => tracing::debug!(?unfound, "partitions cannot be looked up"),
    }
    Ok(())
}

/// Checks, before anything is read, that the partitions still contain the records whose fingerprints are stored: first
/// the verified records, then the last ones read.
pub fn check_known_records(
    client: &mut TopicClient,
    read: &mut ReadState,
    context: &Context,
) -> Result<(), IngestError> {
    for _ in 0..2 {
        client.checker.check_records(&read.offsets);
        let started = Instant::now();
        while client.checker.is_busy
            && !context.shutdown.is_requested()
            && started.elapsed() < context.timing.first_record_check_timeout
        {
            let results = client.checker.wait_for_results(Duration::from_millis(50));
            apply_results(results, client, read, context)?;
        }
    }
    Ok(())
}

/// Applies the results of a check. A changed record is an error: the topic was recreated.
pub fn apply_results(
    results: Results,
    client: &TopicClient,
    read: &mut ReadState,
    context: &Context,
) -> Result<(), IngestError> {
    let TopicClient { names, is_member, .. } = client;
    for (topic, may_read) in results.access {
        if !may_read {
            context.deny(topic, names);
        } else if context.health.set_denied(topic, names.of(topic), false) {
            tracing::info!(topic = %names.of(topic), "read access to the topic is granted again");
            if !is_member {
                assign_partitions(client, read, &context.health)?;
            }
        }
    }
    for ((topic, partition, record), state) in results.records {
        let is_assigned = read.offsets.next(topic, partition).is_some();
        if state == RecordState::Changed && is_assigned {
            let (topic, offset) = (names.of(topic).clone(), record.offset);
            return Err(IngestError::TopicRecreated { topic, partition, offset });
        }
        let is_present = state == RecordState::Unchanged;
        read.offsets.apply_check(topic, partition, record, is_present);
    }
    Ok(())
}
