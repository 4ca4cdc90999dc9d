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
use crate::spool::{Event, SpoolError, Writing};
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
        let arrival = lateness::Received::Request(Timestamp::now().as_millisecond());
        lateness::check(fact.time(), arrival, app.correction_horizon_ms)?;
        let since = Instant::now();
        let Some(spool) = self.spool() else {
            let delivery = self.producer().produce(topic, &app.key, event.as_bytes())?;
            return Ok(Pending { delivery: Some(delivery), event: None, since });
        };
        let event = Event { topic, key: app.key.clone(), value: event.into_bytes() };
        let delivery = if spool.is_kafka_failing(topic, &event.key) || !self.is_connected() {
            None
        } else {
            match self.producer().produce(topic, &event.key, &event.value) {
                Ok(delivery) => Some(delivery),
                Err(ProduceError::TooLarge) => return Err(ProduceError::TooLarge.into()),
                Err(_) => None,
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
                Err(_) => {
                    if let Some((spool, event)) = self.collector.spool().zip(event.as_ref()) {
                        spool.note_failure(event.topic, &event.key);
                    }
                }
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use axum::http::StatusCode;
    use serde_json::{Value, json};

    use super::*;
    use crate::dialect::link::{LinkKind, LinkTarget};
    use crate::test_bed::Bed;

    const LABELS: Labels<'static> = Labels { kind: "click", channel: "c" };
    const TARGET: LinkTarget<'static> =
        LinkTarget { app: "app-x", channel: "c", spreadid: 7, kind: LinkKind::Click };

    impl Bed {
        fn submit(&self) -> (Received, Result<Pending, Refusal>) {
            let app = self.collector.app("app-x").unwrap();
            let mut received = self.collector.receive(LABELS, &app.key);
            received.notes.link = UsedLink::Report { kind: LinkKind::Click, spreadid: Some(7) };
            let time = Timestamp::now().as_millisecond();
            let event = json!({"type": "click", "app": "app-x", "spreadid": 7, "click_id": "c", "time": time});
            (received, self.collector.submit(event.to_string(), TopicKind::Clicks, app))
        }

        async fn acknowledged(&self) -> Result<(), Refusal> {
            let (received, pending) = self.submit();
            received.acknowledged(pending).await
        }

        /// Waits for this number of lines, and returns their outcomes, with the code of a refusal. The last requests of
        /// the link must have the same ones.
        async fn outcomes(&self, count: usize) -> Vec<String> {
            let is_complete = async {
                while self.lines.lock().len() < count {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), is_complete).await.unwrap();
            let outcome = |one: &Value| {
                let texts = ["outcome", "code"].into_iter().filter_map(|name| one[name].as_str());
                texts.collect::<Vec<_>>().join(" ")
            };
            let shown: Vec<_> = self.lines.lock().iter().map(outcome).collect();
            let recent = self.collector.recent_reports(TARGET).unwrap();
            let kept = recent["requests"].as_array().unwrap().iter().rev().map(outcome);
            assert_eq!(kept.collect::<Vec<_>>(), shown);
            shown
        }
    }

    #[tokio::test]
    async fn an_event_in_the_spool_is_shown_and_kept_once() {
        let bed = Bed::new("");
        bed.acknowledged().await.unwrap();
        // The client disconnects before the event is on disk.
        let (received, pending) = bed.submit();
        let delivered = received.delivered(pending).await;
        assert!(matches!(delivered, Delivered::Writing(_)));
        drop(delivered);
        bed.outcomes(2).await;
        bed.acknowledged().await.unwrap();
        assert_eq!(bed.outcomes(3).await, ["spooled"; 3]);
    }

    #[tokio::test]
    async fn a_refused_event_is_shown_and_kept_once() {
        let bed = Bed::new("events_per_app_max = 1");
        // The client disconnects before Kafka has answered.
        drop(bed.submit());
        let refused = loop {
            if let Err(refusal) = bed.acknowledged().await {
                break refusal;
            }
        };
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        let count = bed.lines.lock().len();
        let outcomes = bed.outcomes(count).await;
        assert_eq!(outcomes[0], "refused disconnected");
        assert_eq!(outcomes[count - 1], "refused rate_limited");
        assert!(outcomes[1..count - 1].iter().all(|outcome| outcome == "spooled"), "{outcomes:?}");
    }

    /// Otherwise the service would reject them, although they were answered with success.
    #[tokio::test]
    async fn an_event_that_is_late_early_or_too_large_is_refused() {
        let bed = Bed::new("");
        let app = bed.collector.app("app-x").unwrap();
        let check = |time: i64, bytes: usize, expected: Option<&str>| {
            let event = json!({"type": "click", "app": "app-x", "spreadid": 7, "click_id": "c", "time": time});
            let event = event.to_string();
            let padding = " ".repeat(bytes.saturating_sub(event.len()));
            let refusal = bed.collector.submit(event + &padding, TopicKind::Clicks, app).err();
            assert_eq!(refusal.map(|refusal| refusal.code), expected, "{time} {bytes}");
        };
        let (now, day) = (Timestamp::now().as_millisecond(), 86_400_000);
        let bytes_max = bed.collector.config().ingest.event_bytes_max;
        check(now, bytes_max, None);
        check(now, bytes_max + 1, Some("too_large"));
        check(now - 6 * day, 0, None);
        check(now - 8 * day, 0, Some("too_late"));
        check(now + 2 * day, 0, Some("bad_time"));
    }

    #[tokio::test]
    async fn an_event_that_the_spool_does_not_take_is_refused() {
        let bed = Bed::new("");
        fs::rename(&bed.spool, bed.spool.with_extension("moved")).unwrap();
        assert_eq!(bed.acknowledged().await.unwrap_err().code, "unavailable");
        assert_eq!(bed.outcomes(1).await, ["refused unavailable"]);
    }
}
