//! Kafka in: records become facts in batches, bad records become dead letters.
//!
//! One thread reads all partitions of the three topics from the positions that the store has,
//! decodes each record, and hands on bounded batches of facts with the positions that they
//! reach. A position never passes a record that is neither in a batch nor acknowledged in the
//! dead-letter topic.
//!
//! It does not decide what a fact means, knows no store, and does not rely on Kafka's committed
//! offsets.
//!
//! Start with [`start`] and `consumer`; what a record must look like is in [`wire`]; files of
//! events are read by [`mod@file`], compressed ones through [`compressed`]; the schemas that Avro
//! records name come from [`registry`]. Dead letters are sent again by [`mod@resend`], and what a
//! topic holds is shown by [`mod@peek`].

/// Where a test can make the process end, as a kill would; nothing in the program that people run.
macro_rules! crash_point {
    ($name:literal) => {
        #[cfg(feature = "crash-points")]
        fail::fail_point!($name, |_| std::process::abort());
    };
}

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

pub use consumer::batch::{Batch, Intake, TopicIntake};
pub use consumer::shutdown::Shutdown;
pub use consumer::{join, join_with_timing, start, start_with_timing};
pub use dead_letters::producer::SUFFIX as DEAD_LETTER_SUFFIX;
pub use decode::decoder::check as check_formats;
pub use kafka::error::IngestError;
pub use kafka::topic_scan::Extent as SweepExtent;
pub use kafka::topics::{PerTopic, TopicKind, TopicNames};
pub use kafka::watermarks::Extent;
pub use observability::health::Health;
pub use observability::metrics::Metrics;
pub use timing::Timing;
