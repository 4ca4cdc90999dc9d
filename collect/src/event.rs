//! Checks an event as the service will, and produces it.

use std::time::Instant;

use ingest::TopicKind;
use ingest::decode::{DecodeError, decode, lateness};
use ingest::kafka::event_producer::{Delivery, ProduceError};
use jiff::Timestamp;
use serde::Serialize;

use crate::metrics::{Labels, Metrics};
use crate::state::{App, Collector};

/// Why an event is not in Kafka. The texts contain no value of the event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Refusal {
    /// As in dead letters, or `unavailable`.
    pub code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    pub detail: String,
}

/// The code of an event that can be sent again.
pub(crate) const UNAVAILABLE: &str = "unavailable";

impl Refusal {
    /// Returns true if the same event may succeed later.
    pub fn is_temporary(&self) -> bool {
        self.code == UNAVAILABLE
    }

    pub fn bad_value(field: &str, detail: impl Into<String>) -> Self {
        Self { code: "bad_value", field: Some(field.to_owned()), detail: detail.into() }
    }

    pub fn too_large(bytes_max: usize) -> Self {
        let detail = format!("expected an event of at most {bytes_max} bytes");
        Self { code: "too_large", field: None, detail }
    }
}

impl From<DecodeError> for Refusal {
    fn from(error: DecodeError) -> Self {
        let DecodeError { code, field, message } = error;
        Self { code: code.name(), field, detail: message }
    }
}

impl From<ProduceError> for Refusal {
    fn from(error: ProduceError) -> Self {
        let (code, detail) = match &error {
            ProduceError::TooLarge => ("too_large", error.to_string()),
            ProduceError::QueueFull => (UNAVAILABLE, error.to_string()),
            // The reason is the operator's.
            ProduceError::Unacknowledged(_) => {
                (UNAVAILABLE, "kafka has not acknowledged the event; send it again".to_owned())
            }
        };
        Self { code, field: None, detail }
    }
}

/// An event that waits for its acknowledgement.
pub(crate) struct Pending {
    delivery: Delivery,
    since: Instant,
}

impl Collector {
    /// Checks an event and queues it for Kafka.
    pub(crate) fn submit(
        &self,
        event: &[u8],
        topic: TopicKind,
        app: &App,
    ) -> Result<Pending, Refusal> {
        let config = self.config();
        let bytes_max = config.ingest.event_bytes_max;
        if event.len() > bytes_max {
            return Err(Refusal::too_large(bytes_max));
        }
        let fact = decode(event, Some(topic), &config.policy)?;
        let arrival = lateness::Received::Arrival(Timestamp::now().as_millisecond());
        lateness::check(fact.time(), arrival, app.correction_horizon_ms)?;
        let delivery = self.producer().produce(topic, &app.key, event)?;
        Ok(Pending { delivery, since: Instant::now() })
    }

    /// Counts an event that was received.
    pub(crate) fn receive<'a>(&'a self, labels: Labels<'a>) -> Received<'a> {
        self.metrics().received(labels);
        Received { metrics: self.metrics(), labels, is_counted: false }
    }
}

/// An event that was received and is not yet counted as produced or refused.
pub(crate) struct Received<'a> {
    metrics: &'a Metrics,
    labels: Labels<'a>,
    is_counted: bool,
}

impl Received<'_> {
    /// Waits until Kafka has acknowledged the event, and counts it.
    pub async fn acknowledged(mut self, pending: Result<Pending, Refusal>) -> Result<(), Refusal> {
        let outcome = match pending {
            Ok(Pending { delivery, since }) => {
                let delivered = delivery.acknowledged().await;
                delivered.map(|()| since.elapsed()).map_err(Refusal::from)
            }
            Err(refusal) => Err(refusal),
        };
        match outcome {
            Ok(after) => {
                self.is_counted = true;
                self.metrics.produced(self.labels, after);
                Ok(())
            }
            Err(refusal) => {
                self.refused(refusal.code);
                Err(refusal)
            }
        }
    }

    /// Counts the event as refused.
    pub fn refused(mut self, reason: &'static str) {
        self.is_counted = true;
        self.metrics.refused(self.labels, reason);
    }
}

impl Drop for Received<'_> {
    /// The client has disconnected before it was answered. The event may be in Kafka nevertheless.
    fn drop(&mut self) {
        if !self.is_counted {
            self.metrics.refused(self.labels, "disconnected");
        }
    }
}
