//! Finds clients that take nothing of what is ready for them. A slow client that keeps taking something is served for
//! as long as it takes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::stopped;

/// A client that takes nothing for this long is disconnected.
pub const STALLED_MAX: Duration = Duration::from_secs(600);
/// The same while the service stops.
pub(super) const STALLED_STOPPING_MAX: Duration = Duration::from_secs(5);

/// Since when bytes have been ready that the client does not take.
#[derive(Clone)]
pub(super) struct Untaken(Arc<Mutex<State>>);

struct State {
    since: Option<Instant>,
    /// When something that had waited was taken.
    taken_at: Instant,
}

impl Default for Untaken {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { since: None, taken_at: Instant::now() })))
    }
}

impl Untaken {
    /// Bytes are ready and wait from now on.
    pub fn wait(&self) {
        self.0.lock().since = Some(Instant::now());
    }

    /// Bytes are ready, and the client takes none; they may have been waiting before.
    pub fn keep_waiting(&self) {
        self.0.lock().since.get_or_insert_with(Instant::now);
    }

    /// Nothing waits for the client.
    pub fn clear(&self) {
        let mut state = self.0.lock();
        if state.since.take().is_some() {
            state.taken_at = Instant::now();
        }
    }

    /// Completes once bytes have waited for `longest`.
    pub async fn stalled(&self, longest: Duration) {
        self.stalled_after(None, longest).await;
    }

    /// Like [`Self::stalled`]; the time before now does not count.
    pub async fn stalled_from_now(&self, longest: Duration) {
        self.stalled_after(Some(Instant::now()), longest).await;
    }

    async fn stalled_after(&self, start: Option<Instant>, longest: Duration) {
        loop {
            let now = Instant::now();
            let since = self.0.lock().since;
            let from = since.map_or(now, |since| start.map_or(since, |start| since.max(start)));
            if since.is_some() && now.duration_since(from) >= longest {
                return;
            }
            sleep_until(from + longest).await;
        }
    }

    /// Returns since when nothing has waited for the client; `None` while something does.
    pub fn nothing_since(&self) -> Option<Instant> {
        let state = self.0.lock();
        state.since.is_none().then_some(state.taken_at)
    }
}

tokio::task_local! {
    /// What the HTTP/2 response of this task has given to hyper. hyper asks its body for more once the client's flow
    /// control window, and the socket, have room.
    static RESPONSE: Untaken;
}

/// Notes that the response of this task has given bytes to hyper. With HTTP/1 the socket alone shows what is taken.
pub(super) fn response_waits() {
    // Outside of a task of HTTP/2 there is no value.
    let _ = RESPONSE.try_with(Untaken::wait);
}

/// Notes that the response of this task has no bytes at the moment.
pub(super) fn response_has_none() {
    let _ = RESPONSE.try_with(Untaken::clear);
}

/// Runs the requests of an HTTP/2 connection, each in a task, and resets those whose client takes nothing.
#[derive(Clone)]
pub(super) struct StreamTasks {
    stopping: watch::Receiver<bool>,
}

impl StreamTasks {
    pub fn new(stopping: watch::Receiver<bool>) -> Self {
        Self { stopping }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamTasks {
    fn execute(&self, stream: F) {
        let (untaken, stopping) = (Untaken::default(), self.stopping.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = RESPONSE.scope(untaken.clone(), stream) => {}
                () = untaken.stalled(STALLED_MAX) => {}
                () = stalled_while_stopping(&untaken, stopping) => {}
            }
        });
    }
}

async fn stalled_while_stopping(untaken: &Untaken, stopping: watch::Receiver<bool>) {
    stopped(stopping).await;
    untaken.stalled_from_now(STALLED_STOPPING_MAX).await;
}
