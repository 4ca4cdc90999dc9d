//! How long ingestion waits, and how often it polls.
//!
//! Timeouts that a working broker has to meet are constants beside the requests that they limit: a tenth of them
//! would make tests depend on the speed of the machine. librdkafka's other intervals keep their defaults.

use std::time::Duration;

/// Patience and polling intervals, as a value: tests run with a fraction of the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long a start waits for a configured topic that does not exist, since brokers learn of a new topic
    /// one after the other. Then it fails.
    pub missing_topic_patience: Duration,
    /// Longest delay between two metadata requests while brokers do not answer or a topic does not exist.
    pub metadata_retry_delay_max: Duration,
    /// Delay before the first retry of any other failed request; it doubles with each retry.
    pub retry_delay_min: Duration,
    /// Where that doubling ends.
    pub retry_delay_max: Duration,
    /// How often to check for new partitions, end offsets and read access, and whether the topics still
    /// contain the records that were read last. Also how often to ask for end offsets while reading is paused.
    pub partition_check_interval: Duration,
    /// The same interval while read access to a topic is denied.
    pub denied_topic_check_interval: Duration,
    /// How long a broker holds a fetch back while there are no records (`fetch.wait.max.ms`). It answers other
    /// requests on the same connection only after that, so that one check of partitions takes it several times.
    pub fetch_wait_max: Duration,
    /// How often to wake librdkafka's main thread, which would sleep on where the machine's clock is set back.
    pub client_wake_interval: Duration,
    /// How long one check of a topic's last records, or of read access to it, waits for the broker. What is not
    /// answered by then is left to the next check. Must be longer than the client's `fetch.wait.max.ms`, which a
    /// fetch at the end of a partition takes.
    pub record_check_timeout: Duration,
    /// How long a start waits for each of its two checks of the last records. Then it starts to read, and a
    /// topic that was recreated is noticed by a later check.
    pub first_record_check_patience: Duration,
    /// How long to wait while topics for dead letters are created, or topic configurations described. Then a
    /// start goes on without, and `adtrail replay-dlq` fails if it has no journal.
    pub admin_request_timeout: Duration,
    /// How long reading waits for the schema of a record. Then its partition is held until the schema is known,
    /// and the others are read on.
    pub schema_patience: Duration,
    /// How long dead letters may remain unacknowledged before readiness fails and a warning is logged. Reading
    /// waits for them in any case.
    pub dead_letter_ack_patience: Duration,
    /// How long records may remain unpolled while a batch or its dead letters wait. Then all partitions are
    /// unassigned, so that polling can serve callbacks; the records are fetched again afterwards.
    pub poll_pause_max: Duration,
    /// Minimum interval between two offset commits to the consumer group.
    pub offset_commit_interval: Duration,
    /// How long a shutdown waits for dead letters to be acknowledged. Then their batch is dropped, and read
    /// again after the next start.
    pub last_dead_letters_patience: Duration,
    /// How long a shutdown or a revocation of partitions waits for the store to commit the batches in flight.
    /// Offsets committed later are not reported to the group.
    pub last_positions_patience: Duration,
    /// How long a shutdown waits for the answer to the last offset commit. Then it closes the client anyway.
    pub last_commit_ack_patience: Duration,
    /// How long a shutdown waits for the client to close. Then the client is left to the end of the process.
    pub client_close_patience: Duration,
    /// Delay before the first retry of a failed schema request, with a random jitter of up to the same length;
    /// it doubles with each retry.
    pub schema_retry_delay_min: Duration,
    /// Where that doubling ends.
    pub schema_retry_delay_max: Duration,
    /// Interval between two requests to a registry that does not answer, across all schemas.
    pub registry_probe_interval: Duration,
    /// How long the last result of a registry stands for its state: after no answer, cached schemas are used
    /// without another request; after an answer, a failure for one schema does not make the registry down.
    pub registry_result_validity: Duration,
    /// How long a registry URL that did not answer is not asked whether it knows a schema that another URL does
    /// not know.
    pub unresponsive_url_pause: Duration,
    /// How long a command retries while brokers do not answer. Then it fails.
    pub command_broker_patience: Duration,
    /// How long a command waits for a topic that does not exist. Then it fails.
    pub command_missing_topic_patience: Duration,
    /// How long `adtrail peek` waits for the schema of a record. Then the record is shown undecoded.
    pub peek_schema_patience: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            missing_topic_patience: Duration::from_secs(10),
            metadata_retry_delay_max: Duration::from_secs(1),
            retry_delay_min: Duration::from_millis(100),
            retry_delay_max: Duration::from_secs(10),
            partition_check_interval: Duration::from_secs(10),
            denied_topic_check_interval: Duration::from_secs(2),
            fetch_wait_max: Duration::from_millis(500),
            client_wake_interval: Duration::from_secs(1),
            record_check_timeout: Duration::from_secs(5),
            first_record_check_patience: Duration::from_secs(20),
            admin_request_timeout: Duration::from_secs(10),
            // Most registries answer sooner.
            schema_patience: Duration::from_millis(250),
            dead_letter_ack_patience: Duration::from_secs(10),
            poll_pause_max: Duration::from_secs(10),
            offset_commit_interval: Duration::from_secs(1),
            last_dead_letters_patience: Duration::from_secs(2),
            last_positions_patience: Duration::from_secs(5),
            last_commit_ack_patience: Duration::from_secs(1),
            client_close_patience: Duration::from_secs(2),
            schema_retry_delay_min: Duration::from_millis(100),
            schema_retry_delay_max: Duration::from_secs(4),
            registry_probe_interval: Duration::from_secs(1),
            registry_result_validity: Duration::from_secs(10),
            unresponsive_url_pause: Duration::from_secs(30),
            command_broker_patience: Duration::from_secs(30),
            command_missing_topic_patience: Duration::from_secs(2),
            peek_schema_patience: Duration::from_secs(10),
        }
    }
}

impl Timing {
    /// Every duration divided by the same number.
    ///
    /// # Panics
    /// If the divisor is 0.
    pub fn divided_by(self, divisor: u32) -> Self {
        Self {
            missing_topic_patience: self.missing_topic_patience / divisor,
            metadata_retry_delay_max: self.metadata_retry_delay_max / divisor,
            retry_delay_min: self.retry_delay_min / divisor,
            retry_delay_max: self.retry_delay_max / divisor,
            partition_check_interval: self.partition_check_interval / divisor,
            denied_topic_check_interval: self.denied_topic_check_interval / divisor,
            fetch_wait_max: self.fetch_wait_max / divisor,
            client_wake_interval: self.client_wake_interval / divisor,
            record_check_timeout: self.record_check_timeout / divisor,
            first_record_check_patience: self.first_record_check_patience / divisor,
            admin_request_timeout: self.admin_request_timeout / divisor,
            schema_patience: self.schema_patience / divisor,
            dead_letter_ack_patience: self.dead_letter_ack_patience / divisor,
            poll_pause_max: self.poll_pause_max / divisor,
            offset_commit_interval: self.offset_commit_interval / divisor,
            last_dead_letters_patience: self.last_dead_letters_patience / divisor,
            last_positions_patience: self.last_positions_patience / divisor,
            last_commit_ack_patience: self.last_commit_ack_patience / divisor,
            client_close_patience: self.client_close_patience / divisor,
            schema_retry_delay_min: self.schema_retry_delay_min / divisor,
            schema_retry_delay_max: self.schema_retry_delay_max / divisor,
            registry_probe_interval: self.registry_probe_interval / divisor,
            registry_result_validity: self.registry_result_validity / divisor,
            unresponsive_url_pause: self.unresponsive_url_pause / divisor,
            command_broker_patience: self.command_broker_patience / divisor,
            command_missing_topic_patience: self.command_missing_topic_patience / divisor,
            peek_schema_patience: self.peek_schema_patience / divisor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_divided() {
        assert_eq!(Timing::default().divided_by(1), Timing::default());
        let tenth = Timing::default().divided_by(10);
        assert_eq!(tenth.partition_check_interval, Duration::from_secs(1));
        assert_eq!(tenth.schema_patience, Duration::from_millis(25));
    }
}
