//! Checks an event as the service will, and produces it.

use std::time::Instant;

use axum::http::StatusCode;
use ingest::TopicKind;
use ingest::decode::{DecodeError, decode, lateness};
use ingest::kafka::event_producer::{Delivery, ProduceError};
use jiff::Timestamp;
use serde::Serialize;

use crate::metrics::{self, Labels, UNAVAILABLE};
use crate::spool::{Event, Spool, SpoolError, Writing};
use crate::state::{App, Collector};

/// Why an event is neither in Kafka nor in the spool. The texts contain no value of the event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Refusal {
    /// As in dead letters, `unavailable` or `rate_limited`.
    pub code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    pub detail: String,
}

/// The code of an event beyond the rate of its app, which can be sent again.
const RATE_LIMITED: &str = "rate_limited";

impl Refusal {
    /// Returns the status of a response that consists of this refusal.
    pub fn status(&self) -> StatusCode {
        match self.code {
            UNAVAILABLE => StatusCode::SERVICE_UNAVAILABLE,
            RATE_LIMITED => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    fn rate_limited() -> Self {
        let detail = "too many events of this app in a second; send it again".to_owned();
        Self { code: RATE_LIMITED, field: None, detail }
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

impl From<SpoolError> for Refusal {
    fn from(error: SpoolError) -> Self {
        let detail = format!("kafka has not acknowledged the event, and {error}; send it again");
        Self { code: UNAVAILABLE, field: None, detail }
    }
}

/// An event that waits for its acknowledgement.
pub(crate) struct Pending {
    /// `None` if the event goes to the spool at once.
    delivery: Option<Delivery>,
    /// The event, if there is a spool.
    event: Option<Event>,
    since: Instant,
}

impl Collector {
    /// Checks an event and queues it for Kafka, unless it goes to the spool at once.
    pub(crate) fn submit(
        &self,
        event: String,
        topic: TopicKind,
        app: &App,
    ) -> Result<Pending, Refusal> {
        if !app.admits() {
            return Err(Refusal::rate_limited());
        }
        let config = self.config();
        let bytes_max = config.ingest.event_bytes_max;
        if event.len() > bytes_max {
            return Err(Refusal::too_large(bytes_max));
        }
        let fact = decode(event.as_bytes(), Some(topic), &config.policy)?;
        let arrival = lateness::Received::Arrival(Timestamp::now().as_millisecond());
        lateness::check(fact.time(), arrival, app.correction_horizon_ms)?;
        let since = Instant::now();
        let Some(spool) = self.spool() else {
            let delivery = self.producer().produce(topic, &app.key, event.as_bytes())?;
            return Ok(Pending { delivery: Some(delivery), event: None, since });
        };
        let event = Event { topic, key: app.key.clone(), value: event.into_bytes() };
        let delivery = if spool.is_kafka_failing() || !self.is_connected() {
            None
        } else {
            match self.producer().produce(topic, &event.key, &event.value) {
                Ok(delivery) => Some(delivery),
                Err(ProduceError::TooLarge) => return Err(ProduceError::TooLarge.into()),
                Err(ProduceError::QueueFull | ProduceError::Unacknowledged(_)) => None,
            }
        };
        Ok(Pending { delivery, event: Some(event), since })
    }

    /// Counts an event that was received.
    pub(crate) fn receive<'a>(&'a self, labels: Labels<'a>) -> Received<'a> {
        self.metrics().received(labels);
        Received { collector: self, labels, is_counted: false }
    }
}

/// An event that was received and is not yet counted as produced, spooled or refused.
pub(crate) struct Received<'a> {
    collector: &'a Collector,
    labels: Labels<'a>,
    is_counted: bool,
}

impl Received<'_> {
    /// Waits until the event is in Kafka or in the spool, and counts it.
    pub async fn acknowledged(self, pending: Result<Pending, Refusal>) -> Result<(), Refusal> {
        self.delivered(pending).await.stored().await
    }

    /// Waits until Kafka has acknowledged the event, or has not. Then the event is queued for the spool, so that the
    /// events of a request are written together.
    pub async fn delivered(mut self, pending: Result<Pending, Refusal>) -> Delivered {
        let Pending { delivery, event, since } = match pending {
            Ok(pending) => pending,
            Err(refusal) => return self.refuse(refusal),
        };
        if let Some(delivery) = delivery {
            match delivery.acknowledged().await {
                Ok(()) => {
                    self.is_counted = true;
                    self.collector.metrics().produced(self.labels, since.elapsed());
                    return Delivered::Ended(Ok(()));
                }
                Err(ProduceError::TooLarge) => return self.refuse(ProduceError::TooLarge.into()),
                Err(error) if event.is_none() => return self.refuse(error.into()),
                Err(_) => self.collector.spool().into_iter().for_each(Spool::note_failure),
            }
        }
        let Some((spool, event)) = self.collector.spool().zip(event) else {
            return self.refuse(ProduceError::QueueFull.into());
        };
        let writing = spool.append(event, self.labels).await;
        self.is_counted = true;
        Delivered::Writing(writing)
    }

    fn refuse(self, refusal: Refusal) -> Delivered {
        self.refused(refusal.code);
        Delivered::Ended(Err(refusal))
    }

    /// Counts the event as refused.
    pub fn refused(mut self, reason: &'static str) {
        self.is_counted = true;
        metrics::refused(self.labels, reason);
    }
}

/// An event of which Kafka has said what becomes of it.
pub(crate) enum Delivered {
    Ended(Result<(), Refusal>),
    Writing(Writing),
}

impl Delivered {
    /// Waits until the event is in the spool, if Kafka has not acknowledged it.
    pub async fn stored(self) -> Result<(), Refusal> {
        match self {
            Self::Ended(outcome) => outcome,
            Self::Writing(writing) => writing.written().await.map_err(Refusal::from),
        }
    }
}

impl Drop for Received<'_> {
    /// The client has disconnected before Kafka has answered. The event may be in Kafka nevertheless.
    fn drop(&mut self) {
        if !self.is_counted {
            metrics::refused(self.labels, "disconnected");
        }
    }
}
