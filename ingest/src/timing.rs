//! How long ingestion waits, and how often it polls.
//!
//! Timeouts that a healthy broker must meet are constants beside the requests that they limit: scaling them down for
//! tests would make the tests depend on the speed of the machine. librdkafka's other intervals keep their defaults.

use std::time::Duration;

config::timing! {
    /// Timeouts and polling intervals, in a struct so that tests can pass a fraction of the defaults.
    pub struct Timing {
        /// How long startup waits for a configured topic that does not exist, since brokers learn of a new topic one
        /// after another. If it expires, startup fails.
        pub missing_topic_timeout: Duration = Duration::from_secs(10),
        /// Longest delay between two metadata requests while brokers do not answer or a topic does not exist.
        pub metadata_retry_delay_max: Duration = Duration::from_secs(1),
        /// Delay before the first retry of any other failed request; it doubles with each retry.
        pub initial_retry_delay: Duration = Duration::from_millis(100),
        /// Longest delay between two such retries.
        pub retry_delay_max: Duration = Duration::from_secs(10),
        /// How often to check for new partitions, end offsets and read access, and whether the topics still
        /// contain the records that were read last. Also how often to ask for end offsets while reading is paused.
        pub partition_check_interval: Duration = Duration::from_secs(10),
        /// Replaces `partition_check_interval` while read access to a topic is denied.
        pub denied_topic_check_interval: Duration = Duration::from_secs(2),
        /// How long a broker delays the response to a fetch while there are no records (`fetch.wait.max.ms`). Meanwhile
        /// it answers no other request on the same connection, so a check of partitions takes several times as long.
        pub fetch_wait_max: Duration = Duration::from_millis(500),
        /// How often to wake librdkafka's main thread, which would oversleep when the system clock is set back.
        pub client_wake_interval: Duration = Duration::from_secs(1),
        /// How long one check of a topic's last records, or of read access to it, waits for the broker. Records without
        /// a response by then are checked next time. Must be longer than the client's `fetch.wait.max.ms`, the duration
        /// of a fetch at the end of a partition.
        pub record_check_timeout: Duration = Duration::from_secs(5),
        /// How long startup waits for each of its two checks: of the verified records, then of the last records. If it
        /// expires, reading starts, and a later check detects a recreated topic.
        pub first_record_check_timeout: Duration = Duration::from_secs(20),
        /// How long to wait for the creation of dead-letter topics or for topic configurations. If it expires, the
        /// service starts without them, and `adtrail replay-dlq` fails if its journal topic does not exist.
        pub admin_request_timeout: Duration = Duration::from_secs(10),
        /// How long reading waits for the schema of a record. If it expires, the record's partition is paused until the
        /// schema is known; the others are read.
        pub schema_timeout: Duration = Duration::from_millis(250),
        /// How long dead letters may remain unacknowledged before readiness fails and a warning is logged. Reading
        /// waits for them in any case.
        pub dead_letter_ack_warning_delay: Duration = Duration::from_secs(10),
        /// Maximum time without a poll while a batch waits for the store or for dead-letter acknowledgements. If it
        /// expires, all partitions are unassigned, so that polling serves only callbacks; fetched records are fetched
        /// again afterwards.
        pub poll_pause_max: Duration = Duration::from_secs(10),
        /// Minimum interval between two offset commits to the consumer group.
        pub offset_commit_interval: Duration = Duration::from_secs(1),
        /// How long a shutdown waits for dead letters to be acknowledged. If it expires, their batch is dropped; its
        /// records are read again after the next start.
        pub shutdown_dead_letter_timeout: Duration = Duration::from_secs(2),
        /// How long a shutdown or a revocation of partitions waits for the store to commit the batches in flight.
        /// Offsets that the store commits later are not committed to the group.
        pub drain_timeout: Duration = Duration::from_secs(5),
        /// How long a shutdown waits for the response to the last offset commit before it closes the client.
        pub shutdown_commit_ack_timeout: Duration = Duration::from_secs(1),
        /// How long a shutdown waits for the client to close. If it expires, the client is abandoned; the exit of the
        /// process closes it.
        pub client_close_timeout: Duration = Duration::from_secs(2),
        /// Delay before the first retry of a failed schema request, with a random jitter of up to the same length;
        /// it doubles with each retry.
        pub initial_schema_retry_delay: Duration = Duration::from_millis(100),
        /// Longest delay between two such retries.
        pub schema_retry_delay_max: Duration = Duration::from_secs(4),
        /// Interval between two requests to a registry that does not answer, across all schemas.
        pub registry_probe_interval: Duration = Duration::from_secs(1),
        /// How long the outcome of the last registry request stands for the registry's state. After a request without a
        /// response, cached schemas are used without another request; after a response, a failure for a single schema
        /// does not make the registry count as down.
        pub registry_result_validity: Duration = Duration::from_secs(10),
        /// How long an unresponsive registry URL is skipped when another URL lacks a schema.
        pub unresponsive_url_pause: Duration = Duration::from_secs(30),
        /// How long a command retries before it fails while brokers do not answer.
        pub command_broker_timeout: Duration = Duration::from_secs(30),
        /// How long a command waits for a topic that does not exist before it fails.
        pub command_missing_topic_timeout: Duration = Duration::from_secs(2),
        /// How long `adtrail peek` waits for the schema of a record before it shows the record undecoded.
        pub peek_schema_timeout: Duration = Duration::from_secs(10),
    }
}
