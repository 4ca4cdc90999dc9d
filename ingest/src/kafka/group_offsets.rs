//! The positions of the consumer group, for whoever moves a store: nothing is read.

use attribution::ledger::Position;
use config::Kafka;
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::KafkaError;

use super::assignment::{self, Unfound};
use super::clients;
use super::error::IngestError;
use super::offsets::Offsets;
use super::topics::TopicNames;
use crate::timing::Timing;

/// Those that the group has of the three topics' partitions.
///
/// # Errors
/// [`IngestError::Positions`] where Kafka does not tell, or somebody is a member of the group.
pub fn read(kafka: &Kafka) -> Result<Vec<Position>, IngestError> {
    let names = TopicNames::new(&kafka.topics);
    let consumer = clients::consumer(kafka, Timing::default())?;
    refuse_members(kafka, &consumer)?;
    let partitions = assignment::find_partitions(&consumer, &names).map_err(|unfound| {
        let reason = match unfound {
            Unfound::NoTopic(topic) => format!("there is no topic {}", names.of(topic)),
            Unfound::Denied(topic) => format!("topic {} may not be read", names.of(topic)),
            Unfound::Unreachable(error) => error.to_string(),
        };
        failure(kafka, reason)
    })?;
    let offsets = assignment::find_committed(&consumer, &names, &partitions);
    Ok(offsets.map_err(|error| failure(kafka, error.to_string()))?.positions(&names))
}

/// Has the group go on from these.
///
/// # Errors
/// As of [`read`].
pub fn write(kafka: &Kafka, positions: &[Position]) -> Result<(), IngestError> {
    let names = TopicNames::new(&kafka.topics);
    let consumer = clients::consumer(kafka, Timing::default())?;
    refuse_members(kafka, &consumer)?;
    if positions.is_empty() {
        return Ok(());
    }
    let offsets = Offsets::new(&names, positions);
    let list = assignment::positions(&names, &offsets);
    let told = list.and_then(|list| consumer.commit(&list, CommitMode::Sync));
    told.map_err(|error: KafkaError| failure(kafka, error.to_string()))
}

/// Who reads meanwhile would be overtaken, or would overtake.
fn refuse_members(kafka: &Kafka, consumer: &clients::Consumer) -> Result<(), IngestError> {
    let groups = consumer.fetch_group_list(Some(&kafka.group), assignment::LOOK_TIMEOUT);
    let groups = groups.map_err(|error| failure(kafka, error.to_string()))?;
    let members: usize = groups.groups().iter().map(|group| group.members().len()).sum();
    if members == 0 {
        return Ok(());
    }
    Err(failure(kafka, format!("{members} workers are members of it: stop them first")))
}

fn failure(kafka: &Kafka, reason: String) -> IngestError {
    IngestError::Positions { group: kafka.group.clone(), reason }
}
