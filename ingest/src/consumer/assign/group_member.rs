//! Consumer group membership: reads the assigned partitions from the group's offsets until they are revoked.
//!
//! On a revocation the unfinished batch is dropped, and the new owners read its records again. Unless the partitions
//! are already lost, the thread first waits for the store to commit the batches in flight and commits their offsets, so
//! that few records are read twice. Then it gives up the partitions.

use rdkafka::consumer::Consumer as _;

use super::{assign_partitions, checks, set_partitions};
use crate::consumer::context::Context;
use crate::consumer::emit::offset_commits::OffsetCommitter;
use crate::consumer::read::ReadState;
use crate::consumer::topic_client::TopicClient;
use crate::kafka::assignment;
use crate::kafka::clients::callbacks::Rebalance;
use crate::kafka::committed::{self, Committed};
use crate::kafka::error::IngestError;
use crate::kafka::partitions::Partitions;
use crate::kafka::retry::{Throttle, delays};
use crate::kafka::topics::TopicKind;
use crate::observability::health::Health;

/// Subscribes to the topics; the group then assigns partitions.
pub fn join(client: &TopicClient) -> Result<(), IngestError> {
    let topics = TopicKind::ALL.map(|topic| &**client.names.of(topic));
    client.consumer.subscribe(&topics).map_err(IngestError::Client)
}

/// Applies the rebalances since the last call.
pub fn poll_rebalance(
    client: &mut TopicClient,
    read: &mut ReadState,
    committer: &mut OffsetCommitter,
    context: &Context,
) -> Result<(), IngestError> {
    while let Some(rebalance) = client.consumer.context().take_rebalance() {
        match rebalance {
            Rebalance::Assigned(partitions) => {
                on_assign(partitions, client, read, context)?;
            }
            Rebalance::Revoked { is_lost } => {
                on_revoke(is_lost, client, read, committer, &context.health)?;
            }
        }
    }
    Ok(())
}

fn on_assign(
    partitions: Partitions,
    client: &mut TopicClient,
    read: &mut ReadState,
    context: &Context,
) -> Result<(), IngestError> {
    let Some(committed) = fetch_group_offsets(client, &partitions, context) else { return Ok(()) };
    read.offsets =
        committed.into_offsets_of(&context.store, &client.names, &context.kafka.group)?;
    let health = &context.health;
    health.set_committed(&read.offsets);
    set_partitions(partitions, client, read, context)?;
    checks::check_known_records(client, read, context)?;
    count_partitions(client, health);
    assign_partitions(client, read, health)?;
    let [clicks, activations, effects] = TopicKind::ALL.map(|topic| client.partitions.count(topic));
    tracing::info!(clicks, activations, effects, "partitions assigned");
    health.set_assigned(true);
    Ok(())
}

/// Counts the partitions of all members. It is called again when partitions are added, because that causes a rebalance.
fn count_partitions(client: &TopicClient, health: &Health) {
    match assignment::find_partitions(&client.consumer, &client.names) {
        Ok(all) => {
            for topic in TopicKind::ALL {
                health.set_partition_count(topic, all.count(topic));
            }
        }
        Err(unfound) => tracing::debug!(?unfound, "partitions cannot be counted"),
    }
}

/// Fetches the group's offsets, with retries; `None` after a shutdown request or another rebalance.
fn fetch_group_offsets(
    client: &TopicClient,
    partitions: &Partitions,
    context: &Context,
) -> Option<Committed> {
    let TopicClient { consumer, names, .. } = client;
    let warnings = Throttle::default();
    for delay in delays(context.timing) {
        if context.shutdown.is_requested() || consumer.context().has_pending_rebalance() {
            break;
        }
        match committed::find_committed(consumer, names, partitions) {
            Ok(committed) => return Some(committed),
            Err(error) => warnings.warn(|| {
                tracing::warn!(%error, "the group's offsets cannot be fetched, retrying");
            }),
        }
        context.shutdown.sleep(delay);
    }
    None
}

fn on_revoke(
    is_lost: bool,
    client: &mut TopicClient,
    read: &mut ReadState,
    committer: &mut OffsetCommitter,
    health: &Health,
) -> Result<(), IngestError> {
    read.clear();
    committer.on_revoke(&client.consumer, is_lost);
    client.partitions = Partitions::default();
    health.forget_partitions();
    tracing::info!(is_lost, "all partitions revoked");
    client.consumer.unassign().map_err(IngestError::Client)
}
