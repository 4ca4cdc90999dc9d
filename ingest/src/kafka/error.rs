//! Why reading ended. Each message says what to do, where anything can be done.

use std::path::PathBuf;
use std::sync::Arc;

use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    #[error("librdkafka refuses kafka.librdkafka.{key}: {reason}")]
    Setting { key: String, reason: String },

    #[error("the Kafka client cannot be made: {0}")]
    Client(#[source] KafkaError),

    #[error("the positions of the consumer group can not be moved: {reason}: {group}")]
    Positions { group: String, reason: String },

    #[error("the thread that reads Kafka cannot be started: {0}")]
    Thread(#[source] std::io::Error),

    #[error("the topic does not exist: create it, or name another with {setting} (now {topic:?})")]
    NoTopic { setting: &'static str, topic: Arc<str> },

    #[error(
        "the stored position is not in the topic any more: wanted offset {wanted} of partition \
         {partition}, the broker has {low} to {high}; events may have been lost; {WAY_ON}: \
         {topic}"
    )]
    OutOfRange { topic: Arc<str>, partition: i32, wanted: i64, low: i64, high: i64 },

    #[error(
        "a partition with a stored position does not exist any more, so the topic was made anew: \
         wanted offset {wanted} of partition {partition}, there are {partitions} partitions; \
         events may have been lost; {WAY_ON}: {topic}"
    )]
    PartitionGone { topic: Arc<str>, partition: i32, wanted: i64, partitions: usize },

    #[error(
        "a record that was read is another one now: offset {offset} of partition {partition}; \
         the topic was made anew, or a broker has lost the end of the partition; events may have been \
         lost; {WAY_ON}: {topic}"
    )]
    MadeAnew { topic: Arc<str>, partition: i32, offset: i64 },

    #[error(
        "records cannot be read and would be lost if they were passed over: {error}: {place}; {}",
        unreadable_help(*error)
    )]
    UnreadableAt { place: String, error: RDKafkaErrorCode },

    #[error(
        "records cannot be read and would be lost if they were passed over: {0}; check the \
         broker's log for the partition"
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

    #[error("the client of the schema registry cannot be made: {0}")]
    RegistryClient(#[source] reqwest::Error),

    #[error("the thread that asks the schema registry cannot be started: {0}")]
    RegistryThread(#[source] std::io::Error),

    #[error("batches are taken no more")]
    NoReceiver,

    #[error("there is no such topic: {0}")]
    NoSuchTopic(String),

    #[error("kafka refuses the connection: {reason}; {REFUSAL_HELP}")]
    Refused { reason: String },

    #[error("kafka does not answer: {error}; {UNREACHABLE_HELP}; asked for: {brokers}")]
    Unreachable { brokers: String, error: KafkaError },

    #[error("the topic cannot be created: {error}; it keeps what was sent: {topic}")]
    NotCreated { topic: String, error: String },

    #[error(
        "the topic has cleanup.policy={policy}, and would forget what was sent: set \
         cleanup.policy=compact: {topic}"
    )]
    NotCompacted { topic: String, policy: String },

    #[error(
        "another run over this topic has taken over, or this one was held up for a minute: what is \
         not sent yet, the other sends, or the next"
    )]
    TakenOver,

    #[error("kafka does not take what is sent: {0}")]
    Transaction(#[source] KafkaError),

    #[error(
        "some are longer than their topic takes, and stay: raise its max.message.bytes and run \
         this again; dead letters: {count}"
    )]
    TooLong { count: u64 },
}

/// What to look at when a broker would not talk.
pub const REFUSAL_HELP: &str = "check security.protocol, sasl.… and ssl.… in [kafka.librdkafka], and that the user may connect";

/// What to look at when none answers. One that is spoken to in another way than it expects hangs up
/// without a word, or waits for more.
pub const UNREACHABLE_HELP: &str =
    "if one runs there, check security.protocol in [kafka.librdkafka]";

const WAY_ON: &str = "to go on, restore the topic's records, or begin with a new store \
                      (store.path), which reads every topic from its beginning";

fn unreadable_help(error: RDKafkaErrorCode) -> &'static str {
    match error {
        RDKafkaErrorCode::BadCompression => {
            "a batch by zstd that unpacks to more than a third of \
             kafka.librdkafka.receive.message.max.bytes may be too large: raise it, to 2147483647 at \
             most; else check the broker's log for the partition"
        }
        _ => "check the broker's log for the partition",
    }
}

impl IngestError {
    /// Of making a client. Values are left out: they can be passwords.
    pub(crate) fn of_client(error: KafkaError) -> Self {
        match error {
            KafkaError::ClientConfig(_, reason, key, _) => Self::Setting { key, reason },
            other => Self::Client(other),
        }
    }
}
