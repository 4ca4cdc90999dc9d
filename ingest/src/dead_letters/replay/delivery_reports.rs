//! What Kafka has not taken, kept for who sent it.

use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{DeliveryResult, ProducerContext};

use crate::kafka::clients;

#[derive(Default)]
pub struct Reports {
    refused: Mutex<Option<KafkaError>>,
}

impl Reports {
    /// Why the first that was not taken was not: those after it fail because of it.
    pub fn refused(&self) -> Option<KafkaError> {
        self.refused.lock().clone()
    }

    /// As [`Reports::refused`]; the next one is the first then.
    pub fn take_refused(&self) -> Option<KafkaError> {
        self.refused.lock().take()
    }

    pub fn refuse(&self, error: &KafkaError) {
        let mut refused = self.refused.lock();
        refused.get_or_insert_with(|| error.clone());
    }
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        // What becomes of a transaction is told by who began it.
        let level = match facility {
            "TXNERR" | "GETPID" => RDKafkaLogLevel::Debug,
            _ => level,
        };
        clients::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka, for transactions");
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, message)) = result {
            tracing::debug!(%error, topic = message.topic(), "not taken");
            self.refuse(error);
        }
    }
}
