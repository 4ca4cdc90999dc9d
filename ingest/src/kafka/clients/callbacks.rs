//! Callbacks of librdkafka: errors, logs, statistics, rebalances, results of commits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};

use super::statistics::Statistics;
use crate::kafka::error::REFUSAL_HELP;
use crate::kafka::partitions::Partitions;
use crate::kafka::retry::Throttle;
use crate::kafka::topics::TopicNames;

/// Returns true if a broker refused the connection (authentication, TLS): retrying does not help, the operator must
/// act.
fn is_refusal(code: RDKafkaErrorCode, reason: &str) -> bool {
    // A broker rejects the client's certificate only after the handshake, and not with one of the codes.
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

/// State that the callbacks leave for the consumer's thread. librdkafka calls them while that thread polls.
#[derive(Default)]
pub struct Callbacks {
    names: TopicNames,
    statistics: Mutex<Option<Statistics>>,
    errors: Throttle,
    refusals: Throttle,
    refusal: Mutex<Option<String>>,
    commit_responses: AtomicU64,
    has_logged_failure: AtomicBool,
    commit_failed: AtomicBool,
    rebalances: Mutex<VecDeque<Rebalance>>,
    has_pending_rebalance: AtomicBool,
    is_closing: AtomicBool,
}

/// A change of the partitions that are assigned to this group member.
#[derive(Debug)]
pub enum Rebalance {
    /// The complete new assignment.
    Assigned(Partitions),
    /// All partitions were revoked. If they are lost, another member may read them already.
    Revoked { is_lost: bool },
}

impl Callbacks {
    pub fn new(names: TopicNames) -> Self {
        Self { names, ..Self::default() }
    }

    /// Returns the newest statistics, if not taken yet.
    pub fn take_statistics(&self) -> Option<Statistics> {
        self.statistics.lock().take()
    }

    /// Returns why a broker refused the connection, in librdkafka's words, until one accepts it.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.lock().clone()
    }

    /// Returns the number of responses to offset commits so far.
    pub fn commit_responses(&self) -> u64 {
        self.commit_responses.load(Ordering::Relaxed)
    }

    /// Returns true if an offset commit has failed since the last call.
    pub fn take_commit_failed(&self) -> bool {
        self.commit_failed.swap(false, Ordering::Relaxed)
    }

    /// Returns true if `take_rebalance` would return a rebalance.
    pub fn has_pending_rebalance(&self) -> bool {
        self.has_pending_rebalance.load(Ordering::Relaxed)
    }

    /// Returns the next rebalance, if any. The group waits until it is applied, and nothing is read until then.
    pub fn take_rebalance(&self) -> Option<Rebalance> {
        let mut rebalances = self.rebalances.lock();
        let rebalance = rebalances.pop_front();
        self.has_pending_rebalance.store(!rebalances.is_empty(), Ordering::Relaxed);
        rebalance
    }

    /// Unassigns revoked partitions at once from now on, because nothing takes rebalances any more.
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    /// Records a failed offset commit, which will be retried. Only the first failure is a warning, because there may
    /// be one a second.
    pub fn record_commit_failure(&self, error: &KafkaError) {
        self.commit_failed.store(true, Ordering::Relaxed);
        if self.has_logged_failure.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "offsets cannot be committed to kafka");
        } else {
            tracing::warn!(%error, "offsets cannot be committed to kafka, retrying");
        }
    }
}

impl ClientContext for Callbacks {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn stats_raw(&self, statistics: &[u8]) {
        match serde_json::from_slice::<Statistics>(statistics) {
            Ok(parsed) => {
                if parsed.is_connected() {
                    *self.refusal.lock() = None;
                }
                let mut newest = self.statistics.lock();
                *newest = Some(parsed);
            }
            Err(error) => tracing::debug!(%error, "librdkafka's statistics cannot be parsed"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // The end of a partition is not an error; clients that read to the end enable this event.
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::PartitionEOF) {
            return;
        }
        if error.rdkafka_error_code().is_some_and(|code| is_refusal(code, reason)) {
            *self.refusal.lock() = Some(reason.to_owned());
            return self.refusals.warn(|| {
                tracing::warn!(reason, "kafka refuses the connection: {REFUSAL_HELP}");
            });
        }
        self.errors.warn(|| tracing::warn!(%error, reason, "kafka"));
    }
}

impl ConsumerContext for Callbacks {
    /// Queues the rebalance for the reading thread, which finishes its work on the old assignment first.
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        event: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        if self.is_closing.load(Ordering::Relaxed) {
            if let Err(error) = consumer.unassign() {
                tracing::debug!(%error, "partitions cannot be unassigned");
            }
            return;
        }
        self.rebalances.lock().push_back(match event {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                Rebalance::Assigned(Partitions::of_list(&self.names, list))
            }
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => {
                Rebalance::Revoked { is_lost: consumer.assignment_lost() }
            }
            _ => Rebalance::Revoked { is_lost: true },
        });
        self.has_pending_rebalance.store(true, Ordering::Relaxed);
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        self.commit_responses.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = result {
            self.record_commit_failure(&error);
        }
    }
}

/// Callbacks of the admin client, which only log.
pub struct LogOnly;

impl ClientContext for LogOnly {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka");
    }
}

/// Writes librdkafka's log to adtrail's, with errors as warnings: librdkafka logs every lost connection as an error and
/// reconnects. A request for a producer id that is retried, say because a bootstrap connection is replaced, is of no
/// concern to an operator: the producers report what they cannot deliver.
pub fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    let level = match facility {
        "GETPID" => RDKafkaLogLevel::Debug,
        _ => level,
    };
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
