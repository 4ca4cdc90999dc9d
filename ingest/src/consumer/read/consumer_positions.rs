//! The consumer's positions: librdkafka consumes transaction markers without returning them, and only its positions
//! show that it has.

use std::collections::BTreeMap;

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::Offset;

use crate::consumer::topic_client::TopicClient;
use crate::kafka::offsets::Offsets;
use crate::kafka::topics::TopicKind;

/// The offset after the last record or transaction marker that the consumer has returned or skipped, of each assigned
/// partition that has one.
pub type Positions = BTreeMap<(TopicKind, i32), i64>;

/// Returns the consumer's positions.
pub fn find_positions(client: &TopicClient) -> KafkaResult<Positions> {
    let list = client.consumer.position()?;
    let mut positions = Positions::new();
    for element in list.elements() {
        if let (Some(topic), Offset::Offset(position)) =
            (client.names.kind(element.topic()), element.offset())
        {
            positions.insert((topic, element.partition()), position);
        }
    }
    Ok(positions)
}

/// Positions that the consumer still reports although they are those before the last assignment.
///
/// librdkafka resets the position of a partition when it stops fetching it: possibly after the call that assigns
/// partitions has returned, but before it fetches the partition again. A stale position may be after a record that was
/// polled but not added: the one at which a partition was paused.
#[derive(Debug, Default)]
pub struct StalePositions(Positions);

impl StalePositions {
    /// Sets the positions that the consumer reports after an assignment, before it is polled again.
    pub fn set(&mut self, positions: Positions) {
        self.0 = positions;
    }

    /// Returns the positions that are not stale and are beyond the next offset of their partition. A position is no
    /// longer stale once the consumer reports another one or none.
    pub fn find_ahead(
        &mut self,
        positions: &Positions,
        offsets: &Offsets,
    ) -> Vec<(TopicKind, i32, i64)> {
        self.0.retain(|partition, stale| positions.get(partition).copied() == Some(*stale));
        let mut ahead = Vec::new();
        for (&(topic, partition), &position) in positions {
            let is_stale = self.0.contains_key(&(topic, partition));
            if !is_stale && offsets.next(topic, partition).is_some_and(|next| next < position) {
                ahead.push((topic, partition, position));
            }
        }
        ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: TopicKind = TopicKind::Clicks;

    fn positions(position: Option<i64>) -> Positions {
        position.into_iter().map(|position| ((TOPIC, 0), position)).collect()
    }

    /// Checks which of the reported positions of a partition are after markers. Its next offset is 6, and
    /// `at_assignment` is its position right after it was assigned.
    #[track_caller]
    fn check(at_assignment: Option<i64>, reported: &[Option<i64>], expected: &[Option<i64>]) {
        let (mut offsets, mut stale) = (Offsets::default(), StalePositions::default());
        offsets.set(TOPIC, 0, 6);
        stale.set(positions(at_assignment));
        let mut found = Vec::new();
        for position in reported {
            let ahead = stale.find_ahead(&positions(*position), &offsets);
            found.push(ahead.first().map(|(_, _, position)| *position));
        }
        assert_eq!(found, expected, "{at_assignment:?} {reported:?}");
    }

    #[test]
    fn a_position_beyond_the_next_offset_is_after_markers() {
        check(None, &[None, Some(7), Some(8)], &[None, Some(7), Some(8)]);
        check(None, &[Some(5), Some(6)], &[None, None]);
    }

    #[test]
    fn a_position_before_the_assignment_may_be_after_a_record_that_is_read_again() {
        check(Some(7), &[Some(7), Some(7)], &[None, None]);
    }

    #[test]
    fn a_marker_that_is_consumed_again_after_an_assignment_is_skipped() {
        check(Some(7), &[Some(7), None, Some(7)], &[None, None, Some(7)]);
        check(Some(7), &[None, Some(7)], &[None, Some(7)]);
        check(Some(8), &[Some(8), Some(7), Some(8)], &[None, Some(7), Some(8)]);
    }

    #[test]
    fn a_partition_without_a_next_offset_has_no_position_to_skip_to() {
        let mut stale = StalePositions::default();
        assert!(stale.find_ahead(&positions(Some(7)), &Offsets::default()).is_empty());
    }
}
