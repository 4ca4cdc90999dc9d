//! What librdkafka tells by itself: errors, logs, statistics, commits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaErrorCode;

use crate::retry::Throttle;
use crate::statistics::Statistics;

/// What to look at when a broker would not talk.
pub const REFUSAL_HELP: &str = "check security.protocol, sasl.… and ssl.… in [kafka.librdkafka], and that the user may connect";

/// What to look at when none answers. One that is spoken to in another way than it expects hangs up
/// without a word, or waits for more.
pub const UNREACHABLE_HELP: &str =
    "if one runs there, check security.protocol in [kafka.librdkafka]";

/// Whether a broker was reached and would not talk: no waiting helps, but somebody may.
fn is_refusal(code: RDKafkaErrorCode, reason: &str) -> bool {
    // What a broker says of the client's certificate comes once the connection stands.
    reason.contains("SSL alert")
        || matches!(
            code,
            RDKafkaErrorCode::Authentication
                | RDKafkaErrorCode::SaslAuthenticationFailed
                | RDKafkaErrorCode::SSL
                | RDKafkaErrorCode::UnsupportedSASLMechanism
                | RDKafkaErrorCode::IllegalSASLState
        )
}

/// What librdkafka tells the consumer's thread while that polls.
#[derive(Default)]
pub struct Callbacks {
    statistics: Mutex<Option<Statistics>>,
    errors: Throttle,
    refusals: Throttle,
    refusal: Mutex<Option<String>>,
    commits: AtomicU64,
    commit_failed: AtomicBool,
}

impl Callbacks {
    /// The newest statistics, once.
    pub fn take_statistics(&self) -> Option<Statistics> {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Why a broker was reached and would not talk, in librdkafka's words, until one does.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_refusal(&self, refusal: Option<String>) {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
    }

    /// Commits that the broker answered.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Commits serve dashboards: a failure is worth one line, not one a second.
    pub fn commit_failed(&self, error: &KafkaError) {
        if self.commit_failed.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "positions cannot be told to kafka");
        } else {
            tracing::warn!(%error, "positions cannot be told to kafka, its lag will not be right");
        }
    }
}

impl ClientContext for Callbacks {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn stats_raw(&self, statistics: &[u8]) {
        match Statistics::parse(statistics) {
            Ok(parsed) => {
                if parsed.is_connected() {
                    self.set_refusal(None);
                }
                let mut newest = self.statistics.lock().unwrap_or_else(PoisonError::into_inner);
                *newest = Some(parsed);
            }
            Err(error) => tracing::debug!(%error, "statistics of librdkafka cannot be read"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // Asked for by who reads to an end.
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::PartitionEOF) {
            return;
        }
        if error.rdkafka_error_code().is_some_and(|code| is_refusal(code, reason)) {
            self.set_refusal(Some(reason.to_owned()));
            return self.refusals.warn(|| {
                tracing::warn!(reason, "kafka refuses the connection: {REFUSAL_HELP}");
            });
        }
        self.errors.warn(|| tracing::warn!(%error, reason, "kafka"));
    }
}

impl ConsumerContext for Callbacks {
    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = result {
            self.commit_failed(&error);
        }
    }
}

/// The admin client's callbacks.
pub struct Logged;

impl ClientContext for Logged {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka");
    }
}

/// librdkafka's log as ours. It calls every lost connection an error, and connects again.
pub fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error
        | RDKafkaLogLevel::Warning => tracing::warn!(facility, "{message}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => tracing::info!(facility, "{message}"),
        RDKafkaLogLevel::Debug => tracing::debug!(facility, "{message}"),
    }
}
