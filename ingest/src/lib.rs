//! Kafka ingestion: decodes records into batches of facts; records that cannot be decoded become dead letters.
//!
//! One thread decodes the records of the three topics and emits bounded batches of facts, each with the next offsets
//! after it. With an embedded store ([`start`]) it reads all partitions from the store's positions; with a shared store
//! ([`join`]) it reads those that the consumer group assigns, from the group's offsets. A position passes a record only
//! once the record is in a batch or its dead letter is acknowledged.
//!
//! This crate does not interpret facts and knows no store.
//!
//! Start with [`start`] and `consumer`. [`decode`] turns the bytes of a record into a fact, [`registry`] fetches the
//! Avro schemas that records name, [`mod@kafka`] wraps librdkafka, [`files`] reads events from files, [`dead_letters`]
//! produces and replays dead letters, and [`mod@peek`] shows the records of a topic.

mod consumer;
pub mod dead_letters;
pub mod decode;
mod digest;
pub mod files;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod kafka;
mod observability;
pub mod peek;
pub mod registry;
#[cfg(test)]
mod tests;
mod timing;

pub use consumer::read::batch::{Batch, Intake, TopicIntake};
pub use consumer::shutdown::Shutdown;
pub use consumer::{Queues, join, start};
pub use dead_letters::producer::SUFFIX as DEAD_LETTER_SUFFIX;
pub use decode::decoder::{LivePolicy, check as check_formats};
pub use kafka::error::IngestError;
pub use kafka::partitions::Watermarks;
pub use kafka::topic_scan::ScanProgress;
pub use kafka::topics::{PerTopic, TopicKind, TopicNames};
pub use observability::health::Health;
pub use observability::metrics::Metrics;
pub use timing::Timing;
