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

mod assignment;
mod batch;
mod callbacks;
mod client;
mod clock;
mod commits;
pub mod compressed;
mod consumed;
mod consumer;
mod creation;
mod dead_letter;
mod decoder;
mod digest;
mod error;
pub mod file;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod headers;
mod health;
mod held;
pub mod lateness;
mod letter_topics;
mod metrics;
mod offsets;
mod partitions;
pub mod peek;
mod placement;
pub mod positions;
mod rebalance;
pub mod registry;
pub mod resend;
mod retry;
pub mod settings;
mod shutdown;
mod sorter;
mod stall;
mod statistics;
mod sweep;
mod timing;
mod topic;
mod transactions;
mod watermarks;
pub mod wire;
mod witness;

#[cfg(test)]
mod tests;

pub use crate::watermarks::Extent;
pub use batch::{Batch, Intake, TopicIntake};
pub use consumer::{join, join_with_timing, start, start_with_timing};
pub use dead_letter::SUFFIX as DEAD_LETTER_SUFFIX;
pub use decoder::check as check_formats;
pub use error::IngestError;
pub use health::Health;
pub use metrics::Metrics;
pub use shutdown::Shutdown;
pub use sweep::Extent as SweepExtent;
pub use timing::Timing;
pub use topic::{PerTopic, TopicKind, TopicNames};
