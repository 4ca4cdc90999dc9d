//! The clients of the three topics.

use std::sync::Arc;
use std::time::Duration;

use config::Kafka;

use super::context::Context;
use super::topic_identity::TopicIdentityChecker;
use crate::kafka::assignment;
use crate::kafka::clients::{self, Consumer};
use crate::kafka::error::IngestError;
use crate::kafka::offsets::Offsets;
use crate::kafka::partitions::{PartitionWatermarks, Partitions};
use crate::kafka::topics::TopicNames;
use crate::observability::health::Health;
use crate::timing::Timing;

/// Attempts of the range check of offsets: a broker that just became leader may not know a partition's end yet.
const RANGE_ATTEMPTS_MAX: usize = 3;
pub const RANGE_RETRY_DELAY: Duration = Duration::from_millis(500);

/// The clients of the three topics, and the partitions that are read.
pub struct TopicClient {
    /// The client that reads.
    pub consumer: Consumer,
    /// A client for checks, which sees the high watermarks: the reading client, with `read_committed`, sees only the
    /// last stable offsets.
    pub inspector: Arc<Consumer>,
    /// Checks the topics with the inspector.
    pub checker: TopicIdentityChecker,
    pub names: TopicNames,
    /// True if only the partitions that the group assigns are read.
    pub is_member: bool,
    pub partitions: Partitions,
}

impl TopicClient {
    pub fn new(kafka: &Kafka, is_member: bool, timing: Timing) -> Result<Self, IngestError> {
        let create = if is_member { clients::member } else { clients::consumer };
        let consumer = create(kafka, timing)?;
        let (names, partitions) = (TopicNames::new(&kafka.topics), Partitions::default());
        let inspector = Arc::new(clients::inspector(kafka)?);
        let checker = TopicIdentityChecker::start(inspector.clone(), names.clone(), timing)?;
        Ok(Self { consumer, inspector, checker, names, is_member, partitions })
    }

    /// Checks that every position is within the watermarks of its partition.
    pub fn check_positions(&self, offsets: &Offsets, context: &Context) -> Result<(), IngestError> {
        let mut attempt = 1;
        loop {
            let watermarks = self.find_watermarks(&context.health);
            match assignment::check_offsets(&self.names, &self.partitions, &watermarks, offsets) {
                Err(IngestError::OutOfRange { .. }) if attempt < RANGE_ATTEMPTS_MAX => {
                    attempt += 1;
                    context.shutdown.sleep(RANGE_RETRY_DELAY);
                }
                result => return result,
            }
        }
    }

    /// Fetches the watermarks; returns none if a broker does not answer, because fetching records then fails as well.
    pub fn find_watermarks(&self, health: &Health) -> PartitionWatermarks {
        let find = || assignment::find_watermarks(&self.inspector, &self.names, &self.partitions);
        health.update_watermarks(find)
    }
}
