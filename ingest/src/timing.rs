//! How long ingestion waits, and how often it polls.
//!
//! Timeouts that a working broker must meet are constants beside the requests that they limit: a tenth of them would
//! make tests depend on the speed of the machine. librdkafka's other intervals keep their defaults.

use std::time::Duration;

config::timing! {
    /// Timeouts and polling intervals, as a value: tests run with a fraction of the defaults.
    pub struct Timing {
        /// How long a start waits for a configured topic that does not exist, since brokers learn of a new topic
        /// one after the other. Then it fails.
        pub missing_topic_timeout: Duration = Duration::from_secs(10),
        /// Longest delay between two metadata requests while brokers do not answer or a topic does not exist.
        pub metadata_retry_delay_max: Duration = Duration::from_secs(1),
        /// Delay before the first retry of any other failed request; it doubles with each retry.
        pub retry_delay_min: Duration = Duration::from_millis(100),
        /// Longest delay between two such retries.
        pub retry_delay_max: Duration = Duration::from_secs(10),
        /// How often to check for new partitions, end offsets and read access, and whether the topics still
        /// contain the records that were read last. Also how often to ask for end offsets while reading is paused.
        pub partition_check_interval: Duration = Duration::from_secs(10),
        /// The same interval while read access to a topic is denied.
        pub denied_topic_check_interval: Duration = Duration::from_secs(2),
        /// How long a broker delays the response to a fetch while there are no records (`fetch.wait.max.ms`). It
        /// answers other requests on the same connection only after that, so that a check of partitions takes several
        /// times as long.
        pub fetch_wait_max: Duration = Duration::from_millis(500),
        /// How often to wake librdkafka's main thread, which would sleep on after the machine's clock was set back.
        pub client_wake_interval: Duration = Duration::from_secs(1),
        /// How long one check of a topic's last records, or of read access to it, waits for the broker. Records
        /// without a response by then are left to the next check. Must be longer than the client's
        /// `fetch.wait.max.ms`, which a fetch at the end of a partition takes.
        pub record_check_timeout: Duration = Duration::from_secs(5),
        /// How long a start waits for each of its two checks of the last records. Then it starts to read, and a
        /// topic that was recreated is noticed by a later check.
        pub first_record_check_timeout: Duration = Duration::from_secs(20),
        /// How long to wait for the creation of dead-letter topics or for topic configurations. Then the service starts
        /// without them, and `adtrail replay-dlq` fails if its journal topic does not exist.
        pub admin_request_timeout: Duration = Duration::from_secs(10),
        /// How long reading waits for the schema of a record. Then its partition is paused until the schema is known,
        /// while the others are read.
        pub schema_timeout: Duration = Duration::from_millis(250),
        /// How long dead letters may remain unacknowledged before readiness fails and a warning is logged. Reading
        /// waits for them in any case.
        pub dead_letter_ack_warning_delay: Duration = Duration::from_secs(10),
        /// How long records may remain unpolled while a batch or its dead letters wait. Then all partitions are
        /// unassigned, so that polling can serve callbacks; the records are fetched again afterwards.
        pub poll_pause_max: Duration = Duration::from_secs(10),
        /// Minimum interval between two offset commits to the consumer group.
        pub offset_commit_interval: Duration = Duration::from_secs(1),
        /// How long a shutdown waits for dead letters to be acknowledged. Then their batch is dropped, and read
        /// again after the next start.
        pub last_dead_letters_timeout: Duration = Duration::from_secs(2),
        /// How long a shutdown or a revocation of partitions waits for the store to commit the batches in flight.
        /// Offsets committed later are not reported to the group.
        pub last_positions_timeout: Duration = Duration::from_secs(5),
        /// How long a shutdown waits for the answer to the last offset commit. Then it closes the client anyway.
        pub last_commit_ack_timeout: Duration = Duration::from_secs(1),
        /// How long a shutdown waits for the client to close. Then the client is left to the end of the process.
        pub client_close_timeout: Duration = Duration::from_secs(2),
        /// Delay before the first retry of a failed schema request, with a random jitter of up to the same length;
        /// it doubles with each retry.
        pub schema_retry_delay_min: Duration = Duration::from_millis(100),
        /// Longest delay between two such retries.
        pub schema_retry_delay_max: Duration = Duration::from_secs(4),
        /// Interval between two requests to a registry that does not answer, across all schemas.
        pub registry_probe_interval: Duration = Duration::from_secs(1),
        /// How long the last result of a registry counts as its state: after a request without a response, cached
        /// schemas are used without another request; after a response, a failure for one schema does not make the
        /// registry down.
        pub registry_result_validity: Duration = Duration::from_secs(10),
        /// How long a registry URL that did not answer is not asked whether it knows a schema that another URL does
        /// not know.
        pub unresponsive_url_pause: Duration = Duration::from_secs(30),
        /// How long a command retries while brokers do not answer. Then it fails.
        pub command_broker_timeout: Duration = Duration::from_secs(30),
        /// How long a command waits for a topic that does not exist. Then it fails.
        pub command_missing_topic_timeout: Duration = Duration::from_secs(2),
        /// How long `adtrail peek` waits for the schema of a record. Then the record is shown undecoded.
        pub peek_schema_timeout: Duration = Duration::from_secs(10),
    }
}
