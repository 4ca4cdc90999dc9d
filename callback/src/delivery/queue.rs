//! The port to the outbox, which keeps what is to be sent and what became of it.

use std::error::Error;
use std::time::Duration;

use crate::endpoint::request::Shown;
use crate::event::CallbackEvent;

/// Why the outbox cannot be used now. Delivery tries again later.
pub type QueueError = Box<dyn Error + Send + Sync>;

/// The outbox, as delivery needs it. Its methods may block.
pub trait Queue: Send + Sync + 'static {
    /// Identifies a callback: its endpoint, event and kind.
    type Key: Clone + Send + Sync + 'static;

    /// Claims at most `limit` callbacks of the endpoint that are due, the oldest first, and returns those to be sent.
    /// Until `lease` has passed or they are finished, nobody else gets them. Callbacks whose decision has changed or
    /// that are too old are finished here and not returned.
    ///
    /// # Errors
    /// If the store fails.
    fn claim(
        &self,
        endpoint: &str,
        now_ms: i64,
        limit: usize,
        lease: Duration,
    ) -> Result<Claims<Self::Key>, QueueError>;

    /// Returns the time at which the endpoint gets the activation of this effect; `None` if it has it, or never gets
    /// it. An effect waits for it.
    ///
    /// # Errors
    /// If the store fails.
    fn pending_activation_ms(&self, key: &Self::Key) -> Result<Option<i64>, QueueError>;

    /// Keeps what became of claimed callbacks. May be called again after a failure; what is not kept until the lease
    /// ends is sent again.
    ///
    /// # Errors
    /// If the store fails.
    fn finish(&self, finished: &[(Self::Key, Finished)]) -> Result<(), QueueError>;
}

/// What one claim has found.
#[derive(Debug, Clone)]
pub struct Claims<K> {
    pub claimed: Vec<Claimed<K>>,
    /// More may be due: the claim has ended early, because it has finished many without sending them.
    pub has_more: bool,
}

/// A callback to be sent.
#[derive(Debug, Clone)]
pub struct Claimed<K> {
    pub key: K,
    /// The number of attempts made before.
    pub attempts: u32,
    pub event: CallbackEvent,
}

/// What became of a claimed callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub outcome: Outcome,
    /// `None` if no request was sent.
    pub attempt: Option<Attempt>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The endpoint has taken it.
    Sent,
    /// The settings of the endpoint exclude it.
    Dropped,
    /// It cannot succeed any more.
    Dead,
    /// An attempt has failed; the next one is due then.
    Retry { due_ms: i64 },
    /// No attempt was made; it is due again then.
    Postponed { due_ms: i64 },
}

impl Outcome {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Dropped => "dropped",
            Self::Dead => "dead",
            Self::Retry { .. } => "retry",
            Self::Postponed { .. } => "postponed",
        }
    }
}

/// One attempt, for persons who look for the reason of a failure. It has no ids and no tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub at_ms: i64,
    pub status: Option<u16>,
    /// Why it was sent, or not.
    pub reason: Box<str>,
    pub request: Shown,
    /// It counts as failed, but nobody knows whether the endpoint has taken it.
    pub maybe_sent: bool,
    /// The beginning of the response.
    pub answer: Box<str>,
}
