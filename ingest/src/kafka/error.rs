//! Errors of this crate. Each message says what to do, if anything can be done.

use std::path::PathBuf;
use std::sync::Arc;

use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    #[error("librdkafka refuses kafka.librdkafka.{key}: {reason}")]
    Setting { key: String, reason: String },

    #[error("the Kafka client cannot be created: {0}")]
    Client(#[source] KafkaError),

    #[error("the consumer group's offsets cannot be moved: {reason}: {group}")]
    Positions { group: String, reason: String },

    #[error(
        "the consumer group's offsets are those of another store, which has read events that {store} lacks and \
         would skip: copy that store into empty tables with adtrail copy, or stop the group and reset its offsets: \
         kafka-consumer-groups.sh --group {group} --reset-offsets --all-topics --execute, with --to-earliest to \
         read all that Kafka has, or with --to-current to do without these events; partitions that were read: \
         {partitions}"
    )]
    OtherStore { store: String, partitions: String, group: String },

    #[error("the thread that reads Kafka cannot be started: {0}")]
    Thread(#[source] std::io::Error),

    #[error("the topic does not exist: create it, or name another with {setting} (now {topic:?})")]
    NoTopic { setting: &'static str, topic: Arc<str> },

    #[error(
        "the stored position is not in the topic any more: wanted offset {wanted} of partition \
         {partition}, the broker has {low} to {high}; events may have been lost; {REMEDY}: \
         {topic}"
    )]
    OutOfRange { topic: Arc<str>, partition: i32, wanted: i64, low: i64, high: i64 },

    #[error(
        "a partition with a stored position does not exist any more, so the topic was recreated: \
         wanted offset {wanted} of partition {partition}, there are {partitions} partitions; \
         events may have been lost; {REMEDY}: {topic}"
    )]
    PartitionGone { topic: Arc<str>, partition: i32, wanted: i64, partitions: usize },

    #[error(
        "a record that was read has changed: offset {offset} of partition {partition}; the topic was \
         recreated, or a broker has lost the end of the partition; events may have been lost; \
         {REMEDY}: {topic}"
    )]
    TopicRecreated { topic: Arc<str>, partition: i32, offset: i64 },

    #[error(
        "records cannot be read, and skipping them would lose them: {error}: {location}; check the \
         broker's log for the partition"
    )]
    UnreadableAt { location: String, error: RDKafkaErrorCode },

    #[error(
        "records cannot be read, and skipping them would lose them: {error}; {help}",
        error = .0,
        help = unreadable_help(.0)
    )]
    Unreadable(#[source] KafkaError),

    #[error("the Kafka client failed for good: {0}")]
    Fatal(#[source] KafkaError),

    #[error("registry.{setting}: {problem}: {path:?}")]
    RegistryFile { setting: &'static str, problem: String, path: PathBuf },

    #[error("kafka.formats.{setting}: {problem}: {path:?}")]
    SchemaFile { setting: &'static str, problem: String, path: PathBuf },

    #[error(
        "kafka.formats.{setting}: avro needs a registry that has the schemas: set registry.urls"
    )]
    NoRegistry { setting: &'static str },

    #[error("the client of the schema registry cannot be created: {0}")]
    RegistryClient(#[source] reqwest::Error),

    #[error("the schema registry's thread cannot be started: {0}")]
    RegistryThread(#[source] std::io::Error),

    #[error("the receiver of batches has ended")]
    NoReceiver,

    #[error("the topic does not exist: {0}")]
    NoSuchTopic(String),

    #[error("kafka refuses the connection: {reason}; {REFUSAL_HELP}")]
    Refused { reason: String },

    #[error("kafka does not answer: {error}; {UNREACHABLE_HELP}; brokers: {brokers}")]
    Unreachable { brokers: String, error: KafkaError },

    #[error(
        "the topic that records which dead letters were sent cannot be created: {error}: {topic}"
    )]
    NotCreated { topic: String, error: String },

    #[error(
        "the topic has cleanup.policy={policy} and would forget which dead letters were sent: set \
         cleanup.policy=compact: {topic}"
    )]
    NotCompacted { topic: String, policy: String },

    #[error(
        "another replay of this topic has taken over, or this one was delayed for over a minute; the \
         other or the next replay sends the remaining dead letters"
    )]
    TakenOver,

    #[error("kafka rejects the dead letters: {0}")]
    Transaction(#[source] KafkaError),

    #[error(
        "some dead letters are larger than max.message.bytes of their topic and were not sent: raise it \
         and run this again; dead letters: {count}"
    )]
    TooLong { count: u64 },
}

/// What to check if a broker refuses the connection.
pub const REFUSAL_HELP: &str = "check security.protocol, sasl.… and ssl.… in [kafka.librdkafka], and that the user \
                                may connect";

/// What to check if no broker answers. A broker that expects another security protocol closes the connection without an
/// error, or waits for more bytes.
pub const UNREACHABLE_HELP: &str =
    "if a broker runs there, check security.protocol in [kafka.librdkafka]";

const REMEDY: &str = "restore the topic's records, or start with a new store (store.path; over HBase \
                      store.hbase.prefix and kafka.group), which reads every topic from its beginning";

fn unreadable_help(error: &KafkaError) -> &'static str {
    match error {
        KafkaError::MessageConsumption(code) if is_too_large(*code) => {
            "a batch may be too large if it decompresses to more than a third of \
             kafka.librdkafka.receive.message.max.bytes: raise that, to 2147483647 at most; otherwise \
             check the broker's log for the partition"
        }
        _ => "check the broker's log for the partition",
    }
}

/// Returns an error if the client cannot recover from `error` by itself.
pub(crate) fn check_fatal(error: &KafkaError) -> Result<(), IngestError> {
    match error {
        KafkaError::MessageConsumptionFatal(_)
        | KafkaError::MessageProduction(RDKafkaErrorCode::Fatal) => {
            Err(IngestError::Fatal(error.clone()))
        }
        _ => Ok(()),
    }
}

/// Returns true if records cannot be read, so that librdkafka would skip them.
pub(crate) fn is_unreadable(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::BadMessage
            | RDKafkaErrorCode::BadCompression
            | RDKafkaErrorCode::NotImplemented
            | RDKafkaErrorCode::InvalidMessage
            | RDKafkaErrorCode::MessageSizeTooLarge
    )
}

/// Returns true if records cannot be read because of a limit of the client. Damaged records have other codes, if CRCs
/// are checked.
pub(crate) fn is_too_large(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::BadCompression | RDKafkaErrorCode::MessageSizeTooLarge)
}

/// Returns true if a topic or partition does not exist.
pub(crate) fn is_missing(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownPartition
    )
}

impl IngestError {
    /// Converts an error from creating a client. Leaves out the values of settings, because they can be passwords.
    pub(crate) fn of_client(error: KafkaError) -> Self {
        match error {
            KafkaError::ClientConfig(_, reason, key, _) => Self::Setting { key, reason },
            other => Self::Client(other),
        }
    }
}
