//! Sends what is due: each endpoint has a lane of its own, so that one that fails delays no other.
//!
//! Start with [`deliver`]. A `lane` claims callbacks from the `queue`, the `sender` makes one attempt of each, a `gate`
//! per host limits its rate and pauses it while it fails, and the `schedule` says when to try again.

mod gate;
mod lane;
mod outbox_thread;
pub(crate) mod queue;
mod schedule;
pub(crate) mod sender;
#[cfg(test)]
mod tests;
pub(crate) mod timing;

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::error::CallbackError;
use lane::Lane;
use queue::Queue;
use sender::Sender;

/// Sends callbacks until `shutdown`, then until the requests in progress have ended.
///
/// # Errors
/// If the thread of a lane cannot be prepared, or if a lane has ended with a panic.
pub async fn deliver<Q: Queue>(
    sender: Arc<Sender>,
    queue: Arc<Q>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), CallbackError> {
    let (stop, stopped) = watch::channel(false);
    let mut lanes = JoinSet::new();
    for endpoint in sender.endpoints() {
        let lane = Lane::new(endpoint.clone(), sender.clone(), queue.clone())?;
        lanes.spawn(lane.run(stopped.clone()));
    }
    let mut shutdown = pin!(shutdown);
    let mut is_stopping = false;
    loop {
        tokio::select! {
            () = &mut shutdown, if !is_stopping => {
                is_stopping = true;
                stop.send_replace(true);
            }
            ended = lanes.join_next() => match ended {
                Some(outcome) => outcome??,
                None => return Ok(()),
            },
        }
    }
}
