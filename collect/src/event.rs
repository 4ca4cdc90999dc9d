//! Checks an event as the service will, and passes it to Kafka or to the spool.

use std::mem;
use std::time::Instant;

use ingest::TopicKind;
use ingest::decode::{decode, lateness};
use ingest::kafka::event_producer::{Delivery, ProduceError};
use jiff::Timestamp;
use tokio::task::JoinHandle;

use crate::echo::event_line;
use crate::metrics::{self, Labels, OwnedLabels};
use crate::notes::{Notes, UsedLink};
use crate::recent::RecentRequest;
use crate::refusal::{EventOutcome, Refusal};
use crate::spool::{Event, Spool, SpoolError, Writing};
use crate::state::{App, Collector};

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

    /// Counts an event of this app that was received.
    pub(crate) fn receive(&self, labels: Labels<'_>, app: &str) -> Received {
        self.metrics().received(labels);
        let notes = Notes::new(app, self.echo().is_some());
        Received { collector: self.clone(), labels: labels.into_owned(), notes, is_counted: false }
    }
}

/// An event that was received and is not yet counted as produced, spooled or refused. It may outlive its request.
pub(crate) struct Received {
    collector: Collector,
    labels: OwnedLabels,
    pub notes: Notes,
    is_counted: bool,
}

impl Received {
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
                    self.collector.metrics().produced(self.labels.as_labels(), since.elapsed());
                    self.end(EventOutcome::Produced);
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
        let writing = spool.append(event, self.labels.as_labels()).await;
        // Counted by the spool, also if the client disconnects now.
        self.is_counted = true;
        Delivered::Writing(tokio::spawn(self.written(writing)))
    }

    /// Waits until the event is in the spool, or is not.
    async fn written(mut self, writing: Writing) -> Result<(), Refusal> {
        let written = writing.written().await.map_err(Refusal::from);
        self.end(match &written {
            Ok(()) => EventOutcome::Spooled,
            Err(refusal) => EventOutcome::Refused(Box::new(refusal.clone())),
        });
        written
    }

    fn refuse(self, refusal: Refusal) -> Delivered {
        self.refused(refusal.clone());
        Delivered::Ended(Err(refusal))
    }

    /// Counts the event as refused.
    pub fn refused(mut self, refusal: Refusal) {
        metrics::refused(self.labels.as_labels(), refusal.code);
        self.end(EventOutcome::Refused(Box::new(refusal)));
    }

    /// Shows and keeps what the event became, now that it is counted.
    fn end(&mut self, outcome: EventOutcome) {
        self.is_counted = true;
        if let (Some(echo), Some(values)) = (self.collector.echo(), &self.notes.values) {
            echo(&event_line(self.labels.as_labels(), &self.notes, values, &outcome));
        }
        let Notes { app, link, signature, bot, presence, .. } = &mut self.notes;
        let spreadid = match link {
            UsedLink::None => return,
            UsedLink::Report { spreadid, .. } => *spreadid,
            UsedLink::Person(_) => None,
        };
        let request = RecentRequest {
            time: Timestamp::now(),
            spreadid,
            presence: mem::take(presence),
            signature: *signature,
            bot: *bot,
            outcome,
        };
        self.collector.keep(link, app, self.labels.as_labels().channel, request);
    }
}

/// An event of which Kafka has said what becomes of it.
pub(crate) enum Delivered {
    Ended(Result<(), Refusal>),
    /// The task goes on if the client disconnects.
    Writing(JoinHandle<Result<(), Refusal>>),
}

impl Delivered {
    /// Waits until the event is in the spool, if Kafka has not acknowledged it.
    pub async fn stored(self) -> Result<(), Refusal> {
        match self {
            Self::Ended(outcome) => outcome,
            // The task fails only if it panics, which ends the process, or if the process ends.
            Self::Writing(task) => task.await.unwrap_or_else(|_| Err(SpoolError::Disk.into())),
        }
    }
}

impl Drop for Received {
    /// The client has disconnected before Kafka has answered. The event may be in Kafka nevertheless.
    fn drop(&mut self) {
        if !self.is_counted {
            let refusal = Refusal::disconnected();
            metrics::refused(self.labels.as_labels(), refusal.code);
            self.end(EventOutcome::Refused(Box::new(refusal)));
        }
    }
}
