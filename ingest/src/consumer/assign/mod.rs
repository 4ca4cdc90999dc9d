//! Decides which partitions are read, and from which offsets.
//!
//! Start with [`assign_partitions`]. `startup` finds the topics and assigns all their partitions; `group_member`
//! follows the group's rebalances instead. While records are read, `checks` looks for added partitions, recreated
//! topics and denied access, and `errors` handles what librdkafka reports.

pub mod checks;
pub mod errors;
pub mod group_member;
mod locate_unreadable;
pub mod startup;

use std::time::Instant;

use rdkafka::consumer::Consumer as _;

use super::context::Context;
use super::read::ReadState;
use super::topic_client::TopicClient;
use crate::kafka::assignment;
use crate::kafka::error::IngestError;
use crate::kafka::partitions::Partitions;
use crate::observability::health::Health;

/// Replaces the partitions to read, and checks their positions.
pub fn set_partitions(
    partitions: Partitions,
    client: &mut TopicClient,
    read: &mut ReadState,
    context: &Context,
) -> Result<(), IngestError> {
    read.router.set_partitions(&partitions);
    client.partitions = partitions;
    client.check_positions(&read.offsets, context)
}

/// Assigns all partitions that are not paused, each from its position.
pub fn assign_partitions(
    client: &TopicClient,
    read: &mut ReadState,
    health: &Health,
) -> Result<(), IngestError> {
    read.skip_markers(client);
    add_beginnings(client, read, health);
    read.router.low_watermark.forget_ends();
    let is_paused = |topic, partition| read.paused.contains(topic, partition);
    assignment::assignable_partitions(&client.names, &client.partitions, &read.offsets, is_paused)
        .and_then(|list| client.consumer.assign(&list))
        .and_then(|()| read.note_assignment(client))
        .map_err(IngestError::Client)
}

/// Adds the first offset of each unread partition to the batch, so that the store has a position for it. Otherwise
/// records that Kafka deletes before they are read would be skipped unnoticed.
///
/// Only offset 0 is added. A higher position, that of a partition whose first records are deleted, would skip the first
/// records of a recreated topic, and no fingerprint could detect that. Such partitions, and those whose broker does not
/// answer, are read from the lowest offset that exists when they are assigned.
fn add_beginnings(client: &TopicClient, read: &mut ReadState, health: &Health) {
    let is_unread = |(topic, partition): &(_, _)| read.offsets.next(*topic, *partition).is_none();
    let unread: Vec<_> = client.partitions.iter().filter(is_unread).collect();
    if unread.is_empty() {
        return;
    }
    let watermarks = client.find_watermarks(health);
    for (topic, partition) in unread {
        if watermarks.get(&(topic, partition)).is_some_and(|found| found.low == 0) {
            read.offsets.set(topic, partition, 0);
            read.router.batch.add_beginning(topic, partition, Instant::now());
        }
    }
}
