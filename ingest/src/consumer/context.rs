//! Settings and signals of the reading thread, and the health that it reports.

use std::sync::Arc;
use std::time::Duration;

use config::{Config, Kafka};
use rdkafka::consumer::Consumer as _;

use super::shutdown::Shutdown;
use crate::kafka::clients::Consumer;
use crate::kafka::clients::statistics::Statistics;
use crate::kafka::committed::StoreName;
use crate::kafka::retry::Throttle;
use crate::kafka::topics::{TopicKind, TopicNames};
use crate::observability::health::Health;
use crate::timing::Timing;

/// Settings, shutdown flag and health, shared by all steps of the thread.
pub struct Context {
    pub kafka: Kafka,
    pub store: StoreName,
    pub timing: Timing,
    pub shutdown: Shutdown,
    pub health: Arc<Health>,
    denial_warnings: Throttle,
}

impl Context {
    pub fn new(config: &Config, shutdown: Shutdown, health: Arc<Health>, timing: Timing) -> Self {
        let (kafka, store) = (config.kafka.clone(), StoreName::new(&config.store));
        let denial_warnings = Throttle::default();
        Self { kafka, store, timing, shutdown, health, denial_warnings }
    }

    /// Returns how often to check for new partitions and read access.
    pub fn check_interval(&self) -> Duration {
        match self.health.denied() {
            Some(_) => self.timing.denied_topic_check_interval,
            None => self.timing.partition_check_interval,
        }
    }

    /// Records whether a broker answers or refuses the connection, and logs each change.
    pub fn update_connection(&self, consumer: &Consumer, statistics: &Statistics) {
        self.health.set_refusal(consumer.context().refusal());
        let (was_connected, is_connected) = (self.health.is_connected(), statistics.is_connected());
        if is_connected && !was_connected {
            tracing::info!("kafka answers again");
        } else if was_connected && !is_connected {
            let brokers = &self.kafka.brokers;
            tracing::warn!(brokers, "kafka does not answer any more; reading resumes once it does");
        }
        self.health.set_connected(is_connected);
    }

    /// Marks a topic as denied. Its lag is unknown until read access is granted again.
    pub fn deny(&self, topic: TopicKind, names: &TopicNames) {
        let name = names.of(topic);
        self.health.set_denied(topic, name, true);
        self.denial_warnings.warn(|| {
            tracing::warn!(
                topic = %name,
                "kafka does not let adtrail read the topic: grant its user Describe and Read on it; reading \
                 resumes once they are granted"
            );
        });
    }
}
