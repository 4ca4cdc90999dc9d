//! Keeps the first failed delivery report for the sender.

use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{DeliveryResult, ProducerContext};

use crate::kafka::clients;

#[derive(Default)]
pub struct Reports {
    failure: Mutex<Option<KafkaError>>,
}

impl Reports {
    /// Returns the error of the first failed record; further records only fail as a consequence.
    pub fn failure(&self) -> Option<KafkaError> {
        self.failure.lock().clone()
    }

    /// Returns the failure, like [`Reports::failure`], and clears it.
    pub fn take_failure(&self) -> Option<KafkaError> {
        self.failure.lock().take()
    }

    pub fn set_failure(&self, error: &KafkaError) {
        let mut failure = self.failure.lock();
        failure.get_or_insert_with(|| error.clone());
    }
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        // The sender reports errors of its transactions itself.
        let level = match facility {
            "TXNERR" => RDKafkaLogLevel::Debug,
            _ => level,
        };
        clients::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka error of the transactional producer");
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, message)) = result {
            tracing::debug!(%error, topic = message.topic(), "a record was not delivered");
            self.set_failure(error);
        }
    }
}
