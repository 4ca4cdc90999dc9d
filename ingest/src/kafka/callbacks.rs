//! What librdkafka tells by itself: errors, logs, statistics, commits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};

use super::error::REFUSAL_HELP;
use super::partitions::Partitions;
use super::rebalance::Rebalance;
use super::retry::Throttle;
use super::statistics::Statistics;
use super::topics::TopicNames;

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
    has_untold: AtomicBool,
    changes: Mutex<VecDeque<Assigned>>,
    has_changed: AtomicBool,
    is_closing: AtomicBool,
}

/// What a group says: the partitions given, or that none are any more.
enum Assigned {
    Given(TopicPartitionList),
    Taken { is_lost: bool },
}

impl Callbacks {
    /// The newest statistics, once.
    pub fn take_statistics(&self) -> Option<Statistics> {
        self.statistics.lock().take()
    }

    /// Why a broker was reached and would not talk, in librdkafka's words, until one does.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.lock().clone()
    }

    fn set_refusal(&self, refusal: Option<String>) {
        *self.refusal.lock() = refusal;
    }

    /// Commits that the broker answered.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Whether a commit has failed since it was asked last.
    pub fn take_unreported(&self) -> bool {
        self.has_untold.swap(false, Ordering::Relaxed)
    }

    /// Whether the group has changed anything that was not taken yet.
    pub fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::Relaxed)
    }

    /// The next change of the group, once. It waits until that is done: until then nobody reads.
    pub fn take_rebalance(&self, names: &TopicNames) -> Option<Rebalance> {
        let mut changes = self.changes.lock();
        let change = changes.pop_front();
        self.has_changed.store(!changes.is_empty(), Ordering::Relaxed);
        Some(match change? {
            Assigned::Given(list) => Rebalance::Assigned(Partitions::of_list(names, &list)),
            Assigned::Taken { is_lost } => Rebalance::Revoked { is_lost },
        })
    }

    /// From now on partitions that are taken away are let go of at once: nobody asks any more.
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    /// Positions are told again: a failure is worth one line, not one a second.
    pub fn commit_failed(&self, error: &KafkaError) {
        self.has_untold.store(true, Ordering::Relaxed);
        if self.commit_failed.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "positions cannot be told to kafka");
        } else {
            tracing::warn!(%error, "positions cannot be told to kafka, and are told again");
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
                let mut newest = self.statistics.lock();
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
    /// The reading thread does it: what it has in hand comes first.
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        what: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        if self.is_closing.load(Ordering::Relaxed) {
            if let Err(error) = consumer.unassign() {
                tracing::debug!(%error, "partitions cannot be let go of");
            }
            return;
        }
        self.changes.lock().push_back(match what {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => Assigned::Given(list.clone()),
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => {
                Assigned::Taken { is_lost: consumer.assignment_lost() }
            }
            _ => Assigned::Taken { is_lost: true },
        });
        self.has_changed.store(true, Ordering::Relaxed);
    }

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
