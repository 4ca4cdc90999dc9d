//! Ends callbacks of endpoints that are no longer in the settings, which nobody sends.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use attribution::facts::event::EventTime;
use attribution::outbox::MAX_AGE_MS_MAX;
use attribution::outbox::port::{Outbox, Outcome};
use attribution::outbox::record::{EndpointId, OutboxEntry};
use store::StoreError;
use store::outbox::StoredOutbox;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::sleep;

use super::queue::StoreQueue;

const RECORDS_PER_READ: usize = 1_000;

/// Ends what is due for [`MAX_AGE_MS_MAX`], at every interval until shutdown is requested. Until then an endpoint can
/// return to the settings.
///
/// # Errors
/// If a task has ended with a panic.
pub async fn expire_regularly(
    queue: impl Fn() -> Arc<StoreQueue>,
    interval: Duration,
    shutdown: impl Future<Output = ()>,
) -> Result<(), JoinError> {
    let mut shutdown = pin!(shutdown);
    loop {
        let of_task = queue();
        let expired = spawn_blocking(move || expire(&of_task)).await?;
        match expired {
            Ok(0) => {}
            Ok(count) => tracing::warn!(
                count,
                "callbacks of endpoints that are not in the settings are too old: they are not sent"
            ),
            Err(error) => tracing::warn!(%error, "the outbox of callbacks failed, retrying"),
        }
        tokio::select! {
            () = &mut shutdown => return Ok(()),
            () = sleep(interval) => {}
        }
    }
}

/// Returns the number of callbacks that were ended.
fn expire(queue: &StoreQueue) -> Result<usize, StoreError> {
    let now = queue.now();
    let until = now.minus(MAX_AGE_MS_MAX);
    queue.with_outbox(|outbox| {
        let mut count = 0;
        for (endpoint, tally) in outbox.last_counts()?.unwrap_or_default() {
            if tally.pending() > 0 && !queue.has_endpoint(&endpoint) {
                count += expire_of(outbox, &endpoint, until, now)?;
            }
        }
        Ok(count)
    })
}

fn expire_of(
    outbox: &mut StoredOutbox,
    endpoint: &EndpointId,
    until: EventTime,
    now: EventTime,
) -> Result<usize, StoreError> {
    let mut count = 0;
    loop {
        let records = outbox.due(endpoint, until, RECORDS_PER_READ)?;
        let mut finished = Vec::new();
        for record in &records {
            let is_expired =
                |entry: &&OutboxEntry| entry.endpoint == *endpoint && entry.is_due(until);
            let expired = record.entries.iter().filter(is_expired);
            finished.extend(expired.map(|entry| (record.claim_of(entry), Outcome::TooOld)));
        }
        outbox.finish(&finished, now)?;
        count += finished.len();
        if records.len() < RECORDS_PER_READ {
            return Ok(count);
        }
    }
}
