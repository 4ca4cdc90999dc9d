//! The registry's own thread: takes keys, settles each by the registry or from disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use backon::Retryable;
use tokio::sync::mpsc::Receiver;

use super::client::Client;
use super::disk::Disk;
use super::fetch::fetch;
use super::rate_limit::Gate;
use super::response::Failure;
use super::schema_key::SchemaKey;
use super::{Shared, Unusable, UnusableKind};
use crate::kafka::retry::{Throttle, backoff};
use crate::timing::Timing;

/// What a dead letter says of a schema that is none may be a parser's whole story.
const REASON_CHARS_MAX: usize = 300;

pub struct Worker<T> {
    pub shared: Arc<Shared<T>>,
    pub client: Client,
    pub disk: Disk,
    pub gate: Gate,
    pub compile: fn(&str) -> Result<T, String>,
    pub timing: Timing,
    pub outages: Throttle,
    pub refusals: Throttle,
}

impl<T: Send + Sync + 'static> Worker<T> {
    /// Until nobody can ask any more.
    pub async fn run(self: Arc<Self>, mut keys: Receiver<SchemaKey>) {
        while let Some(key) = keys.recv().await {
            // As many as may wait in the cache; the gate bounds what they do at once.
            tokio::spawn(self.clone().settle(key));
        }
    }

    /// A schema that no answer comes for is asked for again for ever: its records are held back.
    async fn settle(self: Arc<Self>, key: SchemaKey) {
        let patience = backoff(self.timing)
            .with_min_delay(self.timing.schema_retry_delay_min)
            .with_max_delay(self.timing.schema_retry_delay_max)
            .with_jitter();
        let has_failed = AtomicBool::new(false);
        let outcome = (|| self.attempt(key, has_failed.load(Ordering::Relaxed)))
            .retry(patience)
            .sleep(tokio::time::sleep)
            .when(Failure::may_pass)
            .notify(|failure, _| {
                has_failed.store(true, Ordering::Relaxed);
                self.tell(failure);
            })
            .await;
        let unusable = |kind, reason: String| {
            let reason = reason.chars().take(REASON_CHARS_MAX).collect();
            Some(Err(Unusable { kind, reason }))
        };
        let settled = match outcome {
            Ok(schema) => Some(Ok(schema)),
            Err(Failure::Unknown(reason)) => unusable(UnusableKind::Unknown, reason),
            Err(Failure::Bad(reason)) => unusable(UnusableKind::Bad, reason),
            // Not settled: whoever still wants it asks again.
            Err(Failure::Refused(_) | Failure::Outage(_) | Failure::Silence(_)) => None,
        };
        self.shared.settle(key, settled, Instant::now());
    }

    /// The registry first, as long as it answers: one that was set up anew gives old ids to other
    /// schemas. What was kept serves when it does not, for this one or for any.
    async fn attempt(&self, key: SchemaKey, has_failed: bool) -> Result<Arc<T>, Failure> {
        let monitor = &self.shared.monitor;
        if (has_failed || monitor.has_just_failed())
            && let Some(kept) = self.kept(key)
        {
            return Ok(kept);
        }
        let turn = self.gate.turn(|| monitor.is_answering()).await;
        let fetched = fetch(&self.client, key, monitor).await;
        drop(turn);
        let text = fetched?;
        let schema = (self.compile)(&text).map_err(Failure::Bad)?;
        self.disk.write(key, &text);
        Ok(Arc::new(schema))
    }

    fn kept(&self, key: SchemaKey) -> Option<Arc<T>> {
        let text = self.disk.read(key)?;
        match (self.compile)(&text) {
            Ok(schema) => {
                tracing::info!(%key, "the schema registry does not answer, a kept schema is used");
                Some(Arc::new(schema))
            }
            Err(reason) => {
                self.disk.warn_unreadable(key, &reason);
                None
            }
        }
    }

    fn tell(&self, failure: &Failure) {
        match failure {
            Failure::Refused(reason) => self.refusals.warn(|| {
                tracing::error!(
                    reason,
                    "the schema registry refuses adtrail, whose settings look \
                    wrong; records of schemas not known yet are held back"
                );
            }),
            Failure::Outage(reason) | Failure::Silence(reason) => self.outages.warn(|| {
                tracing::warn!(
                    reason,
                    "the schema registry does not answer; records of schemas \
                    not known yet are held back"
                );
            }),
            Failure::Unknown(_) | Failure::Bad(_) => {}
        }
    }
}
