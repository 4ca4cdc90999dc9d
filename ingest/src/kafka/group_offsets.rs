//! Reads and writes the consumer group's offsets when a store is copied. No records are consumed.

use attribution::ledger::Position;
use config::{Config, Kafka};
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::KafkaError;

use super::assignment::{self, LookupError};
use super::clients;
use super::committed::{self, StoreName};
use super::error::IngestError;
use super::offsets::Offsets;
use super::topics::TopicNames;
use crate::timing::Timing;

/// Fetches the group's offsets of all partitions of the three topics.
///
/// # Errors
/// [`IngestError::Positions`] if Kafka does not return them, or if the group has members;
/// [`IngestError::OtherStore`] if some are not those of the store of these settings.
pub fn read(config: &Config) -> Result<Vec<Position>, IngestError> {
    let kafka = &config.kafka;
    let (names, consumer) = (TopicNames::new(&kafka.topics), connect(kafka)?);
    let partitions = assignment::find_partitions(&consumer, &names).map_err(|unfound| {
        let reason = match unfound {
            LookupError::NoTopic(topic) => format!("topic {} does not exist", names.of(topic)),
            LookupError::Denied(topic) => {
                format!("no permission to read topic {}", names.of(topic))
            }
            LookupError::Unreachable(error) => error.to_string(),
        };
        failure(kafka, reason)
    })?;
    let committed = committed::find_committed(&consumer, &names, &partitions)
        .map_err(|error| failure(kafka, error.to_string()))?;
    let store = StoreName::new(&config.store);
    Ok(committed.into_offsets_of(&store, &names, &kafka.group)?.positions(&names))
}

/// Commits the positions of a copy as the group's offsets. Both stores may go on from them: an interrupted copy can be
/// made again, and its source can be used if the copy was a trial.
pub fn write(from: &Config, to: &Config, positions: &[Position]) -> Result<(), IngestError> {
    let kafka = &to.kafka;
    let (names, consumer) = (TopicNames::new(&kafka.topics), connect(kafka)?);
    if positions.is_empty() {
        return Ok(());
    }
    let offsets = Offsets::new(&names, positions);
    let stores = [from, to].map(|config| StoreName::new(&config.store));
    let list = committed::to_partition_list(&names, &offsets, &stores);
    let outcome = list.and_then(|list| consumer.commit(&list, CommitMode::Sync));
    outcome.map_err(|error: KafkaError| failure(kafka, error.to_string()))
}

/// Creates a client. Fails if the group has members: they would commit offsets too.
fn connect(kafka: &Kafka) -> Result<clients::Consumer, IngestError> {
    let consumer = clients::consumer(kafka, Timing::default())?;
    let groups = consumer.fetch_group_list(Some(&kafka.group), assignment::REQUEST_TIMEOUT);
    let groups = groups.map_err(|error| failure(kafka, error.to_string()))?;
    let members: usize = groups.groups().iter().map(|group| group.members().len()).sum();
    if members == 0 {
        return Ok(consumer);
    }
    Err(failure(kafka, format!("the group has {members} members: stop them first")))
}

fn failure(kafka: &Kafka, reason: String) -> IngestError {
    IngestError::Positions { group: kafka.group.clone(), reason }
}
