//! The registry's thread: fetches the schema of each key from the registry, or reads it from the cache on disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use backon::Retryable;
use tokio::sync::mpsc::Receiver;

use super::client::Client;
use super::disk::DiskCache;
use super::fetch::fetch;
use super::rate_limit::RateLimit;
use super::response::{Failure, FailureKind};
use super::schema_key::SchemaKey;
use super::{Shared, Unusable, UnusableKind};
use crate::kafka::retry::{Throttle, backoff};
use crate::timing::Timing;

/// Maximum length of the reason in a dead letter: messages of the schema parser may be long.
const REASON_CHARS_MAX: usize = 300;

pub struct Worker<T> {
    pub shared: Arc<Shared<T>>,
    pub client: Client,
    pub disk: DiskCache,
    pub rate_limit: RateLimit,
    pub compile: fn(&str) -> Result<T, String>,
    pub timing: Timing,
    pub outages: Throttle,
    pub refusals: Throttle,
}

impl<T: Send + Sync + 'static> Worker<T> {
    /// Runs until the sender of keys is dropped.
    pub async fn run(self: Arc<Self>, mut keys: Receiver<SchemaKey>) {
        while let Some(key) = keys.recv().await {
            // The cache bounds the number of tasks; the rate limit bounds their concurrent requests.
            tokio::spawn(self.clone().settle(key));
        }
    }

    /// Fetches a schema and stores the result. Retries without limit while there is no conclusive response.
    async fn settle(self: Arc<Self>, key: SchemaKey) {
        let retries = backoff(self.timing)
            .with_min_delay(self.timing.initial_schema_retry_delay)
            .with_max_delay(self.timing.schema_retry_delay_max)
            .with_jitter();
        let has_failed = AtomicBool::new(false);
        let outcome = (|| self.attempt(key, has_failed.load(Ordering::Relaxed)))
            .retry(retries)
            .sleep(tokio::time::sleep)
            .when(Failure::is_transient)
            .notify(|failure, _| {
                has_failed.store(true, Ordering::Relaxed);
                self.log(failure);
            })
            .await;
        let settled = match outcome {
            Ok(schema) => Some(Ok(schema)),
            // No result: the next lookup fetches it again.
            Err(failure) if failure.is_transient() => None,
            Err(Failure { kind, reason }) => {
                let is_unknown = kind == FailureKind::Unknown;
                let kind = if is_unknown { UnusableKind::Unknown } else { UnusableKind::Bad };
                let reason = reason.chars().take(REASON_CHARS_MAX).collect();
                Some(Err(Unusable { kind, reason }))
            }
        };
        self.shared.settle(key, settled, Instant::now());
    }

    /// Fetches from the registry while it answers, because a recreated registry assigns known ids to other schemas.
    /// While it fails, for this schema or for all, reads the cached schema from disk.
    async fn attempt(&self, key: SchemaKey, has_failed: bool) -> Result<Arc<T>, Failure> {
        let monitor = &self.shared.monitor;
        if (has_failed || monitor.has_failed_recently())
            && let Some(cached) = self.cached(key)
        {
            return Ok(cached);
        }
        let permit = self.rate_limit.acquire(|| monitor.is_answering()).await;
        let fetched = fetch(&self.client, key, monitor).await;
        drop(permit);
        let text = fetched?;
        let schema = (self.compile)(&text).map_err(|reason| FailureKind::Bad.because(reason))?;
        self.disk.write(key, &text);
        Ok(Arc::new(schema))
    }

    fn cached(&self, key: SchemaKey) -> Option<Arc<T>> {
        let text = self.disk.read(key)?;
        match (self.compile)(&text) {
            Ok(schema) => {
                tracing::info!(%key, "the schema registry does not answer; using a cached schema");
                Some(Arc::new(schema))
            }
            Err(reason) => {
                self.disk.warn_unreadable(key, &reason);
                None
            }
        }
    }

    fn log(&self, Failure { kind, reason }: &Failure) {
        match kind {
            FailureKind::Refused => self.refusals.warn(|| {
                tracing::error!(
                    reason,
                    "the schema registry rejects requests, check [registry]; records \
                    whose schema is not cached are waiting"
                );
            }),
            FailureKind::Outage | FailureKind::NoResponse => self.outages.warn(|| {
                tracing::warn!(
                    reason,
                    "the schema registry does not answer; records whose schema is \
                    not cached are waiting"
                );
            }),
            FailureKind::Unknown | FailureKind::Bad => {}
        }
    }
}
